"""What is left of a script, run with bash: it does what the script did, with the preset's arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmray.errors import SpecError
from slurmray.loading.load import load_plan
from tests.unit.importing.scripts import TRAINER, execute, fields, import_text, looks, started, verdicts

PRESET = ["trainer.nnodes=2", "a b", "$x'"]
QUOTED = r"trainer.nnodes=2 a\ b \$x\'"
MAIN = "python3 -m verl.trainer.main_ppo"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (f"A=1\n{MAIN} a=$A", f"{MAIN} a=1 {QUOTED}"),
        (f"ARGS=(a=1 'b=x y')\nARGS+=(c=3)\n{MAIN} \"${{ARGS[@]}}\"", rf"{MAIN} a=1 b=x\ y c=3 {QUOTED}"),
        (f'LAUNCH=(uv run python3)\n"${{LAUNCH[@]}}" {MAIN[8:]} a=1', f"uv run {MAIN} a=1 {QUOTED}"),
        (f"M=${{MODEL:-Qwen}}\n{MAIN} a=$M", f"{MAIN} a=Qwen {QUOTED}"),
        (f"N=010\n{MAIN} a=$((N * 2))", f"{MAIN} a=16 {QUOTED}"),
        (f"if [ 1 = 1 ]; then A=x; else A=y; fi\n{MAIN} a=$A", f"{MAIN} a=x {QUOTED}"),
        (f"main() {{\n  local b=$1\n  {MAIN} b=$b\n}}\nmain 5", f"{MAIN} b=5 {QUOTED}"),
        (f"set -u\nf() {{ {MAIN} n=$#; }}\nf 1 2", f"{MAIN} n=2 {QUOTED}"),
        (f"A=1\n( {MAIN} a=$A )", f"{MAIN} a=1 {QUOTED}"),
        (f"A=1\n{MAIN} a=$A 2>&1 | sort > result.txt", f"{MAIN} a=1 {QUOTED}"),
        (f"A=1\n{MAIN} a=$A 2>&1 | tee x.log", f"{MAIN} a=1 {QUOTED}"),
        (f"A=1\n{MAIN} a=$A &\nwait $!", f"{MAIN} a=1 {QUOTED}"),
        (f"A=1\nnohup {MAIN} a=$A > train.log 2>&1 &\nwait", f"{MAIN} a=1 {QUOTED}"),
        (f"C='{MAIN} a=1'\neval \"$C\"", f"{MAIN} a=1 {QUOTED}"),
        (f"C='{MAIN}'\nX=2\neval $C a=$X", f"{MAIN} a=2 {QUOTED}"),
        (f"for i in 1 2; do\n  {MAIN} a=$i\ndone", f"{MAIN} a=1 {QUOTED}\n{MAIN} a=2 {QUOTED}"),
        (f"case x in\n x) {MAIN} a=1;;\n y) ray stop;;\nesac", f"{MAIN} a=1 {QUOTED}"),
        (f"{MAIN} trainer.nnodes=$SLURM_NNODES", f"{MAIN} trainer.nnodes=2 {QUOTED}"),
        (f"{MAIN} n=$((SLURM_JOB_NUM_NODES * SLURM_GPUS_ON_NODE))", f"{MAIN} n=16 {QUOTED}"),
        (f"h=$(hostname -i)\n{MAIN} a=$h:1", f"{MAIN} a=head:1 {QUOTED}"),
        (
            f"nodes=($(scontrol show hostnames $SLURM_JOB_NODELIST))\nh=${{nodes[0]}}\n{MAIN} a=$h",
            f"{MAIN} a=head {QUOTED}",
        ),
        (f"mapfile -t n < <(scontrol show hostnames)\n{MAIN} a=${{n[0]}}", f"{MAIN} a=head {QUOTED}"),
        (
            f'h=$(hostname -I)\nif [[ "$h" == *" "* ]]; then h=${{h%% *}}; fi\nip=$h:6379\n{MAIN} a=$ip',
            f"{MAIN} a=head:6379 {QUOTED}",
        ),
        (f"srun -N1 podman run --rm img bash -c 'A=1; {MAIN} a=$A'", f"{MAIN} a=1 {QUOTED}"),
        (f'B=2\nsrun bash -c "ray start --block && {MAIN} b=$B"', f"{MAIN} b=2 {QUOTED}"),
        (f'B="ray job submit -- {MAIN} b=1"\n$B c=2', f"{MAIN} b=1 c=2 {QUOTED}"),
        (f"srun bash <<'EOF'\nA=1\n{MAIN} a=$A\nEOF", f"{MAIN} a=1 {QUOTED}"),
        (f"A=$(cat <<'EOF'\nx  y\n\nz\nEOF\n)\n{MAIN} \"a=$A\"", rf"{MAIN} $'a=x  y\n\nz' {QUOTED}"),
        (f"ray start --head || exit 1\nA=1; ray stop; {MAIN} a=$A", f"{MAIN} a=1 {QUOTED}"),
        (
            "a=()\nfor n in x; do a+=($(host $n)); done\n"
            'c=$(cat <<EOF\nray start --node-ip-address=${a[0]}\nEOF\n)\nsrun bash -c "$c" &\n'
            f'srun bash -c "ray start --address ${{a[0]}}:1 --block" &\nA=1; {MAIN} a=$A',
            f"{MAIN} a=1 {QUOTED}",
        ),
        (
            "for i in {1..9}; do n=$(ray status | grep -c x); [ $n = 2 ] && break; exit 1; done\n"
            f"while true; do w=$(srun ray status); [ $w = 2 ] && break; sleep 1; done\nA=1; {MAIN} a=$A",
            f"{MAIN} a=1 {QUOTED}",
        ),
        (
            'run() { echo "+ $*"; "$@"; }\nstart() { run ray start "$@"; }\nstart --head\n'
            f"run {MAIN} a=$((1 + 1))",
            f"{MAIN} a=2 {QUOTED}",
        ),
        (f"export H=$(hostname)\n{MAIN} a=$H", f"{MAIN} a=head {QUOTED}"),
        (f'C="{MAIN}"\n[ -n "x" ] && C="$C a=1"\neval "$C"', f"{MAIN} a=1 {QUOTED}"),
        (f"A=1\n{MAIN} a=$A\npython after.py", f"{MAIN} a=1 {QUOTED}\npython after.py"),
        (f"OMP_NUM_THREADS=3 srun -N1 {MAIN} a=$((1 + 1))", f"{MAIN} a=2 {QUOTED}"),
        (f"timeout 5 {MAIN} a=$((1 + 1))", f"timeout 5 {MAIN} a=2 {QUOTED}"),
    ],
)
def test_the_preset_s_arguments_come_last(script: str, expected: str, tmp_path: Path) -> None:
    assert started(script, tmp_path, PRESET) == expected.split("\n")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (f'X=1\nbash -c "{MAIN} a=$X \\$Y"', f"{MAIN} a=1"),
        (f"X=1\nssh $H {MAIN} a=$X", rf"ssh node {MAIN} a=1"),
        ("X=1\nbash train.sh $X", None),
        (f"X=$(date)\nbash -s <<EOF\n: $X\n{MAIN} a=1\nEOF", f"{MAIN} a=1"),
    ],
)
def test_nothing_is_added_inside_another_shell(script: str, expected: str | None, tmp_path: Path) -> None:
    """The job spec takes no arguments then, so that render prints those to pass."""
    text = import_text(script).text
    (tmp_path / "train.sh").write_text(f'echo train.sh "$@" >>$PRINTED\n{MAIN} "$@"\n')
    assert started(script, tmp_path, PRESET, H="node") == (
        [expected] if expected else ["train.sh 1", f"{MAIN} 1"]
    )
    if expected:
        line = script.count("\n", 0, script.index("bash" if "bash" in script else "ssh")) + 1
        found = verdicts(text)[line]
        assert found.startswith("please look: ")
        assert "trainer.nnodes=$NNODES trainer.n_gpus_per_node=$GPUS_PER_NODE" in found


def test_the_script_s_own_arguments(tmp_path: Path) -> None:
    script = f'set -eu\n[ $# -lt 2 ] && exit 1\nM=$1\nshift\n{MAIN} "m=$M" "$@"'
    assert started(script, tmp_path, PRESET, ["Q 3", "b=2"]) == [rf"{MAIN} m=Q\ 3 b=2 {QUOTED}"]


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        ("M=$1", 1),
        ("M=${2:?}", 2),
        ('if [ "$#" -lt 3 ]; then exit 1; fi', 3),
        ("[[ $# -ne 2 ]] && { echo usage; exit 1; }", 2),
        ("M=$1; shift; N=$1; shift", 2),
        ("set -u\nM=$1", 1),
        ("M=${1:-x}", 0),
        ('if [[ ${1} != "slurm" ]]; then M=1; fi', 0),
        ('[ -z "$1" ] && exit 1', 1),
        ('while [[ $# -gt 0 ]]; do case "$1" in -m) M=$2; shift 2;; *) exit 1;; esac; done', 0),
        ("f() { echo $3; }\nf 1 2 3", 0),
        ("M=$(echo | awk '{print $2}')", 0),
    ],
)
def test_arguments_that_are_not_known(lines: str, count: int, tmp_path: Path, current_folder: Path) -> None:
    """render refuses them; with anything in their place, the text reaches the trainer."""
    script = f"set -e\n{lines}\n{MAIN} m=$M"
    made = fields(script)
    assert made["run"].count("FILL IN: $") == count
    (current_folder / "job.yaml").write_text(import_text("#SBATCH --gpus-per-node=8\n" + script).text)
    if count:
        with pytest.raises(SpecError, match=r"FILL IN: \$1"):
            load_plan(current_folder / "job.yaml")
    else:
        load_plan(current_folder / "job.yaml")
    assert execute(made["run"], tmp_path, PRESET)[0] == 0


def test_the_name_of_an_argument() -> None:
    assert "'FILL IN: $1 (MODEL)'" in fields('MODEL="$1"\npython train.py $MODEL')["run"]


def test_the_exit_code_that_the_script_chooses(tmp_path: Path) -> None:
    script = "A=1\npython train.py $A\nrc=$(($? + 5))\npython after.py\nexit $((rc + 2))"
    assert execute(fields(script)["run"], tmp_path)[0] == 7


@pytest.mark.parametrize("guard", ["[ $? -eq 0 ] || exit 5", 'if [ -z "$PID" ]; then exit 5; fi'])
def test_a_check_whether_ray_has_started(guard: str, tmp_path: Path) -> None:
    """Without what it checks, it would end the job."""
    script = f"f() {{\n  ray start --head --block &\n  PID=$!\n  {guard}\n}}\nf\nA=1; {MAIN} a=$A"
    assert started(script, tmp_path) == [f"{MAIN} a=1"]


@pytest.mark.parametrize(
    "structure",
    [
        "if [ $X = 1 ]; then\n  ray stop\nelse\n  python other.py\nfi",
        "case $X in\n1) ray stop ;;\n*) python other.py ;;\nesac",
    ],
)
def test_a_branch_without_anything_left(structure: str, tmp_path: Path) -> None:
    assert "ray stop" not in fields(f"{structure}\n{MAIN} a=$X")["run"]
    assert started(f"{structure}\n{MAIN} a=$X", tmp_path, X="1") == [f"{MAIN} a=1"]
    assert started(f"{structure}\n{MAIN} a=$X", tmp_path, X="2") == ["python other.py", f"{MAIN} a=2"]


def test_a_branch_on_one_line_without_anything_left(tmp_path: Path) -> None:
    script = f"srun bash -c 'if [ $SLURM_PROCID -eq 0 ]; then {TRAINER}; else ray start --address=$H; fi'"
    assert started(script, tmp_path) == [TRAINER]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('HERE=$(dirname "$0")', "please look: $0 is not the script's path"),
        ('HERE=$(dirname "${BASH_SOURCE[0]}")', "please look: $BASH_SOURCE is not the script's path"),
        ("if [ -e X ]; then HERE=.; exit 3; fi", "became run (exit ends the trainer"),
        ('usage() { echo "$0"; }; HERE=.; usage', "became run"),
        ("docker exec c bash -c 'module load cuda; python x.py'", "please look: a container has no modules"),
    ],
)
def test_what_means_something_else_in_the_job(line: str, text: str) -> None:
    found = verdicts(import_text(f"{line}\n{TRAINER} $HERE").text)
    assert text in found[1]


@pytest.mark.parametrize(
    "wait",
    [
        "until [ $(ray list nodes | grep -c ALIVE) = 2 ]; do sleep 5; done",
        "for i in 1 2; do n=$(ray status | wc -l); [ $n = 2 ] && break; sleep 5; done",
    ],
)
def test_a_loop_that_waits_for_ray_in_a_branch_that_stays(wait: str, tmp_path: Path) -> None:
    script = f"if [ $SLURM_PROCID = 0 ]; then\n  ray start --head\n  {wait}\n  {TRAINER}\nfi"
    assert started(script, tmp_path) == [TRAINER]


def test_a_loop_over_nodes_that_sets_a_variable(tmp_path: Path) -> None:
    script = f'for n in a b; do srun true; names="$names,$n"; done\n{TRAINER} $names'
    assert started(script, tmp_path)[-1] == f"{TRAINER} \\,a\\,b"


def test_a_step_with_a_variable_of_the_submitter() -> None:
    script = f"cat > a.yaml <<EOF\na: $A\nEOF\n{TRAINER}"
    assert fields(script)["env"] == {"A": None}
    assert looks(script) == [2]


def test_a_number_of_nodes_by_their_list(tmp_path: Path) -> None:
    script = f"N=${{WORLD:-$(scontrol show hostname $SLURM_JOB_NODELIST | wc -l)}}\n{TRAINER} $N"
    assert started(script, tmp_path) == [f"{TRAINER} 2"]


def test_a_service_with_an_argument_of_the_script() -> None:
    script = f"M=$1\nvllm serve $M &\n{TRAINER}"
    assert fields(script)["services"][0]["run"] == "set -- 'FILL IN: $1 (M)'\nM=$1\nvllm serve $M"
    assert fields(script, ["Q"])["services"][0]["run"] == "set -- Q\nM=$1\nvllm serve $M"


def test_a_trainer_beside_ray_in_the_background(tmp_path: Path) -> None:
    start = f'srun bash -c "ray start --head --block & sleep 9; {TRAINER}" &'
    script = f'{start}\nwait\nbash -c "mkdir -p o; cp a $O"'
    assert started(script, tmp_path, O=".")[0] == TRAINER
    assert "services" not in fields(script)


def test_a_script_that_ends_with_a_backslash(tmp_path: Path) -> None:
    assert started(f"{TRAINER} $X \\\n", tmp_path, ["P"], X="1") == [f"{TRAINER} 1 P"]


def test_a_ray_job_in_the_background() -> None:
    script = f"RAY_ADDRESS=x ray job submit --no-wait -- vllm serve m\nray job submit -- {TRAINER}"
    made = fields(script)
    assert (made["services"][0]["run"], made["run"]) == (["vllm", "serve", "m"], TRAINER.split())
    assert "env" not in made["services"][0]


def test_continued_lines_in_a_text_for_bash(tmp_path: Path) -> None:
    script = f'srun -N1 bash -c "\n{TRAINER} \\\\\n  a=1 \\\\\n  b=2\n"'
    assert started(script, tmp_path) == [f"{TRAINER} a=1 b=2"]


def test_an_array_of_a_file_that_is_sourced() -> None:
    script = f'source models/x.sh\n{TRAINER} "${{ARGS[@]}}"'
    assert "env" not in fields(script)
    assert looks(script) == [1]


def test_a_service_with_variables_of_the_script() -> None:
    script = f"M=/m\nN=1\nP=$((SLURM_NNODES))\nvllm serve $M --tp $P > x.log 2>&1 &\nM=2\n{TRAINER}"
    (service,) = fields(script)["services"]
    assert service["run"] == "SLURM_NNODES=$NNODES\nM=/m\nP=$((SLURM_NNODES))\nvllm serve $M --tp $P"


@pytest.mark.parametrize(
    "line",
    [
        'ssh $h "ray start --head --port=6380"',
        "ssh -q $h ray start --head --port=6380",
        "for h in a b; do\n  ssh $h bash -s <<EOF\nray start --head --port=6380\nEOF\ndone",
    ],
)
def test_a_ray_that_ssh_starts(line: str) -> None:
    assert fields(f"{line}\n{TRAINER}") == {
        **{"container": {"runtime": "none"}, "ray": {"port": "6380"}, "run": TRAINER.split()}
    }


def test_a_function_that_waits_for_ray(tmp_path: Path) -> None:
    """Without its loop it would end the job."""
    wait = "python - <<PY && return 0\nimport ray; ray.init(); assert len(ray.nodes()) == 2\nPY"
    script = f"w() {{\n  for i in 1 2; do\n    {wait}\n  done\n  return 1\n}}\nw || exit 1\nA=1; {MAIN} a=$A"
    assert started(script, tmp_path) == [f"{MAIN} a=1"]


def test_plain_words_become_a_list() -> None:
    made = fields("echo hello\nset -e\nsrun -N1 python train.py 'a b' \"c\" \\$d > x.log 2>&1\nexit $?")
    assert made["run"] == ["python", "train.py", "a b", "c", "$d"]


def test_what_is_left_is_as_it_was_written() -> None:
    script = (
        "ARGS=(\n    a=1   # first\n\n    'b=  x'\n)\n"
        'if [ -n "${X:-}" ]; then  # odd\n    ARGS+=( c )\nfi\n'
        'python train.py "${ARGS[@]}" \\\n    --z {1..3} *.json'
    )
    assert script in fields(f"ray start --head\nport=6379\n{script}")["run"]


def test_variables_that_nothing_uses_are_left_out() -> None:
    run = fields("port=1\nA=2\nB=$A\nf() { C=1; }\npython train.py $B")["run"]
    assert run.split("\n")[1:-1] == ["A=2", "B=$A"]


def test_a_removed_command_leaves_a_valid_structure(tmp_path: Path) -> None:
    script = (
        "if [ $X = 1 ]; then\n  ray start --head\nelse\n  python other.py\nfi\n"
        "f() { ray stop; }\nwhile [ $X = 0 ]; do docker ps; X=1; done\nf; python train.py x=$X"
    )
    assert started(script, tmp_path, X="1") == ["python train.py x=1"]
    assert started(script, tmp_path, X="0")[0] == "python other.py"


@pytest.mark.parametrize(
    "line",
    [
        *("tar xf data.tar | grep x | python y", "git pull | sh", "rm -rf /data/old", "$CMD a b", "coproc x"),
        *("OUT=$(python prepare.py)", "if python check.py; then echo; fi", "eval $CMD", 'bash -c "$CMD"'),
        *("cat > config.yaml <<EOF\na: $A\nEOF", "echo node1 > hosts", "mkdir $(date)"),
    ],
)
def test_programs_are_never_dropped(line: str) -> None:
    made = fields(f"{line}\n{TRAINER}\n")
    steps = [step["run"] for step in made.get("prepare", [])]
    texts = [text if isinstance(text, str) else " ".join(text) for text in [made["run"], *steps]]
    assert any(line in text for text in texts)


def test_what_is_left_to_do_stands_first() -> None:
    text = import_text("A=$X\nexport WANDB_API_KEY=abc123def\npython train.py $A $HOME\n").text
    assert text.index("WANDB_API_KEY, X\n") < text.index("please look") < text.index("\nenv:")


def test_no_trainer() -> None:
    imported = import_text("#SBATCH -N 2\nexport A=1\nray start --head\nsleep 9\n")
    assert not imported.has_trainer
    assert '\nrun: "FILL IN: ' in imported.text


def test_where_output_goes() -> None:
    assert fields("A=1\npython train.py $A > results.txt")["run"].endswith("> results.txt")
    assert "the job's log has the output" in verdicts(import_text(f"{TRAINER} | tee x.log").text)[1]
    assert looks(f"{TRAINER} | tee x.log") == []
