"""The burn-in of one node, role `burn-in`: matrix products, copies and all-reduce, with the image's PyTorch.

The argument is the time for it in seconds. PyTorch is imported first; then standard input has what the node
needs as JSON: see Request. The figures go to standard output, as JSON: fields of the message `burn_in`. With
the argument `store` it is PyTorch's store instead, by which the processes of all nodes find each other.

Each measurement has a process of its own for each GPU, forked from this one: a hang in NCCL or in a driver
can only be ended by a signal. Nodes without GPUs have one process, and Gloo.

The figures of all-reduce are the bandwidth of the bus as nccl-tests defines it (its doc/PERFORMANCE.md).
"""

import datetime
import functools
import json
import os
import select
import signal
import sys
import time
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Sequence

    # gpus: how many each node in Ray has. rank: this node's index there. address, port: of the head node,
    # where PyTorch's store listens meanwhile. env: variables for this process.
    Request = Dict[str, Any]
    Answer = List[Any]  # [figure], or [None, error]
    Measure = Callable[[int, float], Any]  # of a GPU, by its number on this node, in so many seconds

MISSING = -1.0  # a figure that could not be measured
MEETING = 120.0  # seconds to wait for other nodes, which import PyTorch from a slow file system
MARGIN = 40.0  # seconds beside a measurement, for contexts of the driver and the start of NCCL
KILL_WAIT = 5.0  # seconds for killed processes to end: a hung driver may not let them
MAX_TEXT, MAX_PROBLEMS = 100, 4  # characters of an error; how many of a node
# Parts of the time: of the products, the copies, and each all-reduce.
PRODUCTS, COPIES, REDUCE = 0.4, 0.1, 0.1
# Rows of the matrices, bytes of a copy, bytes of an all-reduce.
ON_GPU, ON_CPU = (4096, 2**30, 2**28), (256, 2**24, 2**22)
BATCH = 8  # products between two looks at the time; the sums are exact: 4,096 times 8 is a number of float16
MAX_TURNS = 1000  # of an all-reduce
# Measurements, as findings name them.
PRODUCTS_OF, COPIES_OF, MEETING_OF = "matrix products", "memory", "meeting of all nodes"
IN_NODE, IN_PAIR, OVER_ALL = (
    "all-reduce in the node",
    "all-reduce with another node",
    "all-reduce of all nodes",
)


def main(argv: "List[str]") -> int:
    """Measure, and print the figures. argv: SECONDS, or `store`."""
    out = os.dup(1)
    os.dup2(2, 1)  # NCCL writes to standard output
    try:
        import torch

        request = json.loads(sys.stdin.read() or "null")  # null: the job is being ended
        if request and argv[0] == "store":
            serve_store(torch, request)
        figures = measure_node(torch, request, float(argv[0])) if request else {}
    except ImportError as error:
        figures = {"error": str(error)[:MAX_TEXT]}
    with open(out, "w") as file:
        json.dump(figures, file)
    return 0


def measure_node(torch: "Any", request: "Request", seconds: float) -> "Dict[str, Any]":
    """All figures of this node. Those that other nodes take part in come last."""
    os.environ.update(request["env"])
    meter, own, gpus = Meter(torch, request, seconds), request["rank"], request["gpus"]
    # Nodes without GPUs take part only where no node has any.
    nodes = [rank for rank, count in enumerate(gpus) if count or not any(gpus)]
    products = meter.on_each_gpu(meter.multiply, PRODUCTS)
    figures = {
        "kind": next((answer[0][0] for answer in products if len(answer) == 1), ""),
        "products": meter.require(
            PRODUCTS_OF, [[answer[0][1]] if len(answer) == 1 else answer for answer in products]
        ),
        "copies": meter.require(COPIES_OF, meter.on_each_gpu(meter.copy, COPIES)),
        "problems": meter.problems,
    }
    meeting = wait([Process(functools.partial(meter.meet, nodes.index(own), len(nodes)))], MEETING)
    if meter.require(MEETING_OF, meeting) == [0]:
        figures.update(meter.reduce_all(nodes))
    del meter.problems[MAX_PROBLEMS:]
    return figures


def serve_store(torch: "Any", request: "Request") -> None:
    """Keep the store until this process is killed."""
    store = open_store(torch, request, is_server=True)
    while store:
        signal.pause()


def open_store(torch: "Any", request: "Request", is_server: bool = False) -> "Any":
    """PyTorch's store on the head node, as its server or a client."""
    return torch.distributed.TCPStore(
        request["address"],
        request["port"],
        None,
        is_server,
        datetime.timedelta(seconds=MEETING),
        wait_for_workers=False,
    )


def pairs_of(own: int, nodes: "Sequence[int]") -> "List[List[int]]":
    """The pairs of neighbours in a ring of nodes that a node is in, in the order of their turns.

    No node is in two pairs of a turn. A slow node is slow in both of its pairs, a neighbour in only one.
    """
    pairs = []
    for place, node in enumerate(nodes if len(nodes) > 2 else nodes[:1]):
        other = nodes[(place + 1) % len(nodes)]
        turn = 2 if place + 1 == len(nodes) and place % 2 == 0 else place % 2
        if own in (node, other) and node != other:
            pairs.append((turn, [node, other]))
    return [pair for _, pair in sorted(pairs)]


class Process:
    """A function that runs in a process of its own. What it returns comes through a pipe, as JSON."""

    def __init__(self, function: "Callable[[], Any]") -> None:
        self.pipe, write = os.pipe()
        self.data = b""
        self.pid = os.fork()
        if self.pid == 0:
            try:
                answer = [function()]
            except BaseException as error:
                traceback.print_exc()
                answer = [None, str(error).partition("\n")[0][:MAX_TEXT] or type(error).__name__]
            os.write(write, json.dumps(answer).encode())
            os._exit(0)
        os.close(write)

    def read(self) -> bool:
        """Read what has come; return whether more may follow."""
        data = os.read(self.pipe, 65536)
        self.data += data
        return bool(data)

    def kill(self) -> None:
        """End it, if that has not happened."""
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.close(self.pipe)
        end = time.monotonic() + KILL_WAIT
        while os.waitpid(self.pid, os.WNOHANG) == (0, 0) and time.monotonic() < end:
            time.sleep(0.01)


def wait(processes: "List[Process]", seconds: float) -> "List[Answer]":
    """What processes have returned at most so many seconds later. They are ended then."""
    running, end = {process.pipe: process for process in processes}, time.monotonic() + seconds
    while running:
        ready, _, _ = select.select(list(running), [], [], max(0.0, end - time.monotonic()))
        if not ready:
            break
        for pipe in ready:
            if not running[pipe].read():
                del running[pipe]
    answers = []
    for process in processes:
        is_late = process.pipe in running
        process.kill()
        if process.data and not is_late:
            answers.append(json.loads(process.data.decode()))
        else:
            answers.append([None, "no end after %d s" % seconds if is_late else "its process was killed"])
    return answers


class Meter:
    """The measurements on a node. problems: [measurement, error] of those without a figure."""

    def __init__(self, torch: "Any", request: "Request", seconds: float) -> None:
        self.torch = torch
        self.request = request
        self.seconds = seconds
        self.has_gpus = any(request["gpus"])
        self.rows, self.copied, self.reduced = ON_GPU if self.has_gpus else ON_CPU
        self.problems: "List[List[str]]" = []

    def require(self, name: str, answers: "List[Answer]") -> "List[Any]":
        """Figures, with MISSING for an error, which is noted. name: of the measurement. answers: of GPUs."""
        for number, (_, *error) in enumerate(answers):
            if error:
                place = "GPU %d: " % number if self.has_gpus and len(answers) > 1 else ""
                self.problems.append([name, place + error[0]])
        figures = [answer[0] if len(answer) == 1 else MISSING for answer in answers]
        return [float("%.4g" % figure) for figure in figures]

    def on_each_gpu(self, measure: "Measure", share: float) -> "List[Answer]":
        """Measure on all GPUs of this node at once. measure: takes a GPU's number and seconds."""
        seconds = self.seconds * share
        numbers = range(self._count(self.request["rank"]))
        return wait(
            [Process(functools.partial(measure, number, seconds)) for number in numbers], seconds + MARGIN
        )

    def reduce(self, nodes: "Sequence[int]") -> "Answer":
        """The bandwidth of an all-reduce over the GPUs of some nodes, in GB/s; 0 for one GPU."""
        own, size = self.request["rank"], sum(map(self._count, nodes))
        if size == 1:
            return [0]
        first = sum(map(self._count, nodes[: nodes.index(own)]))
        name = "%d-%d-%d" % (nodes[0], nodes[-1], len(nodes))
        answers = self.on_each_gpu(functools.partial(self._all_reduce, name, first, size), REDUCE)
        return next((answer for answer in answers if len(answer) > 1), answers[0])

    def reduce_all(self, nodes: "Sequence[int]") -> "Dict[str, float]":
        """The bandwidth within this node, with another one, and of more than two nodes over all of them."""
        own = self.request["rank"]
        within = self.reduce([own])
        pairs = [self.reduce(pair) for pair in pairs_of(own, nodes)]
        # The error of a pair may be that of the other node, unless both pairs have one.
        good = [answer for answer in pairs if len(answer) == 1]
        over_all = [self.reduce(nodes)] if len(nodes) > 2 else []
        return {
            "within": self.require(IN_NODE, [within])[0],
            "pairs": max(self.require(IN_PAIR, good or pairs[:1]), default=0),
            "all": max(self.require(OVER_ALL, over_all), default=0),
        }

    def _count(self, rank: int) -> int:
        """The processes of a node."""
        count: int = self.request["gpus"][rank]
        return count or 1

    # -- in processes of their own -----------------------------------------------------------------------

    def meet(self, place: int, count: int) -> int:
        """Wait until all nodes have come so far."""
        store = open_store(self.torch, self.request)
        store.set("node-%d" % place, "")
        store.wait(["node-%d" % number for number in range(count)], datetime.timedelta(seconds=MEETING))
        return 0

    def multiply(self, number: int, seconds: float) -> "List[Any]":
        """[name of the GPU, TFLOP/s of products of random matrices]. ValueError for a wrong product."""
        torch, device, half = self.torch, self._device(number), self._half()
        one = torch.ones(1, 1, dtype=half, device=device)
        while len(one) < self.rows:  # a Hadamard matrix: times itself, it is the identity times its rows
            one = torch.cat((torch.cat((one, one), 1), torch.cat((one, -one), 1)))
        wanted = torch.eye(self.rows, device=device).to(half) * (self.rows * BATCH)
        left, right = (torch.randn(self.rows, self.rows, device=device).to(half) for _ in range(2))
        out = torch.empty_like(wanted)
        done, spent = -1, 0.0  # the first batch is slow
        end = time.monotonic() + seconds
        while done < 1 or time.monotonic() < end:
            out.zero_()
            for _ in range(BATCH):
                out.addmm_(one, one)
            wrong = int((out != wanted).sum())
            if wrong:
                raise ValueError("wrong result: %d of %d numbers" % (wrong, self.rows**2))
            took = self._time(lambda: [torch.mm(left, right, out=out) for _ in range(BATCH)])
            done += 1
            spent += took if done else 0
        name = torch.cuda.get_device_name(number) if self.has_gpus else "CPU"
        return [name, 2.0 * self.rows**3 * BATCH * done / spent / 1e12]

    def copy(self, number: int, seconds: float) -> float:
        """The bandwidth of a GPU's memory, read and written, in GB/s."""
        torch, device = self.torch, self._device(number)
        source = torch.ones(self.copied // 4, device=device)
        target = torch.empty_like(source)
        self._time(lambda: target.copy_(source))
        done, spent = 0, 0.0
        end = time.monotonic() + seconds
        while not done or time.monotonic() < end:
            spent += self._time(lambda: target.copy_(source))
            done += 1
        return 2.0 * self.copied * done / spent / 1e9

    def _all_reduce(self, name: str, first: int, size: int, number: int, seconds: float) -> float:
        """name: of this all-reduce. first: rank of this node's GPU 0. ValueError for a wrong sum."""
        torch, device = self.torch, self._device(number)
        dist = torch.distributed
        dist.init_process_group(
            "nccl" if self.has_gpus else "gloo",
            store=dist.PrefixStore(name, open_store(torch, self.request)),
            rank=first + number,
            world_size=size,
            timeout=datetime.timedelta(seconds=MARGIN),
        )
        data = torch.ones(self.reduced // 4, device=device)
        dist.all_reduce(data)
        wrong = int((data != size).sum())
        if wrong:
            raise ValueError("wrong sum: %d of %d numbers" % (wrong, len(data)))
        data.zero_()
        took = torch.tensor([self._time(lambda: dist.all_reduce(data))], device=device)
        dist.all_reduce(took, op=dist.ReduceOp.MAX)  # all take as many turns
        turns = max(1, min(MAX_TURNS, int(seconds / max(float(took), 1e-6))))
        spent = self._time(lambda: [dist.all_reduce(data) for _ in range(turns)])
        return 2.0 * (size - 1) / size * self.reduced * turns / spent / 1e9

    def _device(self, number: int) -> str:
        if not self.has_gpus:
            return "cpu"
        self.torch.cuda.set_device(number)
        return "cuda:%d" % number

    def _half(self) -> "Any":
        """bfloat16, or float16 where the GPU has none."""
        is_old = self.has_gpus and self.torch.cuda.get_device_capability() < (8, 0)
        return self.torch.float16 if is_old else self.torch.bfloat16

    def _time(self, work: "Callable[[], Any]") -> float:
        """Seconds that it takes."""
        self._wait_for_gpu()
        begin = time.perf_counter()
        work()
        self._wait_for_gpu()
        return time.perf_counter() - begin

    def _wait_for_gpu(self) -> None:
        if self.has_gpus:
            self.torch.cuda.synchronize()
