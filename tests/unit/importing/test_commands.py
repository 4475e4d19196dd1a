"""What commands become, each in the forms that launchers have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.importing.scripts import TRAINER, fields, import_text, looks, started, verdicts


def run(*lines: str) -> dict[str, Any]:
    return fields("\n".join(lines))


@pytest.mark.parametrize(
    "before",
    [
        "",
        "srun --overlap -N1 -n1 -w $head ",
        "nohup ",
        "exec ",
        "time ",
        "env ",
        "nice -n 10 ionice -c 2 -n 7 ",
        "/usr/bin/time -f %E ",
        "sudo -E -n -u me ",
        "srun --preserve-env ",
        "bash -euo pipefail -c 'ray start --block' & ",
        "srun env -u ROCR_VISIBLE_DEVICES ",
        "ray job submit --address=http://127.0.0.1:8265 --no-wait -- ",
        "ray symmetric-run --address $ip:6379 --min-nodes 2 -- ",
    ],
)
def test_what_stands_before_the_trainer(before: str) -> None:
    assert run(f"{before}{TRAINER} --lr 1e-6")["run"] == ["python", "train.py", "--lr", "1e-6"]
    assert looks(f"{before}{TRAINER}") == []


@pytest.mark.parametrize(
    "shell",
    [
        "bash -c '{}'",
        'bash -lc "{}"',
        "srun bash -c 'set -e; {}'",
        "docker exec c bash -c '{}'",
        "bash <<'EOF'\n{}\nEOF",
        "srun bash -s << EOF\n{}\nEOF",
        "bash -c \"bash -c '{}'\"",
        "if true; then\n:\nfi\n{}",
        "{} | tee log.txt",
        "{} >> log 2>&1",
        "{} &\nwait $!",
    ],
)
def test_what_is_around_the_trainer(shell: str) -> None:
    assert run(shell.format("python train.py a"))["run"] == ["python", "train.py", "a"]


def test_variables_of_the_submitter() -> None:
    script = "python train.py $MODEL --token $HF_TOKEN\n"
    assert fields(script)["env"] == {"MODEL": None, "HF_TOKEN": None}
    assert looks(script) == [1]


def test_the_environment() -> None:
    made = run(
        "export A=1 B='x y' C=$HOME/c",
        "D=4",
        "export D",
        "declare -x E=5",
        "export WANDB_API_KEY=0123456789 http_proxy=http://me:pass@proxy:80",
        "export HEAD=$(hostname) CUDA_VISIBLE_DEVICES=0 MASTER_PORT=29500",
        "export A=2",
        "F=6 python train.py",
    )
    assert made["env"] == {
        **{"A": "2", "B": "x y", "D": "4", "E": "5", "F": "6"},
        **{"WANDB_API_KEY": None, "http_proxy": None},
    }
    assert made["node_env"] == 'export C="$HOME/c"'


def test_what_is_no_mask_of_gpus() -> None:
    script = "export X_NOSET_ASCEND_RT_VISIBLE_DEVICES=1\nif a; then export CUDA_VISIBLE_DEVICES=0; fi\n"
    assert "ray" not in run(script, TRAINER)


def test_a_default_of_nothing_is_not_certain() -> None:
    script = 'M=${MASTER_ADDR:-}\nX=${X:-}\nexport no_proxy="localhost,$M,$X"\npython train.py'
    assert "no_proxy" not in fields(script).get("env", {})
    assert looks(script) == [3]


def test_a_variable_without_which_the_script_ends() -> None:
    needed = ': "${KEY:?set it}" "${A:?}" "${1:?usage}" "${HOME:?}" "${SLURM_JOB_ID:?}" "${MASTER_ADDR:?}"'
    assert run("A=1", needed, TRAINER)["env"] == {"KEY": None}


def test_a_program_that_ran_on_all_nodes() -> None:
    assert looks(f"#SBATCH -N 2\nsrun {TRAINER}") == [2]
    assert looks(f"#SBATCH -N 2\nsrun -N1 -n1 {TRAINER}") == looks(f"srun {TRAINER}") == []


def test_gpus_of_a_step_win_over_a_mask() -> None:
    made = run("export HIP_VISIBLE_DEVICES=0,1", f"srun -N1 -G2 {TRAINER}")
    assert (made["slurm"], "ray" in made) == ({"gpus_per_node": "2"}, False)


@pytest.mark.parametrize("address", ["localhost:8265", "http://$HEAD/api/version"])
def test_a_loop_that_waits_for_ray_s_dashboard(address: str) -> None:
    """It is no server of the script, and a job may have it on another port: the loop would never end."""
    made = run("vllm serve m &", f"until curl -sf {address}; do sleep 5; done", TRAINER)
    assert (made["run"], "ready" in made["services"][0]) == (TRAINER.split(), False)


def test_a_variable_that_is_unset_later() -> None:
    found = verdicts(import_text(f"export A=1\nunset A\n{TRAINER}").text)
    assert found[1] == "not needed because: set again or unset below"


def test_a_folder_that_may_be_there() -> None:
    assert run('[ -d "$HOME/x" ] || mkdir "$HOME/x"', TRAINER)["setup"] == 'mkdir -p "$HOME/x"'


def test_a_draft_without_a_trainer_has_the_script_s_runtime() -> None:
    made = run("cd /shared/me", "ray start --head")
    assert made["container"] == {"runtime": "none", "workdir": "/shared/me"}


@pytest.mark.parametrize("line", ["bash wrapper.sh a", "bash serve.sh &", "./wrapper.sh", '"$HOME/x.sh" a'])
def test_a_script_of_its_own(line: str) -> None:
    assert looks(f"{line}\n{TRAINER}")[0] == 1


def test_search_paths() -> None:
    """Containers and Ray get PYTHONPATH; the others are those of the host."""
    made = run("export PATH=$HOME/bin:$PATH", "export PYTHONPATH=$PWD:$PYTHONPATH", TRAINER)
    assert (made["setup"], made["node_env"]) == (
        'export PATH="$HOME/bin:$PATH"',
        'export PYTHONPATH="$PWD:$PYTHONPATH"',
    )


def test_variables_of_the_script_that_a_container_gets_by_name() -> None:
    made = run("export A=1 B=$HOME/b", "docker run -e A -e B -e C=3 -e D img python train.py")
    assert made["env"] == {"A": "1", "C": "3", "D": None}
    assert made["node_env"] == 'export B="$HOME/b"'


def test_variables_that_apptainer_takes_for_the_container() -> None:
    made = run(
        "export APPTAINERENV_A=1 APPTAINER_BINDPATH=/a:/b,/c SINGULARITY_BIND=$PWD,/d:/d:ro",
        "SINGULARITYENV_B=2 apptainer exec x.sif python train.py",
    )
    assert made["env"] == {"A": "1", "B": "2"}
    assert made["container"]["mounts"] == ["/a:/b", "/c", "/d:/d:ro"]


def test_resources_of_a_step() -> None:
    """They are the job's, if it asks for none."""
    step = "srun -c 8 --mem-per-cpu=4G --gres=gpu:h100:4 --gpus-per-task=4 ray start --head"
    assert run(step, TRAINER)["slurm"] == {"cpus_per_task": "8", "mem_per_cpu": "4G", "gres": "gpu:h100:4"}
    assert looks(f"{step}\n{TRAINER}") == [1]
    job = "#SBATCH -c 4 --mem-per-cpu=2G --gpus-per-node=8"
    assert run(job, step, TRAINER)["slurm"] == {
        **{"cpus_per_task": "4", "mem_per_cpu": "2G", "gpus_per_node": "8"},
    }
    assert looks(f"{job}\n{step}\n{TRAINER}") == []


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "SINGULARITYENV_CUDA_VISIBLE_DEVICES"])
def test_gpus_that_only_a_variable_names(name: str) -> None:
    script = f"export {name}=0,1\nray start --head --num-gpus 2\n{TRAINER}"
    assert (fields(script)["ray"], looks(script)) == ({"gpus_per_node": "2"}, [1, 2])
    made = fields(f"#SBATCH --gres=gpu:2\n{script}")
    assert not {"ray", "env"} & set(made)


def test_setup() -> None:
    made = run(
        "module purge && module load cuda/12.4 podman",
        "ml gcc",
        "source ~/miniconda3/etc/profile.d/conda.sh",
        "conda activate rl",
        ". venv/bin/activate",
        TRAINER,
    )
    assert made["setup"].split("\n") == [
        "module purge",
        "module load cuda/12.4 podman",
        "ml gcc",
        'source "$HOME/miniconda3/etc/profile.d/conda.sh"',
        "conda activate rl",
        ". venv/bin/activate",
    ]
    assert looks("source secrets.env\npython train.py") == [1]


@pytest.mark.parametrize(
    "last", ["python train.py", "ray start --head'; docker exec c bash -c 'python train.py"]
)
def test_an_activation_in_the_container_is_for_ray_too(last: str) -> None:
    made = run(f"docker run --rm img bash -c 'source /opt/venv/bin/activate && {last}'")
    assert made["container"]["setup"] == "source /opt/venv/bin/activate"
    assert (made["run"], made.get("setup")) == (["python", "train.py"], None)


@pytest.mark.parametrize("engine", ["docker", "podman", "sudo docker"])
def test_options_of_docker(engine: str) -> None:
    made = run(
        f"{engine} run -it --rm --gpus all --ipc=host --net=host -v /data:/data:ro -v $PWD:$PWD -v ~/x:/x \\",
        "--mount type=bind,source=/models,target=/m,readonly -e A=1 --env B -w /work --shm-size=64gb \\",
        "--ulimit memlock=-1 --env-file .env -u $(id -u):$(id -g) --cpus 8 --name n --pull always \\",
        "org/img:1 python train.py",
    )
    assert made["container"] == {
        **{
            "runtime": engine.removeprefix("sudo "),
            "image": "org/img:1",
            "workdir": "/work",
            "shm_size": "64g",
        },
        **{"mounts": ["/data:/data:ro", "~/x:/x", "/models:/m:ro"], "ulimits": ["memlock=-1:-1"]},
        **{"args": ["--cpus=8"], "pull": "always"},
    }
    assert (made["env"], made["env_file"]) == ({"A": "1", "B": None}, ".env")


@pytest.mark.parametrize(
    "start",
    [
        "podman run --env-host",
        "docker run --disable-content-trust",
        "apptainer --silent exec --no-compat",
    ],
)
def test_options_of_runtimes_without_a_value(start: str) -> None:
    made = run(f"{start} org/img:1 python train.py")
    assert (made["run"], made["container"]["image"]) == (["python", "train.py"], "org/img:1")


def test_options_of_docker_that_have_no_field() -> None:
    made = run(
        "docker run --frobflag -m 10g --frob x --device /dev/fuse --mount type=tmpfs,target=/t -u root \\",
        "--pull newer --mount type=bind,src=/a,dst=/b,bind-propagation=rslave -v data:/data org/img:1 \\",
        "python train.py",
    )["container"]
    assert (made["image"], made["user"], made.get("mounts")) == ("org/img:1", "0:0", None)
    assert made["args"] == [
        *("--frobflag", "-m10g", "--frob=x", "--device=/dev/fuse", "--mount=type=tmpfs,target=/t"),
        *("--pull=newer", "--mount=type=bind,src=/a,dst=/b,bind-propagation=rslave"),
    ]


def test_images_that_are_built_or_loaded() -> None:
    built = run("docker build -t img --build-arg A=1 sub", "docker run img python train.py")["container"]
    assert built["build"] == {"file": "sub/Dockerfile", "context": "sub"}
    loaded = run("docker load -q -i img.tar", "docker run img python train.py")["container"]
    assert loaded["archive"] == "img.tar"
    for line in ("docker load < img.tar", "docker build -t img $(pwd)", "docker build -t i --target x ."):
        assert looks(f"{line}\n{TRAINER}") == [1]


@pytest.mark.parametrize(
    "program",
    [
        "--entrypoint python org/img:1",
        '--entrypoint="" org/img:1 python',
        """--entrypoint '["python"]' org/img:1""",
    ],
)
def test_the_entrypoint_begins_the_command(program: str) -> None:
    made = run(f"docker run --rm {program} train.py --lr 1")
    assert (made["run"], made["container"]["image"]) == (["python", "train.py", "--lr", "1"], "org/img:1")
    assert "args" not in made["container"]


def test_options_of_apptainer() -> None:
    made = run(
        "singularity exec --nv -B /a:/b,/c --bind /d:/d:ro --env A=1,B=2 --pwd /w --cleanenv \\",
        "  docker://org/img:1 python train.py",
    )
    assert made["container"] == {
        **{"runtime": "singularity", "image": "docker://org/img:1", "workdir": "/w"},
        **{"mounts": ["/a:/b", "/c", "/d:/d:ro"], "args": ["--cleanenv"]},
    }
    assert made["env"] == {"A": "1", "B": "2"}


def test_options_of_pyxis() -> None:
    made = run(
        "srun --container-image=nvcr.io#org/img:1 --container-mounts=/a:/b:ro,/c --container-workdir=/w \\",
        "  --no-container-mount-home --container-remap-root --mpi=pmix --export=ALL,A=1 python train.py",
    )
    assert made["container"] == {
        **{"runtime": "pyxis", "image": "nvcr.io#org/img:1", "workdir": "/w", "mounts": ["/a:/b:ro", "/c"]},
        "step_args": ["--container-remap-root"],
    }
    assert made["env"] == {"A": "1"}


def test_options_of_ray_start() -> None:
    made = run(
        "ray start --head --port=6380 --dashboard-port 8265 --temp-dir=/scratch/r --num-cpus 8 --block \\",
        "  --object-store-memory=1000 --resources='{\"a\": 1}' --ray-debugger-external &",
        "srun ray start --address=$ip:6380 --object-store-memory=1000 --block &",
        TRAINER,
    )
    assert made["ray"] == {
        **{
            "port": "6380",
            "temp_dir": "/scratch/r",
            "debug": "legacy",
            "args": ["--object-store-memory=1000"],
        },
        "head_args": ['--resources={"a": 1}'],
    }


def test_options_of_ray_symmetric_run() -> None:
    made = run("ray symmetric-run --address a:6380 --min-nodes 2 --resources='{\"a\": 1}' -- python train.py")
    assert made["ray"] == {"args": ['--resources={"a": 1}']}


def test_a_port_of_ray_that_only_the_script_knows() -> None:
    """The job takes a free one."""
    script = f"ray start --head --port=$((6379 + SLURM_JOB_ID % 9)) --dashboard-port=$PORT\n{TRAINER}"
    assert (looks(script), "ray" in fields(script)) == ([], False)


def test_options_of_ray_job_submit() -> None:
    made = run(
        "ray job submit --working-dir=. --no-wait -- python train.py",
    )
    assert (made["launch"], made["ray"]) == ("ray-job", {"runtime_env": {"working_dir": "."}})
    json = '{"env_vars": {"X": "1", "MY_TOKEN": "abc"}}'
    made = run(f"ray job submit --runtime-env-json='{json}' -- python train.py")
    assert (made["ray"], made["env"]) == ({"runtime_env": {"env_vars": {"X": "1"}}}, {"MY_TOKEN": None})
    for option in ("--runtime-env-json={", "--runtime-env-json=[]", "--entrypoint-num-gpus=1"):
        script = f"ray job submit {option} -- python train.py"
        assert (looks(script), "launch" in fields(script)) == ([1], False)


def test_a_head_node_that_has_nothing() -> None:
    made = run("#SBATCH --gpus-per-node=8", "ray start --head --num-cpus=0 --num-gpus=0", TRAINER)
    assert made["ray"] == {"head": {"cpus": "0", "gpus": "0"}}


def test_a_folder_of_ray_whose_length_is_not_known() -> None:
    for line in ("ray start --head --temp-dir=/tmp/$USER/ray", "export RAY_TMPDIR=/tmp/$USER/ray"):
        script = f"{line}\n{TRAINER}"
        assert (fields(script)["ray"], looks(script)) == ({"temp_dir": "/tmp/$USER/ray"}, [1])


def test_options_of_srun_of_a_plugin() -> None:
    made = run(f"srun --mpi=pmix -N1 --environment=rl --cpu-bind=none {TRAINER}")
    assert made["container"]["step_args"] == ["--environment=rl"]


def test_a_partition_of_a_step() -> None:
    assert run(f"srun -p rl --qos=high {TRAINER}")["slurm"] == {"partition": "rl", "qos": "high"}


def test_two_options_with_runtime_environments() -> None:
    made = run(f'ray job submit --runtime-env-json=\'{{"pip": ["x"]}}\' --working-dir . -- {TRAINER}')
    assert made["ray"]["runtime_env"] == {"pip": ["x"], "working_dir": "."}


def test_an_empty_directive() -> None:
    assert "slurm" not in run("#SBATCH --account=", TRAINER)


def test_gpus_that_only_ray_knows() -> None:
    made = run("#SBATCH --exclusive", "ray start --head --num-gpus=8", TRAINER)
    assert made["ray"] == {"gpus_per_node": "8"}
    assert (
        "gpus"
        not in import_text("#SBATCH --gpus-per-node=8\nray start --num-gpus 8\npython t.py").text.split(
            "ray:"
        )[-1][:20]
    )


def test_prepare_services_and_trainer() -> None:
    made = run(
        "python data/gsm8k.py --out /data",
        "srun python fetch.py",
        "hf download Qwen/Qwen3-8B",
        "srun -N2 bash serve.sh &",
        "vllm serve Qwen/Qwen3-8B --port 8000 &",
        "while ! curl -sf http://localhost:8000/health; do sleep 1; done",
        "python -m verl.trainer.main_ppo trainer.nnodes=1 a=b",
    )
    assert made["prepare"] == [
        {"name": "gsm8k", "run": ["python", "data/gsm8k.py", "--out", "/data"]},
        {"name": "fetch", "run": ["python", "fetch.py"], "where": "all"},
        {"name": "download", "run": ["hf", "download", "Qwen/Qwen3-8B"]},
    ]
    assert made["services"] == [
        {"name": "serve", "run": ["bash", "serve.sh"], "where": "all"},
        {
            **{"name": "vllm", "run": ["vllm", "serve", "Qwen/Qwen3-8B", "--port", "8000"], "where": "head"},
            "ready": {"http": "http://localhost:8000/health"},
        },
    ]
    assert (made["preset"], made["run"][-1]) == ("verl", "a=b")


def test_a_service_in_a_container_of_its_own() -> None:
    made = run(
        "docker run -d --name main img sleep infinity",
        "srun docker run -d --rm judge:1 python -m judge.server",
        "docker exec main python train.py",
    )
    assert made["services"] == [
        {"name": "server", "run": ["python", "-m", "judge.server"], "where": "all", "image": "judge:1"}
    ]
    assert made["container"]["image"] == "img"


@pytest.mark.parametrize(
    ("command", "preset"),
    [
        ("python3 -m recipe.dapo.main_dapo", "verl"),
        ("python3 -m verl.trainer.main_ppo retriever.url=http://x", "search-r1"),
        ("python3 -m verl.trainer.main_ppo_format retriever.url=http://x", "search-r1"),
        ("python -m openrlhf.cli.train_ppo_ray", "openrlhf"),
        ("python examples/reasoning/main_grpo.py --config-name x", "rlinf"),
        ("python examples/start_agentic_pipeline.py --config_path . --config_name x", "roll"),
        ("uv run examples/run_grpo_math.py --config x", "nemo-rl"),
        ("python -m skyrl_train.entrypoints.main_base", "skyrl"),
        ("python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8", "slime"),
        ("python3 my_train.py", None),
    ],
)
def test_presets(command: str, preset: str | None) -> None:
    assert run(command).get("preset") == preset


@pytest.mark.parametrize("shell", ["{}", "bash -c '{}'"])
def test_words_after_a_comment_in_a_command(shell: str) -> None:
    """shfmt reads the command on; bash ends it at the comment."""
    script = shell.format(f"{TRAINER} --a \\\n  # --b 1 \\\n  --c")
    assert run(script)["run"] == ["python", "train.py", "--a", "--c"]
    assert looks(script) == [3]


def test_words_after_a_comment_in_double_quotes(tmp_path: Path) -> None:
    """bash joins the lines first, so that the comment has all that is after it."""
    script = f'srun bash -c "{TRAINER} --a \\\n  # --b 1 \\\n  --c"'
    assert started(script, tmp_path) == ["python train.py --a"]


def test_all_that_runs_after_the_trainer() -> None:
    assert looks("python -m verl.trainer.main_ppo\npython eval.py\necho done\n") == [2]


def test_lines_of_a_script_within_the_script() -> None:
    script = (
        'srun bash -c "\n  set -e\n  docker run -d --rm \\\n    -v /a:/b \\\n    --shm-size 8g \\\n'
        '    img \\\n    sleep infinity\n  echo \\"x\\"\n"\ndocker exec c python train.py\n'
    )
    text = import_text(script).text
    assert "    - /a:/b # line 4\n" in text
    assert "  shm_size: 8g # line 5\n" in text
    assert "  image: img # line 6\n" in text
    found = verdicts(text)
    assert found[8] == "not needed because: it only prints"


def test_files_and_documents_of_a_command() -> None:
    made = run(
        "python gen.py --n 1 > data.json",
        "python - <<'EOF' >> prepare.log",
        "print('$HOME')",
        "EOF",
        "python tok.py < data.json 2> errors",
        "python train.py > train.txt 2>&1",
    )
    assert [step["run"] for step in made["prepare"]] == [
        "python gen.py --n 1 > data.json",
        "python - <<'EOF' >> prepare.log\nprint('$HOME')\nEOF",
        "python tok.py < data.json 2> errors",
    ]
    assert made["run"].split("\n")[1] == 'python train.py "${preset_args[@]}" > train.txt 2>&1'


@pytest.mark.parametrize(
    "document",
    [
        "a\nEND_OF_DOCUMENT\necho made",
        "END_OF_DOCUMENT_\nb",
        "END_OF_DOCUMENT END_OF_DOCUMENT\nEND_OF_DOCUMENT__\nEND_OF_DOCUMENT",
        "$HOME `x` \\\\ 'q'",
        "",
    ],
)
def test_a_document_keeps_its_lines(document: str) -> None:
    """Whatever they are, bash hands them to the command."""
    step = run(f"python - <<'EOF'\n{document}\nEOF", TRAINER)["prepare"][0]["run"]
    script = step.replace("python -", "cat", 1)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"{document}\n", "")


@pytest.mark.parametrize(
    ("option", "value", "limit"),
    [
        *(("-l", value, f"memlock={limit}") for value, limit in (("unlimited", -1), ("0", 0), ("64", 65536))),
        *(("-s", value, f"stack={limit}") for value, limit in (("unlimited", -1), ("8192", 8388608))),
        *(("-c", value, f"core={limit}") for value, limit in (("unlimited", -1), ("0", 0), ("64", 65536))),
        *(("-n", value, f"nofile={value}") for value in ("64", "65536")),
        ("-Su", "4096", "nproc=4096"),
    ],
)
def test_units_of_limits(option: str, value: str, limit: str) -> None:
    """bash counts some in KB, and containers have them in bytes."""
    made = run(f"ulimit {option} {value}", f"docker run img {TRAINER}")["container"]["ulimits"]
    name, _, number = limit.partition("=")
    assert made == [f"{limit}:{number}"]
    if value in ("64", "4096"):  # not above this machine's
        program = f"import resource; print(resource.getrlimit(resource.RLIMIT_{name.upper()})[0])"
        script = f"ulimit -S{option[-1]} {value} && exec {sys.executable} -c '{program}'"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout == f"{number}\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("conda run -n rl python train.py", ["conda", "run", "-n", "rl", "python", "train.py"]),
        ("timeout -k 5 3h python train.py", ["timeout", "-k", "5", "3h", "python", "train.py"]),
    ],
)
def test_other_ways_to_start_the_trainer(line: str, expected: list[str]) -> None:
    assert run(line)["run"] == expected


@pytest.mark.parametrize(
    "runner",
    [
        *("uv run --with ray", "conda run -n rl", "pixi run -e x", "poetry run"),
        *("python -m ray.scripts.scripts", "${BIN}", '"$VENV/bin/"'),
    ],
)
def test_what_runs_ray(runner: str) -> None:
    ray = "" if "scripts" in runner else "ray" if "$" in runner else " ray"
    script = f"{runner}{ray} start --head --port=6380\n{TRAINER}\n{runner}{ray} stop"
    assert run(script) == {"container": {"runtime": "none"}, "ray": {"port": "6380"}, "run": TRAINER.split()}


@pytest.mark.parametrize(
    "line", ["sbatch next.sh", "ssh node2 python x.py", "conda create -n x", "mpirun python x.py"]
)
def test_other_hosts_and_environments(line: str) -> None:
    assert looks(f"{line}\n{TRAINER}\n") == [1]


def test_an_exported_function_is_no_variable() -> None:
    assert "env" not in run("f() { echo; }", "export -f f", "f", TRAINER)


@pytest.mark.parametrize(
    "loop",
    [
        "until curl -s {}; do sleep 1; done",
        "for i in {1..60}; do if curl -sf {}; then break; fi; sleep 5; done",
        "timeout 600 bash -c 'while ! curl {}; do sleep 1; done'",
    ],
)
def test_a_loop_that_waits_for_a_service(loop: str) -> None:
    for address in ("http://localhost:8000/health", "localhost:8000/health"):
        made = run("vllm serve m &", loop.replace("{}", address), TRAINER)
        assert made["services"][0]["ready"] == {"http": "http://localhost:8000/health"}
        assert "prepare" not in made


def test_default_values_are_remarks() -> None:
    script = "export LR=${LR:-1e-6}\npython train.py --lr $LR\n"
    made = import_text(script)
    assert verdicts(made.text)[1] == "became env (LR: its default, not your environment)"
    assert fields(script)["env"] == {"LR": "1e-6"}


def test_options_of_srun_with_and_without_a_value() -> None:
    assert run("srun -N1 -q high -K1 python3 train.py --lr 1")["run"] == ["python3", "train.py", "--lr", "1"]
    assert run("srun -K -N1 python3 train.py")["run"] == ["python3", "train.py"]


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("--moe-token-dispatcher-type", False),
        ("--token_tis_ratio_clip_high", False),
        ("--metadata-key", False),
        ("--swanlab-key", True),
        ("--input_key", False),
        ("--label-key", False),
        ("--max-token", False),
        ("--hf-token", True),
        ("--key.api_key", True),
    ],
)
def test_options_with_secrets(name: str, is_secret: bool) -> None:
    assert run(f"python train.py {name} valueofit")["run"][-1] == ("..." if is_secret else "valueofit")


@pytest.mark.parametrize("last", ["chmod +x a.sh", "touch done", "cp -r out /results"])
def test_what_only_handles_files_is_no_trainer(last: str) -> None:
    lines = run("python my_program.py", last)["run"].split("\n")
    assert lines[1:] == ['python my_program.py "${preset_args[@]}"', last]
    assert looks(f"python my_program.py\n{last}\n") == [2]


def test_cases_and_local_variables() -> None:
    script = 'case "$1" in\n  a|b)\n    X=1\n    ;;\n  *) ;;\nesac\nY=2\nunset Y IFS\npython train.py\n'
    assert looks(script) == []
