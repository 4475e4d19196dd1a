"""Measures how long `slurmray --help` and `slurmray render` take, compared with what they cannot do without.

usage: python -m bench.start [--repeat 20]
Run it from the checkout, on an idle machine, with the Python in whose environment slurmray is installed. Ways
take turns. The ratios are to the way above: Python alone, and the libraries that `render` imports.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from statistics import median

SLURMRAY = str(Path(sys.executable).with_name("slurmray"))
# With a model, as pydantic imports most of its modules for the first one.
_LIBRARIES = "import click, jinja2.sandbox, yaml, pydantic\nclass Model(pydantic.BaseModel): name: str"
# Way -> its command, and the way to which it is compared.
WAYS = {
    "python -c pass": ([sys.executable, "-c", "pass"], ""),
    "slurmray --help": ([SLURMRAY, "--help"], "python -c pass"),
    "imports of render": ([sys.executable, "-c", _LIBRARIES], ""),
    "slurmray render": ([SLURMRAY, "render", "--nodes=2", "-o-"], "imports of render"),
}


def measure(argv: list[str]) -> tuple[float, float]:
    """Run a command, whose output is dropped; return seconds and CPU seconds."""
    # Modules are compiled once, as for a user.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    null = [(os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_RDWR, 0) for descriptor in range(3)]
    start = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, env, file_actions=null)
    _, status, usage = os.wait4(pid, 0)
    seconds = time.perf_counter() - start
    if status:
        raise SystemExit(f"{' '.join(argv)}: exit code {os.waitstatus_to_exitcode(status)}")
    return seconds, usage.ru_utime + usage.ru_stime


def main() -> None:
    """Measure all ways in turn and print a table of medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=20)
    repeat = parser.parse_args().repeat
    runs: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for number in range(repeat + 1):
        for way, (argv, _) in WAYS.items():
            run = measure(argv)
            if number:  # the first one may compile modules
                runs[way].append(run)
    medians = {way: [median(values) for values in zip(*runs[way], strict=True)] for way in WAYS}
    print("| way | ms | CPU ms |\n|---|---|---|")
    for way, (_, reference) in WAYS.items():
        pairs = zip(medians[way], medians[reference or way], strict=True)
        cells = [f"{own * 1000:.0f}" + (f" ({own / base:.2f})" if reference else "") for own, base in pairs]
        print(f"| `{way}` | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
