# ruff: noqa: E501 - one line for one mistake
import contextlib
import io
import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from slurmray.errors import ExitCode, SpecError, UsageError
from slurmray.loading.load import STDIN, load_plan
from slurmray.rendering.script import render_script
from slurmray.spec.job_spec import JobSpec
from tests.plans import plan_of

pytestmark = pytest.mark.usefixtures("current_folder")


def load(text: str | bytes, *settings: tuple[str, str], entrypoint: tuple[str, ...] = ()) -> JobSpec:
    raw = text if isinstance(text, bytes) else text.encode()
    Path("job.yaml").write_bytes(raw)
    return load_plan(Path("job.yaml"), settings, entrypoint).spec


def mistakes(text: str | bytes, *settings: tuple[str, str], entrypoint: tuple[str, ...] = ()) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load(text, *settings, entrypoint=entrypoint)
    assert caught.value.exit_code == ExitCode.USAGE
    return str(caught.value).split("\n")


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "slurm:\ncontainer: ~\nrun: null\n", "\ufeff"])
def test_an_empty_file_gives_all_defaults(text: str) -> None:
    assert load(text) == JobSpec() == load_plan(None).spec


def test_a_scalar_keeps_its_text() -> None:
    job = load(
        """
        slurm: {time: 12:00:00, mem: 0, comment: 0.10, nodes: 3}
        env:
          on: true
          off: 1e-6
          A: 007
          B: 0x1F
          C: "null"
          D: 2026-11-20
          E: Null
          F: ""
          G: null
          H: ~
          I:
          J: !!str null
          null: x
        run: [1e-6, yes, 0.10, -1, null_]
        """
    )
    assert dict(job.slurm.given()) == {"time": "12:00:00", "mem": "0", "comment": "0.10", "nodes": "3"}
    texts = ["true", "1e-6", "007", "0x1F", "null", "2026-11-20", "Null", ""]
    assert list(job.env.values()) == [*texts, None, None, None, "null", "x"]
    assert list(job.env)[:2] == ["on", "off"]
    assert job.run == ["1e-6", "yes", "0.10", "-1", "null_"]


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.times() | st.booleans())
def test_any_number_keeps_its_text(value: object) -> None:
    assert load_plan(None, [("env.A", str(value))]).spec.env == {"A": str(value)}
    assert load(f"env: {{A: {value}}}").env == {"A": str(value)}


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")).filter(
        lambda text: text != "..."
    )
)
def test_the_value_of_env_is_never_yaml(value: str) -> None:
    assert load_plan(None, [("--env", f"A={value}")]).spec.env == {"A": value}


def test_a_block_of_bash() -> None:
    assert load("run: |\n  set -e\n  python train.py\n").run == "set -e\npython train.py\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # names
        ("slurm:\n  gpus_per_nod: 8\n", "2:3: slurm.gpus_per_nod: unknown field, did you mean gpus_per_node?"),
        ("slurm: {gpus-per-node: 8}", "1:9: slurm.gpus-per-node: unknown field, did you mean gpus_per_node?"),
        ("trainer: x", "1:1: trainer: unknown field, did you mean run?"),
        ("ray: {num_gpus: 8}", "1:7: ray.num_gpus: unknown field, did you mean slurm.gpus_per_node?"),
        ("requeue: 2", "1:10: requeue: expected `name: value` pairs, got '2', e.g. requeue: {max: 2}"),
        ("container: {mounts: /data}", "1:21: container.mounts: expected a list, got '/data', e.g. mounts: [/data, /scratch/me:/work]"),
        ("prepare: [python3 get.py]", "1:11: prepare, item 1: expected `name: value` pairs, got 'python3 get.py', e.g. prepare: [{name: data, run: python3 get.py}]"),
        ("ray: {version: 2.52.1}", "1:7: ray.version: unknown field; Ray is that of the image, container.image"),
        ("ray: {address: auto}", "1:7: ray.address: unknown field; the job starts a Ray cluster of its own, so leave it out"),
        ("pip: [numpy]", "1:1: pip: unknown field, did you mean ray.runtime_env?"),
        ("working_dir: .", "1:1: working_dir: unknown field, did you mean container.workdir?"),
        ("container: {shm: 64g}", "1:13: container.shm: unknown field, did you mean container.shm_size?"),
        ("container: my/image:1", "1:12: container: expected `name: value` pairs, got 'my/image:1', e.g. container: {image: my/image:1}"),
        ("slurm: {partition: [gpu, cpu]}", "1:20: slurm.partition: expected text, got a list, e.g. partition: gpu,cpu"),
        ("setup: [module load cuda]", "1:8: setup: expected text, got a list, e.g. setup: module load cuda && . venv/bin/activate"),
        ("env: [A=1]", "1:6: env: expected `name: value` pairs, got a list, e.g. env: {NCCL_DEBUG: INFO}"),
        ("watch: true", "1:8: watch: expected `name: value` pairs, got 'true', e.g. watch: {stall: 30m}"),
        ("command: [x]", "1:1: command: unknown field, did you mean run?"),
        ("modules: [cuda]", "1:1: modules: unknown field, did you mean setup: module load NAME?"),
        ("runtime: docker", "1:1: runtime: unknown field, did you mean container.runtime?"),
        ("slurm: {num_nodes: 2}", "1:9: slurm.num_nodes: unknown field, did you mean slurm.nodes?"),
        ("container: {volumes: [/a]}", "1:13: container.volumes: unknown field, did you mean container.mounts?"),
        ("slurm: {container_image: x}", "1:9: slurm.container_image: unknown field, did you mean container.image?"),
        ("nodes: 2", "1:1: nodes: unknown field, did you mean slurm.nodes?"),
        ("contaner: {}", "1:1: contaner: unknown field, did you mean container?"),
        ("slurm: {xyzzy: 1}", "1:9: slurm.xyzzy: unknown field; if your Slurm has this option, put --xyzzy=VALUE into slurm.extra"),
        ("stop: {x: 1}", "1:8: stop.x: unknown field; known here: lead, signal, grace"),
        ("x: ~", "1:1: x: unknown field; known here: name, preset, slurm, setup, run_dir, template, container, env, env_file, node_env, network, ray, checks, preflight, prepare, services, run, sweep, launch, stop, spares, restart, on_node_loss, heartbeat_timeout, requeue, watch, notify, sync, include"),
        ("services: [{name: a, run: b, ready: {htp: c}}]", "1:38: services, item 1, ready.htp: unknown field, did you mean http?"),
        ("prepare: [{name: a, run: b}, {nam: c, run: d}]", "1:31: prepare, item 2, nam: unknown field, did you mean name?"),
        ("prepare: [{name: a}]", "1:11: prepare, item 1, run: is required"),
        ("slurm: {ntasks: 3}", "1:9: slurm.ntasks: slurmray starts one task on each node; leave it out"),
        ("slurm: {open_mode: x}", "1:9: slurm.open_mode: slurmray sets it; leave it out"),
        ("slurm: {signal: x}", "1:9: slurm.signal: use stop.signal and stop.lead"),
        ("a: 1\na: 2", "2:1: a: set twice, first in line 1; keep one"),
        ("env:\n  A: 1\n  A: 2", "3:3: env.A: set twice, first in line 2; keep one"),
        ("env: {A-B: 1}", "1:7: env.A-B: not a valid name of a variable; use letters, digits and _, and no digit first"),
        ("? [a]\n: 1", "1:3: a name must be text; quote it if it begins with [ or {"),
        # types
        ("watch: {interval: 3}", "1:19: watch.interval: 3 s would cost more than it shows; use at least 5, or 0 for none"),
        ("watch: {stall: soon}", "1:16: watch.stall: expected seconds, or a time such as 30m or 2h, got 'soon'"),
        ("watch: {interval: 0, action: end}", "1:8: watch: action: end needs stall, and interval or progress; set them"),
        ("slurm: {nodes: two}", "1:16: slurm.nodes: expected an integer, got 'two'"),
        ("slurm: {nodes: 0}", "1:16: slurm.nodes: expected 1 or more, got '0'"),
        ("slurm: {nodes: 100000000}", "1:16: slurm.nodes: expected 65536 or less, got '100000000'"),
        (f"slurm: {{gpus_per_node: {'9' * 5000}}}", "1:24: slurm.gpus_per_node: no node has so many GPUs; write a number of at most 9 digits"),
        (f"slurm: {{gres: gpu:{'9' * 5000}}}", "1:15: slurm.gres: no node has so many GPUs; write a number of at most 9 digits"),
        ("container: {image: a, build: {file: ~nosuchuser/x}}", "1:37: container.build.file: ~nosuchuser/x: no such home folder here; write the path without ~"),
        ('include: "a\\0b"', "1:10: include: 'a\\x00b': a NUL character cannot be passed to a program; leave it out"),
        ('include: [a.yaml, "a\\nb"]', "1:19: include: 'a\\nb': has a newline; write it on one line"),
        (f"include: {'x' * 256}", f"1:10: include: '{'x' * 57}...': has 256 bytes, and a path has at most 4095, and each name in it at most 255; shorten it"),
        (f"include: {'x' * 255}", f"1:10: include: {'x' * 255} is not a file; correct the path"),
        (f"include: {'x/' * 2048}", f"1:10: include: '{'x/' * 28}x...': has 4096 bytes, and a path has at most 4095, and each name in it at most 255; shorten it"),
        ("ray: {temp_dir: \"/tmp\\n\"}", "1:17: ray.temp_dir: has a newline; write it on one line"),
        ("container: {workdir: \"/a\\n\"}", "1:22: container.workdir: has a newline; write it on one line"),
        ("name: \"a\\x1b[31mX\"", "1:7: name: 'a\\x1b[31mX' has the invisible character '\\x1b'; leave it out"),
        ("restart: {max: 999999999999}", "1:16: restart.max: expected 100000000 or less, got '999999999999'"),
        (f"container: {{image: a, build: {{file: {'x' * 300}}}}}", f"1:37: container.build.file: '{'x' * 57}...': cannot be read: File name too long"),
        ("slurm: {nodes: -1}", "1:16: slurm.nodes: expected 1 or more, got '-1'"),
        ("slurm: {nodes: 2-4}", "1:16: slurm.nodes: expected one number, because scripts are for a fixed number of nodes, got '2-4'"),
        ("slurm: {hold: maybe}", "1:15: slurm.hold: expected true or false, got 'maybe'"),
        ("slurm: {mem: [1]}", "1:14: slurm.mem: expected text, got a list"),
        ("slurm: [nodes]", "1:8: slurm: expected `name: value` pairs, got a list, e.g. slurm: {nodes: 2}"),
        ("container: {args: --rm}", "1:19: container.args: expected a list, got '--rm'"),
        ("container: {args: [a, {b: c}]}", "1:23: container.args, item 2: expected text, got a mapping"),
        ("container: {args: [~]}", "1:20: container.args, item 1: expected text, got null"),
        ("ray: {start: slow}", "1:14: ray.start: expected fast or standard, got 'slow'"),
        ("container: {args: [--init, --entrypoint=sh]}", "1:28: container.args, item 2: --entrypoint: slurmray starts and ends the container; leave it out"),
        ("container: {args: [-it, -itd]}", "1:25: container.args, item 2: -itd: slurmray starts and ends the container; leave it out"),
        ("container: {runtime: podman, args: [a, --ipc=host]}", "1:36: container.args: --ipc=host: leave it out; the container's /dev/shm is as large as the node's anyway, see container.shm_size"),
        ("container: {args: [--ipc, none]}", "1:19: container.args: --ipc none: leave it out; the container's /dev/shm is as large as the node's anyway, see container.shm_size"),
        ("container: {runtime: docker, args: [--shm-size=1g]}", "1:36: container.args: --shm-size: use container.shm_size"),
        ("container: {shm_size: 2g, args: [a, --shm-size, 1g]}", "1:33: container.args: --shm-size: use container.shm_size"),
        ("container: {runtime: none, step_args: [-n4]}", "1:40: container.step_args, item 1: -n: slurmray sets it; leave it out"),
        ("container: {runtime: none, step_args: [-x, --nodes=3]}", "1:44: container.step_args, item 2: --nodes: slurmray sets it; leave it out"),
        (
            "container: {runtime: apptainer, pull: always}",
            "1:12: container: pull: Apptainer keeps converted images, so use another tag instead of always",
        ),
        (
            'container: {runtime: apptainer, mounts: ["/a:/b:rslave"]}',
            "1:12: container: mounts: Apptainer has no bind propagation, only ro and rw",
        ),
        (
            "container: {runtime: none}\nservices: [{name: a, run: b, image: c}]",
            "2:11: services: a: image needs runtime podman, docker or pyxis; leave it out",
        ),
        (
            "services: [{name: a, run: b, gpus: 9}]\nslurm: {gpus_per_node: 8}",
            "1:11: services: they use a 9 = 9 GPUs, a node has 8: give them fewer, or request more with slurm.gpus_per_node",
        ),
        ("gpus: 8", "1:1: gpus: slurmray counts GPUs by node: use slurm.gpus_per_node, or --gpus-per-node"),
        ("container: {runtime: dokcer}", "1:22: container.runtime: expected auto, docker, podman, apptainer, singularity, pyxis or none, got 'dokcer'"),
        ("container: {build: {}}", "1:20: container.build.file: is required"),
        ("run: {a: b}", "1:6: run: expected a list of arguments or a text for bash, got a mapping"),
        ("run: [a, [b]]", "1:6: run: item 2: expected text, got a list"),
        ("- a", "1:1: expected `name: value` lines, e.g. `name: my-job`"),
        ("hello", "1:1: expected `name: value` lines, e.g. `name: my-job`"),
        # values
        ('slurm: {comment: "a\\nb"}', "1:18: slurm.comment: has a newline; write it on one line"),
        ('name: "a\\0b"', "1:7: name: a NUL character cannot be passed to a program; leave it out"),
        ('env: {A: "\\0"}', "1:10: env.A: a NUL character cannot be passed to a program; leave it out"),
        ("slurm: {time: 24h}", "1:15: slurm.time: expected a time, e.g. 1-00:00:00, 12:00:00 or minutes, got '24h'"),
        ("slurm: {mem: 200 G}", "1:14: slurm.mem: expected whole MB, or a number with K, M, G or T, e.g. 200G, got '200 G'"),
        ("slurm: {mem_per_gpu: 1.5T}", "1:22: slurm.mem_per_gpu: expected whole MB, or a number with K, M, G or T, e.g. 200G, got '1.5T'"),
        ("slurm: {mem: 1G, mem_per_gpu: 1G}", "1:8: slurm: mem and mem_per_gpu exclude each other; use one of them"),
        ("slurm: {cpus_per_gpu: 1, cpus_per_task: 1}", "1:8: slurm: cpus_per_task and cpus_per_gpu exclude each other; use one of them"),
        ("slurm: {exclusive: no}", "1:20: slurm.exclusive: expected true, false, user, mcs or topo, got 'no'"),
        ("slurm: {gpus_per_node: 'gpu:8'}", "1:24: slurm.gpus_per_node: expected a number, e.g. 8, or a type and a number, e.g. h100:8, got 'gpu:8'"),
        ("slurm: {gres: 'gres:gpu:8'}", "1:15: slurm.gres: expected e.g. gpu:8, without `gres:`, got 'gres:gpu:8'"),
        ("container: {image: /x/ray.sif}", "1:12: container: image: a file or folder needs runtime apptainer, singularity or pyxis"),
        ("container: {image: 'docker://a/b'}", "1:12: container: image: only apptainer and singularity know docker:// and the like: write only the image's name"),
        ("container: {image: 'nvcr.io/Org/a:b'}", "1:12: container: image: names of images have small letters only, but for the tag"),
        ("container: {image: 'nvcr.io#a/b'}", "1:12: container: image: REGISTRY#IMAGE is for pyxis: write REGISTRY/IMAGE"),
        ("container: {runtime: apptainer, image: 'nvcr.io#a/b'}", "1:12: container: image: REGISTRY#IMAGE is for pyxis: write REGISTRY/IMAGE"),
        ("container: {runtime: pyxis, image: images/ray.sqsh}", "1:12: container: image: begin a path with / or ./"),
        ("container: {runtime: pyxis, image: ray.sif}", "1:12: container: image: a .sif file needs runtime apptainer or singularity"),
        ("container: {shm_size: 64}", "1:23: container.shm_size: 64 means bytes: add a unit, e.g. 64g"),
        ("slurm: {time: ''}", "1:15: slurm.time: is empty; set a value or leave it out"),
        ("ray: {temp_dir: /aaaaaaaaaaaaaaaaaa}", "1:17: ray.temp_dir: has 19 characters; use at most 18, because Ray's sockets are below it"),
        ("ray: {port: 80}", "1:13: ray.port: expected auto or a port from 1024 to 65535, got 80"),
        ("ray: {args: [--head]}", "1:14: ray.args, item 1: --head: slurmray sets it; leave it out"),
        ("stop: {lead: 65536}", "1:14: stop.lead: expected 65535 or less, got '65536'"),
        ("slurm: {extra: [--mem=1X]}", "1:17: slurm.extra, item 1: expected whole MB, or a number with K, M, G or T, e.g. 200G, got '1X'"),
        ("slurm: {extra: [--nodes=3]}", "1:17: slurm.extra, item 1: --nodes: use slurm.nodes"),
        ("slurm: {gpus_per_node: 8, gres: gpu:8}", "1:8: slurm: gpus_per_node and gres both request GPUs; use one of them"),
        # syntax
        ("a:\n\tb: 1", "2:1: a tab; indent with spaces"),
        ("slurm:\n  nodes:2\n  time: 1h", "2:9: a space is missing after the colon"),
        ("image: a\n  b: c", "2:4: unexpected colon: correct the indentation, or quote the value"),
        ("a: b: c", "1:5: unexpected colon: correct the indentation, or quote the value"),
        ("a: 'x\nb: 2\n", "1:4: this quote is not closed; close it"),
        ("a: [1, 2\n", "2:1: a bracket before this is not closed; close it"),
        ("a: *.py", "1:5: quote a value that begins with * or &"),
        ("a: @x", "1:4: quote a value that begins with '@'"),
        ("a:\n  - b\n c: d", "3:2: the indentation does not match the lines above; correct it"),
        ("a: 1\n---\nb: 2", "2:1: a second document (---); a job spec is one document"),
        ("name: *x", "1:7: *x: there is no &x above it; correct the name, or quote the value"),
        ("run: &x [a, *x]", "1:6: an alias is inside the value that it stands for; write it out"),
        ("env: &x {<<: *x}", "1:6: an alias is inside the value that it stands for; write it out"),
        ("env: {<<: [x]}", "1:12: <<: expected `name: value` pairs, or a list of them"),
        ("name: !!int 3", "1:7: the tag !!int is not supported; leave it out"),
        ("name: !x y", "1:7: the tag !x is not supported; leave it out"),
        ("a: \x01", "1:4: the control character '\\x01'; leave it out, or escape it in quotes"),
        ("[" * 5000, "1:1: nested too deeply; use fewer levels"),
        (b"a: 1\nb: \xff", "2:4: not UTF-8; save the file as UTF-8"),
        ("name: x".encode("utf-16"), "1:1: not UTF-8; save the file as UTF-8"),
        (b"a: 1\nb: x\0", "2:5: a NUL character; use a text file"),
    ],
)  # fmt: skip
def test_mistakes(text: str | bytes, expected: str) -> None:
    # In some texts the unknown field `a` is a second mistake.
    assert f"job.yaml:{expected}" in mistakes(text)


@pytest.mark.parametrize(
    ("runtime", "field", "fix"),
    [
        ("none", "shm_size: 1g", "leave it out"),
        ("apptainer", "user: image", "leave it out"),
        ("singularity", "user: image", "leave it out"),
        ("pyxis", "archive: a.tar", "leave it out"),
        ("pyxis", "args: [-x]", "use step_args"),
        ("auto", "step_args: [-x]", "use args"),
        ("auto", "command: x", "set runtime to podman, docker, apptainer or singularity"),
    ],
)
def test_fields_that_a_runtime_has_not(runtime: str, field: str, fix: str) -> None:
    name, _, value = field.partition(": ")
    text = f"container: {{{field}, runtime: {runtime}}}"
    place = f"job.yaml:1:{text.index(value) + 1}: container.{name}"
    assert f"{place}: not supported with runtime {runtime}: {fix}" in mistakes(text)


@pytest.mark.attack("a file that is no job spec", inputs=2)
@pytest.mark.parametrize("is_included", [True, False])
def test_a_file_that_is_no_job_spec(is_included: bool, tmp_path: Path) -> None:
    """The known fields are there once, and after three unknown ones nothing else of the file is of interest."""
    text = "".join(f"key{number}: x\n" for number in range(30))
    known = f"unknown field; known here: {', '.join(JobSpec.model_fields)}"
    if is_included:
        (tmp_path / "other.yaml").write_text(text)
        lines, name = mistakes(f"include: {tmp_path}/other.yaml\nalpha: 1\n"), f"{tmp_path}/other.yaml"
    else:
        lines, name = mistakes(text), "job.yaml"
    assert lines.count(f"{name}: is no job spec; `slurmray init` can write one") == 1
    own = [line for line in lines if line.startswith(name)]
    texts = ["key0: unknown field", "key1: unknown field", "key2: unknown field"]
    assert own == [
        *(f"{name}:{line}:1: {text}" for line, text in enumerate([f"key0: {known}", *texts[1:]], start=1)),
        f"{name}: is no job spec; `slurmray init` can write one",
    ]
    assert [line for line in lines if line not in own] == ["job.yaml:2:1: alpha: unknown field"] * is_included


def test_three_unknown_fields_are_mistakes_of_a_job_spec() -> None:
    """So are more of them in a section, and those that are probably known ones."""
    lines = mistakes("a1: x\nb1: x\nc1: x\nstop: {x: 1, y: 1, z: 1, p: 1}\nimage: x\n")
    assert [line.partition("; ")[0] for line in lines] == [
        "job.yaml:1:1: a1: unknown field",
        "job.yaml:2:1: b1: unknown field",
        "job.yaml:3:1: c1: unknown field",
        *(
            f"job.yaml:4:{at}: stop.{name}: unknown field"
            for name, at in zip("xyzp", (8, 14, 20, 26), strict=True)
        ),
        "job.yaml:5:1: image: unknown field, did you mean container.image?",
    ]
    assert [line for line in lines if "known here" in line] == [lines[0], lines[3]]


def test_all_mistakes_at_once_in_the_order_of_the_file() -> None:
    lines = mistakes(
        "stop: {grace: x}\nslurm:\n  nodes: 0\n  mem: []\nname: [x]\nslurm: {}\n",
        ("--gpus-per-node", "many"),
        ("container.shm_size", "big"),
    )
    places = ["job.yaml:1:15", "job.yaml:3:10", "job.yaml:4:8", "job.yaml:5:7", "job.yaml:6:1"]
    assert [line.split(": ")[0] for line in lines[:5]] == sorted(places)
    assert lines[5:] == [
        "--gpus-per-node: expected a number, e.g. 8, or a type and a number, e.g. h100:8, got 'many'",
        "--set container.shm_size: expected a number with b, k, m or g, e.g. 64g, got 'big'",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("slurm: {extra: [--wrap=x, --z=b, time]}", ["1:17: slurm.extra, item 1: --wrap: ", "1:34: slurm.extra, item 3: expected one"]),
        ("slurm: {extra: [--x, --x, --y, --y]}", ["1:8: slurm: --x is set twice; ", "1:8: slurm: --y is set twice; "]),
        ("ray: {head_args: [--head, --a, --port=1]}", ["1:19: ray.head_args, item 1: --head: ", "1:32: ray.head_args, item 3: --port: "]),
        ("container: {ulimits: [a, core=0, b]}", ["1:23: container.ulimits, item 1: expected", "1:34: container.ulimits, item 3: expected"]),
        ("container: {mounts: [a:b, c, d:e]}", ["1:22: container.mounts, item 1: expected", "1:30: container.mounts, item 3: expected"]),
        ('container: {mounts: ["a:/b:x,ro,y"]}', ["1:22: container.mounts, item 1: unknown mount option 'x' and 'y'; known"]),
        ("container: {mounts: [a:/x, b:/x, c:/y, d:/y]}", ["1:12: container: two mounts have the destination /x", "1:12: container: two mounts have the destination /y"]),
        ("run: [a, [b], c, {d: e}]", ["1:6: run: item 2: expected text, got a list", "1:6: run: item 4: expected text, got a mapping"]),
        ("prepare: [{name: a, run: [[b], c, [d]]}]", ["1:26: prepare, item 1, run: item 1: ", "1:26: prepare, item 1, run: item 3: "]),
        ("env: {NNODES: 1, A: 2, NODE_RANK: 3}", ["1:6: env: NNODES is set", "1:6: env: NODE_RANK is set"]),
        ("launch: ray-job\nray: {runtime_env: {env_vars: {A: ~, B: [c]}, pip: {pip_check: x}}}", [f"2:20: ray.runtime_env: {text}" for text in ("env_vars: A: ", "env_vars: B: ", "pip_check: ")]),
        ("services: [{name: a, run: b}, {name: c, run: d}, {name: a, run: e}, {name: c, run: f}]", ["1:11: services: two are called a", "1:11: services: two are called c"]),
        ("services: [{name: a, run: b, image: ./x.sqsh}]", ["1:11: services: a: image: a file or folder needs runtime apptainer, singul"]),
        ("container: {runtime: none}\nservices: [{name: a, run: b, image: c}, {name: d, run: e, image: f}]", ["2:11: services: a: image ne", "2:11: services: d: image ne"]),
        ("services: [{name: a, run: b, image: c, host: true, gpus: 1}]", ["1:12: services, item 1: image and host", "1:12: services, item 1: gpus need a container"]),
        ("services: [{name: a, run: b, ready: {post: x}}]", ["1:37: services, item 1, ready: expected one of", "1:37: services, item 1, ready: post needs"]),
        ("container: {build: {file: /dev/null}, archive: a}", ["1:12: container: build and archive", "1:12: container: build needs a name", "1:27: container.build.file: /dev/null is not a file"]),
    ],
)  # fmt: skip
def test_each_of_several_mistakes_in_one_place_has_a_line(text: str, expected: list[str]) -> None:
    lines = mistakes(text)
    starts = [f"job.yaml:{start}" for start in expected]
    assert [line[: len(start)] for line, start in zip(lines, starts, strict=True)] == starts


def test_settings_win_over_the_file_and_the_later_over_the_earlier() -> None:
    job = load(
        "slurm: {nodes: 2, time: 2:00}\nenv: {A: 1, B: 2}\ncontainer: {mounts: [a:/a], image: x}\n",
        ("slurm.nodes", "3"),
        ("--nodes", "4"),
        ("env.B", "x y"),
        ("--env", "C"),
        ("--mount", "b:/b"),
        ("--mount", "c"),
        ("container.image", "null"),
        ("slurm.time", "12:00:00"),
        ("name", '"quoted: text"'),
    )
    assert dict(job.slurm.given()) == {"nodes": "4", "time": "12:00:00"}
    assert job.env == {"A": "1", "B": "x y", "C": None}
    assert [mount.source for mount in job.container.mounts] == ["a", "b", "c"]
    assert job.container.image == JobSpec().container.image
    assert job.name == "quoted: text"


def write(files: dict[str, str]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)


def test_included_job_specs() -> None:
    write(
        {
            "site/site.yaml": "include: more.yaml\nslurm: {partition: p, account: a, time: 1:00}\ncontainer: {mounts: [a:/a]}\n",
            "site/more.yaml": "slurm: {account: x, mem: 3G}\nenv: {A: more, B: more}\n",
            "team.yaml": "slurm: {account: team}\nenv: {B: team}\ncontainer: {mounts: [b:/b], shm_size: 1g}\n",
        }
    )
    text = "include: [site/site.yaml, team.yaml]\nslurm: {nodes: 2, time: 2:00}\nenv: {C: 1}\n"
    job = load(text, ("slurm.mem", "4G"))
    assert dict(job.slurm.given()) == {
        "nodes": "2",
        "partition": "p",
        "account": "team",
        "time": "2:00",
        "mem": "4G",
    }
    assert job.env == {"A": "more", "B": "team", "C": "1"}
    assert [mount.source for mount in job.container.mounts] == ["b"]
    assert job.container.shm_size == "1g"


def test_mistakes_in_included_job_specs() -> None:
    write({"a.yaml": "slurm:\n  nods: 2\nrun: [x]\nrun: [y]\n", "b.yaml": "container:\n  shm_size: big\n"})
    lines = mistakes("include: [a.yaml, b.yaml]\nenv: {NNODES: 1}\n")
    assert [line.partition(" ")[0] for line in lines] == [
        "a.yaml:2:3:",
        "job.yaml:2:6:",
        "b.yaml:2:13:",
        "a.yaml:4:1:",
    ]


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        ("no.yaml", "job.yaml:1:10: include: no.yaml is not a file; correct the path"),
        ("[ok.yaml, no.yaml]", "job.yaml:1:20: include: no.yaml is not a file; correct the path"),
        ("job.yaml", "job.yaml:1:10: include: job.yaml includes itself; leave it out"),
        ("circle.yaml", "circle.yaml:1:10: include: job.yaml includes itself; leave it out"),
        ("loop.yaml", "job.yaml:1:10: include: loop.yaml is not a file; correct the path"),
        ("{a: b}", "job.yaml:1:10: include: expected a path, or a list of paths"),
        ("~nosuchuser/x", "job.yaml:1:10: include: ~nosuchuser/x: no such home folder here"),
        ("list.yaml", "list.yaml: expected `name: value` lines, e.g. `name: my-job`"),
        ("wrong.yaml", "wrong.yaml:2:1: a bracket before this is not closed; close it"),
    ],
)
def test_what_cannot_be_included(include: str, expected: str) -> None:
    write(
        {"ok.yaml": "", "circle.yaml": "include: job.yaml\n", "list.yaml": "[a]\n", "wrong.yaml": "run: [a\n"}
    )
    Path("loop.yaml").symlink_to("loop.yaml")
    (line,) = mistakes(f"include: {include}\n")
    assert line.startswith(expected)


def test_a_file_that_two_others_include() -> None:
    write({"a.yaml": "include: c.yaml\n", "b.yaml": "include: c.yaml\n", "c.yaml": "name: c\n"})
    assert load("include: [a.yaml, b.yaml]\n").name == "c"


def test_include_is_for_files() -> None:
    with pytest.raises(SpecError, match="include: only in files"):
        JobSpec(include=["a.yaml"])


def test_anchors_and_merge_keys() -> None:
    job = load(
        """
env: &env {A: 1, B: &two 2}
prepare:
  - &step {name: a, run: &run [x, y], where: all}
  - {<<: *step, name: b, once: true}
services:
  - {name: c, run: *run, env: {<<: [{B: 3, C: *two}, *env], D: 4}}
"""
    )
    first, second = job.prepare
    assert (first.name, second.name, second.run, second.where) == ("a", "b", ["x", "y"], "all")
    assert (first.once, second.once) == (False, True)
    assert job.services[0].env == {"A": "1", "B": "3", "C": "2", "D": "4"}
    assert (job.services[0].run, job.env) == (["x", "y"], {"A": "1", "B": "2"})


def test_a_mistake_in_an_anchored_value_is_where_it_is_written() -> None:
    text = "prepare:\n- &x\n  name: a\n  run: b\n  placed: all\n- {<<: *x, name: c}\n"
    lines = mistakes(text)
    assert [line.partition(" ")[0] for line in lines] == ["job.yaml:5:3:", "job.yaml:5:3:"]


@pytest.mark.parametrize(
    "item", ["[*{0}, *{0}, *{0}, *{0}]", "{{a: *{0}, b: *{0}, c: *{0}}}", "{{<<: [*{0}, *{0}]}}"]
)
def test_aliases_that_would_fill_the_memory(item: str) -> None:
    names = [f"n{number}" for number in range(40)]
    lines = [f"{name}: &{name} {item.format(before)}" for before, name in itertools.pairwise(names)]
    (line,) = mistakes("\n".join(["n0: &n0 {x: 1}", *lines]))
    assert line == "job.yaml:1:1: more than 100000 values; use fewer aliases"


@pytest.mark.parametrize("value", ["", "~", "null"])
def test_settings_may_be_null(value: str) -> None:
    job = load_plan(None, [("slurm.partition", "gpu"), ("slurm.partition", value), ("env.A", value)]).spec
    assert (dict(job.slurm.given()).get("partition"), job.env) == (None, {"A": None})


def test_settings_that_add_to_a_list() -> None:
    job = load(
        "container: {mounts: [a:/a]}\nrun: [x]\n",
        ("container.mounts+", "b:/b"),
        ("run+", "[y, 'z z']"),
        ("run+", "4"),
        ("ray.args+", "--v=1"),
    )
    assert [mount.source for mount in job.container.mounts] == ["a", "b"]
    assert job.run == ["x", "y", "z z", "4"]
    assert job.ray.args == ["--v=1"]


@pytest.mark.parametrize(
    ("text", "name", "value", "expected"),
    [
        ("run: x", "run+", "y", "--set run+: run: expected a list, got 'x'"),
        ("", "name+", "y", "--set name+: name: expected text, got a list"),
        ("container: {mounts: [a:/a]}", "container.mounts+", "b:b", "--set container.mounts+: "),
    ],
)
def test_what_cannot_be_added(text: str, name: str, value: str, expected: str) -> None:
    (line,) = mistakes(text, (name, value))
    assert line.startswith(expected)


def test_settings_may_be_lists_and_mappings() -> None:
    job = load_plan(
        None, [("container.mounts", "[a:/a, b:/b]"), ("env", "{A: 1e-6, B: ~}"), ("run", "[x, 'y z']")]
    ).spec
    assert [mount.destination for mount in job.container.mounts] == ["/a", "/b"]
    assert (job.env, job.run) == ({"A": "1e-6", "B": None}, ["x", "y z"])


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("--nodes", "0", "--nodes: expected 1 or more, got '0'"),
        ("--mount", "a:b", "--mount a:b: expected an absolute path below / after the colon, got 'b'"),
        (
            "--env",
            "1A=x",
            "--env 1A: not a valid name of a variable; use letters, digits and _, and no digit first",
        ),
        (
            "--env",
            "=x",
            "--env : not a valid name of a variable; use letters, digits and _, and no digit first",
        ),
        ("--env", "A=...", "--env: A: replace ... by the value"),
        ("env.A", "...", "--set env.A: replace ... by the value"),
        ("slurm.node", "2", "--set slurm.node: unknown field, did you mean nodes?"),
        ("foo.bar", "2", "--set foo.bar: foo: unknown field"),
        ("name.x", "2", "--set name.x: name: expected text, got a mapping"),
        ("container.args", "[a", "--set container.args: a bracket before this is not closed; close it"),
        ("container.args", "{a: 1, a: 2}", "--set container.args: a: set twice, first in line 1; keep one"),
        ("container.args.0", "x", "--set container.args.0: container.args: expected a list, got a mapping"),
        ("container..args", "x", "--set container..args: expected the dotted path of a field"),
        ("slurm", "{gres: gpu:1, gpus_per_node: 1}", "--set slurm: gpus_per_node and gres both request"),
    ],
)
def test_mistakes_in_settings(name: str, value: str, expected: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_plan(None, [(name, value)])
    assert str(caught.value).startswith(expected)


def test_settings_where_the_file_is_wrong() -> None:
    assert mistakes("container: {mounts: x}", ("--mount", "a:/a")) == [
        "job.yaml:1:21: container.mounts: expected a list, got 'x', e.g. mounts: [/data, /scratch/me:/work]",
        "--mount: container.mounts: expected a list, got 'x'",
    ]
    assert mistakes("slurm: [x]\nname: x", ("--nodes", "2"), ("name.x", "y")) == [
        "job.yaml:1:8: slurm: expected `name: value` pairs, got a list, e.g. slurm: {nodes: 2}",
        "--nodes: slurm: expected `name: value` pairs, got a list",
        "--set name.x: name: expected `name: value` pairs, got 'x'",
    ]


def test_a_correct_setting_is_not_named() -> None:
    (line,) = mistakes("services: [{name: a, run: b, gpus: 9}]", ("--time", "1:00:00"))
    assert line.startswith("job.yaml:1:11: services: they use a 9 = 9 GPUs, a node has 0: ")


def test_trainer_command_after_the_dashes() -> None:
    argv = ("python", "-c", "print('--')", "--", "")
    assert load("name: x", entrypoint=argv).run == list(argv)
    assert load("name: x\nrun: [y]", entrypoint=argv).run == list(argv)
    assert load("", ("run", "y"), entrypoint=argv).run == list(argv)


def test_a_script_in_place_of_a_job_spec() -> None:
    start = "#!/bin/bash\n#SBATCH --nodes=2\n"
    for name, content, fix in (
        ("generated.sh", f"{start}# slurmray-sha256: {64 * '0'}\n", "to submit it: sbatch generated.sh"),
        ("my.slurm", start, "slurmray init --from my.slurm makes one from it"),
        ("no-shebang", "#SBATCH --nodes=2\n", "slurmray init --from no-shebang makes one from it"),
    ):
        Path(name).write_text(content)
        text = f"{name}: is a script, not a job spec; {fix}"
        with pytest.raises(SpecError, match=f"^{re.escape(text)}$"):
            load_plan(Path(name))


@pytest.mark.parametrize(
    ("name", "content"), [("train.py", "import ray\n"), ("train", "#!/usr/bin/env python3\n")]
)
def test_a_program_in_place_of_a_job_spec(name: str, content: str) -> None:
    Path(name).write_text(content)
    text = (
        f"{name}: is a program, not a job spec; as the trainer's command it goes after --: -- python3 {name}"
    )
    with pytest.raises(SpecError, match=f"^{re.escape(text)}$"):
        load_plan(Path(name))


def test_a_field_that_is_like_no_other_gets_no_hint() -> None:
    (line,) = mistakes("checkpoint: out")
    assert line.startswith("job.yaml:1:1: checkpoint: unknown field; known here: name, "), "not checks"


def test_the_file_itself() -> None:
    for name, text in {
        "nope.yaml": "no such file; `slurmray init` can write one",
        ".": "is a folder; use the path of the job spec in it",
        "/proc/self/mem": "cannot be read: Input/output error",
    }.items():
        with pytest.raises(SpecError) as caught:
            load_plan(Path(name))
        assert str(caught.value) == f"{name}: {text}"


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"name: x\nnme: y\n")))
    with pytest.raises(SpecError, match=r"^stdin:2:1: nme: unknown field, did you mean name\?$"):
        load_plan(STDIN)


def test_build_files_are_looked_up_where_the_job_is_submitted() -> None:
    Path("jobs").mkdir()
    text = "container:\n  image: mine\n  build: {file: Dockerfile, context: src}\n"
    Path("jobs/job.yaml").write_text(text)
    with pytest.raises(SpecError) as caught:
        load_plan(Path("jobs/job.yaml"))
    assert str(caught.value).split("\n") == [
        f"jobs/job.yaml:3:17: container.build.file: no such file: {Path.cwd()}/Dockerfile",
        f"jobs/job.yaml:3:38: container.build.context: no such folder: {Path.cwd()}/src",
    ]
    Path("Dockerfile").touch()
    Path("src").mkdir()
    assert mistakes("container: {image: mine, build: {file: src, context: Dockerfile}}") == [
        "job.yaml:1:40: container.build.file: src is a folder; set it to the file in it",
        "job.yaml:1:54: container.build.context: Dockerfile is not a folder",
    ]
    build = load_plan(Path("jobs/job.yaml")).spec.container.build
    assert build
    assert (build.file, build.context) == ("Dockerfile", "src")


def test_build_files_are_looked_up_whatever_else_is_wrong() -> None:
    missing = f"container.build.file: no such file: {Path.cwd()}/missing"
    assert mistakes("{slurm: {gpus_per_nod: 8}, container: {build: {file: missing}}}") == [
        "job.yaml:1:10: slurm.gpus_per_nod: unknown field, did you mean gpus_per_node?",
        "job.yaml:1:39: container: build needs a name for the image: set container.image",
        f"job.yaml:1:54: {missing}",
    ]
    assert mistakes("container: {image: x, build: {file: [], context: gone}}") == [
        "job.yaml:1:37: container.build.file: expected text, got a list",
        f"job.yaml:1:50: container.build.context: no such folder: {Path.cwd()}/gone",
    ]
    # Without a possible file there is only this line.
    assert mistakes("container: {build: {file: ''}}") == [
        "job.yaml:1:27: container.build.file: is empty; set a value or leave it out"
    ]
    (refused,) = mistakes("container: {runtime: none, build: {file: missing}}")
    assert refused.endswith("not supported with runtime none: leave it out")
    assert mistakes("nodes: 2", ("container.build.file", "missing"))[-1] == f"--set {missing}"


# -- more than a job spec can need -----------------------------------------------------------------


def refused(path: Path) -> list[str]:
    """The lines of the message about a job spec on the command line; it must take seconds, not minutes."""
    argv = [sys.executable, "-m", "slurmray", "render", str(path), "-o", str(path.parent / "generated.sh")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=50)
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, ""), done.stderr
    assert not (path.parent / "generated.sh").exists()
    return done.stderr.splitlines()


@pytest.mark.attack("job spec that is far too large")
def test_files_that_include_each_other_twice(tmp_path: Path) -> None:
    for level in range(22):
        (tmp_path / f"{level}.yaml").write_text(f"include: [{level + 1}.yaml, {level + 1}.yaml]\n")
    (tmp_path / "22.yaml").write_text("env: {A: b}\n")
    (line,) = refused(tmp_path / "0.yaml")
    assert "includes more than 64 files, some of them several times; include each once" in line


@pytest.mark.attack("job spec that is far too large", inputs=3)
def test_a_file_with_too_much_text(tmp_path: Path) -> None:
    expected = "the job spec and what it includes are larger than 256 KB; put data into other files"
    (tmp_path / "job.yaml").write_text(f"run: [{'x' * 300_000}]\n")
    assert refused(tmp_path / "job.yaml") == [f"{tmp_path}/job.yaml: {expected}"]
    for number in range(3):
        (tmp_path / f"{number}.yaml").write_text(f"env: {{A{number}: {'x' * 100_000}}}\n")
    (tmp_path / "job.yaml").write_text("include: [0.yaml, 1.yaml, 2.yaml]\n")
    (line,) = refused(tmp_path / "job.yaml")
    assert line.endswith(f".yaml: {expected}")
    with pytest.raises(SpecError, match=f"^/dev/zero: {expected}$"):
        load_plan(Path("/dev/zero"))


@pytest.mark.attack("job spec that is far too large", inputs=1)
def test_a_standard_input_without_end() -> None:
    limited = ["bash", "-c", 'ulimit -v 4000000; exec "$@"', "bash"]
    argv = [*limited, sys.executable, "-m", "slurmray", "render", "-", "-o", "-"]
    with Path("/dev/zero").open("rb") as zeros:
        done = subprocess.run(argv, stdin=zeros, capture_output=True, text=True, check=False, timeout=50)
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    assert done.stderr.startswith("stdin: the job spec and what it includes are larger than 256 KB")


@pytest.mark.attack("aliases that would fill the memory or the script")
@pytest.mark.parametrize("where", ["env: {{{0}}}", "prepare: [{{name: a, run: [x], env: {{{0}}}}}]"])
def test_aliases_of_a_long_text(where: str) -> None:
    pairs = ", ".join(f"A{number}: *long" for number in range(2000))
    (line,) = mistakes(f"name: &long {'x' * 100_000}\n{where.format(pairs)}\n")
    assert line == "job.yaml:1:1: more than 1000000 characters; use fewer aliases"


@pytest.mark.attack("job spec with very many mistakes")
@pytest.mark.parametrize(
    "text",
    [
        "slurm:\n" + "".join(f"  f{number}: 1\n" for number in range(20_000)),
        "services: [" + "{name: a}," * 20_000 + "]",
    ],
    ids=["options", "items"],
)
def test_many_mistakes_are_counted(text: str, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(text)
    lines = refused(tmp_path / "job.yaml")
    assert len(lines) == 21
    assert re.fullmatch(r"and (19,980|\d{2},\d{3}) more mistakes; correct these first", lines[-1])
    assert all(line.startswith(f"{tmp_path}/job.yaml:") for line in lines[:-1])


@pytest.mark.attack("job spec with very many mistakes", inputs=1)
def test_many_mistakes_in_an_included_file(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("include: other.yaml\n")
    (tmp_path / "other.yaml").write_text("".join(f"f{number}: 1\n" for number in range(20_000)))
    lines = refused(tmp_path / "job.yaml")
    assert (len(lines), lines[0].partition(" ")[0]) == (4, f"{tmp_path}/other.yaml:1:1:")
    assert lines == refused(tmp_path / "other.yaml")


@pytest.mark.attack("aliases that would fill the memory or the script", inputs=1)
def test_a_script_that_sbatch_would_refuse() -> None:
    steps = [{"name": f"a{number}", "run": ["x", "y" * 100_000]} for number in range(50)]
    with pytest.raises(UsageError, match=r"^the script would have 5\.\d MB, and sbatch takes at most 4 MB"):
        render_script(plan_of(JobSpec(prepare=steps)))


def fields_of(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """Paths of all fields, e.g. `slurm.time`."""
    for name, field in model.model_fields.items():
        kinds = [kind for kind in (field.annotation, *get_args(field.annotation)) if isinstance(kind, type)]
        sections = [kind for kind in kinds if issubclass(kind, BaseModel)]
        if sections:
            yield from fields_of(sections[0], f"{path}{name}.")
        else:
            yield path + name


NUMBER = "9" * 5000  # Python converts at most 4,300 digits


@pytest.mark.parametrize("value", [NUMBER, f"{NUMBER}G", f"1-{NUMBER}", f"h100:{NUMBER}"])
def test_a_number_that_python_does_not_convert(value: str) -> None:
    """In any field: one line, or accepted where Slurm or Ray judges it."""
    paths = list(fields_of(JobSpec))
    assert {"slurm.time", "ray.head.memory", "container.shm_size"} <= set(paths)
    for path in paths:
        with contextlib.suppress(SpecError, UsageError):
            render_script(load_plan(None, [(path, value)], ("true",)))
