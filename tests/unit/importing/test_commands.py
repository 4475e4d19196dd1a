"""What commands become, each in the forms that launchers have."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.unit.importing.scripts import TRAINER, fields, import_text, looks, verdicts


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
        'main() {{\n{}\n}}\nmain "$@"',
        "if true; then\n:\nfi\n( {} )",
        "{} | tee log.txt",
        "{} >> log 2>&1",
        "{} &\nwait $!",
        "{} || exit 1",
    ],
)
def test_what_is_around_the_trainer(shell: str) -> None:
    assert run(shell.format("python train.py a"))["run"] == ["python", "train.py", "a"]


@pytest.mark.parametrize(
    ("end", "is_told"),
    [
        ("| tee log.txt", False),
        ("| tee -a /dev/stderr | grep -v INFO", False),
        ("| tee results.txt", True),
        ("| sort > results.txt", True),
        ("| tee log.txt > results.txt", True),
        ("> results.txt", True),
        ("> train.log 2>&1", False),
        ("> $LOG_DIR/train-log-$SLURM_JOB_ID.txt", False),
        ("| tee $LOGFILE", False),
        ("| tee $LOG_DIR/scores", True),
        ("> logs/dialogs.txt", True),
        ("> eval_log.jsonl", True),
        ("; ps aux | grep ray | awk '{print $2}' | xargs kill -9", False),
        ("| xargs mail", True),
    ],
)
def test_where_the_output_of_the_trainer_goes(end: str, is_told: bool) -> None:
    """The user hears of files and programs that get no output any more."""
    assert looks(f"{TRAINER} {end}") == [1] * is_told


def test_values_of_variables() -> None:
    made = run(
        "A=1; B=\"$A 2\"; C=(x 'y z'); C+=($A)",
        'ARGS="--a 1 --b 2"',
        "D=${NOT_SET:-default}",
        'python train.py $B "$B" "${C[@]}" ${C[1]} $ARGS x${A}y \'$A\' \\$A "\\$A" $D',
    )
    assert made["run"] == [
        *("python", "train.py", "1", "2", "1 2", "x", "y z", "1", "y", "z", "--a", "1", "--b", "2"),
        *("x1y", "$A", "$A", "$A", "default"),
    ]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("python train.py $HOME/x", 'python train.py "$HOME/x"'),
        ('python train.py "$MODEL"', 'python train.py "$MODEL"'),
        ("python train.py $EXTRA", "python train.py $EXTRA"),
        ('python train.py "$(date +%s)"', 'python train.py "$(date +%s)"'),
        ("python train.py 'it'\\''s' $EXTRA", "python train.py 'it'\"'\"'s' $EXTRA"),
        ("for i in 1 2; do X=$i; done; python train.py $X", "python train.py $X"),
        ("python train.py *.json {a,b}", "python train.py *.json {a,b}"),
        ('A=(--lr 1 $EXTRA x); python train.py "${A[@]}"', "python train.py --lr 1 $EXTRA x"),
        ('A=($(ls) x); python train.py "${A[@]}" ${A[1]}', "python train.py $(ls) x ${A[1]}"),
        ("A=($(ls)); python train.py $A", "python train.py $A"),
        ('for i in 1 2; do A+=($i); done; A+=(x); python train.py "${A[@]}"', "python train.py ${A[@]} x"),
        ('A=(--a); [ -n "$X" ] && A+=(--x); python train.py "${A[@]}"', 'python train.py "${A[@]}"'),
    ],
)
def test_what_is_only_known_in_the_job(line: str, text: str) -> None:
    """Such a command is a text for bash, and only bash in the job knows its values."""
    assert run(line)["run"] == text


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


def test_search_paths() -> None:
    """Containers and Ray get PYTHONPATH; the others are those of the host."""
    made = run("export PATH=$HOME/bin:$PATH", "export PYTHONPATH=$PWD:$PYTHONPATH", TRAINER)
    assert (made["setup"], made["node_env"]) == (
        'export PATH="$HOME/bin:$PATH"',
        'export PYTHONPATH="$PWD:$PYTHONPATH"',
    )


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


def test_an_activation_in_the_container_goes_with_the_command() -> None:
    made = run("docker run --rm img bash -c 'source /opt/venv/bin/activate && python train.py'")
    assert made["run"] == "source /opt/venv/bin/activate && python train.py"
    assert "setup" not in made


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


def test_an_array_of_the_nodes_names_is_about_the_cluster() -> None:
    lines = [
        "nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )",
        "nodes_array=($nodes)",
        "export HEAD=$nodes",
        "python train.py --head ${nodes_array[0]}",
    ]
    assert run(*lines)["run"] == 'python train.py --head "$MASTER_ADDR"'
    assert "node_env" not in run(*lines)


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
        "python report.py",
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
    ("line", "kept"),
    [
        ("trainer.nnodes=2 trainer.n_gpus_per_node=$SLURM_GPUS_PER_NODE", []),
        ("trainer.nnodes=3", ["trainer.nnodes=3"]),
        ("trainer.nnodes=2 reward_model.enable_resource_pool=True", None),
        ("trainer.nnodes=2 actor_rollout_ref.rollout.nnodes=1", None),
        ("trainer.n_gpus_per_node=$SLURM_GPUS_ON_NODE", []),
    ],
)
def test_numbers_that_the_preset_adds(line: str, kept: list[str] | None) -> None:
    """A number that is not the job's stays, and the preset's check reports it."""
    made = run("#SBATCH -N 2 --gpus-per-node=8", f"python3 -m verl.trainer.main_ppo {line}")
    assert made["run"][3:] == (line.split() if kept is None else kept)


def test_a_number_that_a_command_prints() -> None:
    made = run(
        "#SBATCH -N 2 --gpus-per-node=8", "python3 -m verl.trainer.main_ppo trainer.nnodes=$(wc -l <h)"
    )
    assert made["run"] == "python3 -m verl.trainer.main_ppo trainer.nnodes=$(wc -l <h)"


@pytest.mark.parametrize(
    ("command", "preset"),
    [
        ("python3 -m recipe.dapo.main_dapo", "verl"),
        ("python3 -m verl.trainer.main_ppo retriever.url=http://x", "search-r1"),
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


@pytest.mark.parametrize(
    "line",
    [
        *(
            "tar xf data.tar | grep x | python y",
            "git pull | sh",
            "rm -rf /data/old",
            "$CMD a b",
            "docker compose up",
        ),
        *(
            "OUT=$(python prepare.py)",
            "if python check.py; then echo; fi",
            "eval $CMD",
            "pip install x",
            "source x.sh",
        ),
        *(
            'bash -c "$CMD"',
            "apptainer instance start x y",
            "unset MY_VARIABLE",
            "coproc x",
            "f() { python y; }",
        ),
    ],
)
def test_what_is_unknown_is_never_dropped(line: str) -> None:
    assert looks(f"{line}\n{TRAINER}\n")[:1] == [1]


@pytest.mark.parametrize("shell", ["{}", "bash -c '{}'", 'srun bash -c "{}"'])
def test_words_after_a_comment_in_a_command(shell: str) -> None:
    """shfmt reads the command on; bash ends it at the comment."""
    script = shell.format(f"{TRAINER} --a \\\n  # --b 1 \\\n  --c")
    assert run(script)["run"] == ["python", "train.py", "--a", "--c"]
    assert looks(script) == [3]


def test_all_that_runs_after_the_trainer() -> None:
    assert looks("python -m verl.trainer.main_ppo\npython eval.py\necho done\n") == [2]


def test_lines_of_a_script_within_the_script() -> None:
    script = (
        'srun bash -c "\n  set -e\n  docker run -d --rm \\\n    -v /a:/b \\\n    --shm-size 8g \\\n'
        '    img \\\n    sleep infinity\n  echo \\"x\\"\n"\ndocker exec c python train.py\n'
    )
    found = verdicts(import_text(script).text)
    assert "container.mounts" in found[4]
    assert "container.shm_size" in found[5]
    assert "container.image" in found[6]
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
        "python - <<'END_OF_DOCUMENT'\nprint('$HOME')\nEND_OF_DOCUMENT",
        "python tok.py < data.json",
    ]
    assert made["run"] == ["python", "train.py"]


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
    ("line", "expected"),
    [
        ("cat > config.yaml <<EOF\na: $A\nEOF", [1, 2, 3]),
        ("echo node1 > hosts", [1]),
        ("echo started >> run.log", []),
        ("echo started &>> ${JOBLOG}", []),
        ("date > /dev/null", []),
    ],
)
def test_files_that_the_script_writes(line: str, expected: list[int]) -> None:
    assert looks(f"{line}\n{TRAINER}\n") == expected


def test_what_an_if_decides() -> None:
    assert looks(
        "if [ $X ]; then\n  export A=1\n  conda activate x\n  python prepare.py\nfi\npython train.py\n"
    ) == [2, 3, 4]
    assert fields("if [ $X ]; then\n  export A=1\nfi\npython train.py\n").get("env") is None


def test_a_value_that_changes_is_not_guessed() -> None:
    script = "M=a\nif [ $X ]; then M=b; fi\npython train.py --model $M\n"
    assert fields(script)["run"] == "python train.py --model $M"
    assert looks(script) == [3]


def test_arithmetic_of_constants() -> None:
    made = run(
        "#SBATCH -N 3",
        "G=8; N=$((SLURM_NNODES * G)); M=$(( (N + 2) / 5 % 4 ))",
        "python train.py $N $M $((G - 1)) $((UNKNOWN * 2)) $((G / 0))",
    )
    assert made["run"] == "python train.py 24 1 $((G - 1)) $((UNKNOWN * 2)) $((G / 0))"


@pytest.mark.parametrize(
    "number",
    [
        *("$((010 * 2))", "$((08 + 1))", "$((0x10 * 2))", "$((2 - 1))", "$((7 % 0))", "$((-7 / 2))"),
        *("$((1000000000 * 2))", "$((999999999 * 2))", "$((7 / 2))", "$(((1 + 2) * 3))", "$((N * 2))"),
    ],
)
def test_a_number_is_bash_s(number: str) -> None:
    """With a leading 0 it is octal. What is not calculated stays as it is."""
    made = run("N=010", f"python train.py {number}")["run"]
    last = made[-1] if isinstance(made, list) else made.partition(".py ")[2]
    script = "N=010; echo {}"
    bash, own = (
        subprocess.run(
            ["bash", "-c", script.format(text)], capture_output=True, text=True, check=False
        ).stdout
        for text in (number, last)
    )
    assert bash == own
    assert last == number or last.isdecimal()


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
    "line",
    [
        "nodes=($(scontrol show hostnames $SLURM_JOB_NODELIST))",
        "mapfile -t nodes < <(scontrol show hostnames $SLURM_JOB_NODELIST)",
        'read -r nodes <<< "$(hostname --ip-address)"',
        "nodes=$(srun --ntasks=1 hostname)",
        "printf -v nodes '%s' \"$SLURMD_NODENAME\"",
        "nodes=`hostname -i`",
        "export nodes=$(hostname)",
    ],
)
def test_addresses_are_slurmray_s(line: str) -> None:
    script = f"{line}\nexport HEAD=${{nodes[0]}}\npython train.py --master ${{nodes[0]}}:6379\n"
    made = fields(script)
    assert "env" not in made
    assert made["run"].replace('"', "") == "python train.py --master $MASTER_ADDR:6379"
    assert looks(script) == [3]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("conda run -n rl python train.py", ["conda", "run", "-n", "rl", "python", "train.py"]),
        ("timeout -k 5 3h python train.py", ["python", "train.py"]),
    ],
)
def test_other_ways_to_start_the_trainer(line: str, expected: list[str]) -> None:
    assert run(line)["run"] == expected


@pytest.mark.parametrize(
    "line", ["sbatch next.sh", "ssh node2 ray start", "conda create -n x", "mpirun python x.py"]
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


def test_an_activation_for_ray_alone() -> None:
    script = "docker run -d --name c img bash\ndocker exec c bash -c '. /v/bin/activate; ray start --head'\n"
    assert looks(f"{script}docker exec c {TRAINER}\n") == [2]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('python train.py "$@"', [1]),
        ("ARGS=($@)\npython train.py ${ARGS[@]}", [1]),
        ('main() {\n  python train.py\n}\nmain "$@"', []),
        ('log() {\n  echo "$@"\n}\nlog hi\npython train.py', []),
    ],
)
def test_the_script_s_own_arguments(script: str, expected: list[int]) -> None:
    assert run(script)["run"] == ["python", "train.py"]
    assert looks(script) == expected


def test_default_values_are_remarks() -> None:
    script = "export LR=${LR:-1e-6}\npython train.py --lr $LR\n"
    made = import_text(script)
    assert verdicts(made.text)[1] == "became env.LR (LR: its default, not your environment)"
    assert (fields(script)["env"], fields(script)["run"][-1]) == ({"LR": "1e-6"}, "1e-6")


def test_default_values_that_are_assigned() -> None:
    script = ': "${LR:=1e-6}" "${SEED=7}"\npython train.py --lr $LR --seed $SEED\n'
    assert fields(script)["run"] == ["python", "train.py", "--lr", "1e-6", "--seed", "7"]


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
    assert run("python my_program.py", last)["run"] == ["python", "my_program.py"]
    assert looks(f"python my_program.py\n{last}\n") == [2]


def test_cases_and_local_variables() -> None:
    script = 'case "$1" in\n  a|b)\n    X=1\n    ;;\n  *) ;;\nesac\nY=2\nunset Y IFS\npython train.py\n'
    assert looks(script) == []


def test_lines_of_a_here_document_before_another_redirection() -> None:
    assert looks("cat <<EOF >$DIR/x.sh\na\nb\nEOF\npython train.py\n") == [1, 2, 3, 4]
