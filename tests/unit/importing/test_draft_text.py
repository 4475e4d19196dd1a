"""The comments of a job spec: what is left to do first, and what became of each line."""

from __future__ import annotations

from tests.unit.importing.scripts import import_text, verdicts

SCRIPT = """\
#!/bin/bash
#SBATCH -J first
#SBATCH -N 2
#SBATCH --gpus-per-node=8
#SBATCH --mem=1G
#SBATCH --exclusive

export WANDB_API_KEY=abc123def456
# a comment
export NCCL_DEBUG=INFO
source tools.sh
ray start --head
sleep 30
ray start --address=x:6379
source tools.sh
docker run --privileged --rm org/img:1 \\
  python train.py --model "$MODEL" --data $1 | tee train.log
"""


def comments(text: str) -> dict[str, list[str]]:
    """Return the comments by title; `fields` is where the fields are."""
    found: dict[str, list[str]] = {"": []}
    for line in text.splitlines():
        if line.startswith("#   "):
            found[list(found)[-1]].append(line.removeprefix("#   "))
        elif line.startswith("# "):
            found[line.removeprefix("# ")] = []
        else:
            found["fields"] = []
    return found


def test_what_is_left_to_do_stands_first_and_whole() -> None:
    imported = import_text(SCRIPT)
    found = comments(imported.text)
    header, *titles = list(found)[1:]
    assert header == f"From my.slurm, by slurmray init --from: {imported.summary}."
    assert titles == [
        "Left to do:",
        "What the script did and the job does not:",
        "fields",
        "The other lines of the script:",
    ]
    export, fill, *looks = found["Left to do:"]
    assert export == "export before you submit, or move from env to env_file: WANDB_API_KEY, MODEL"
    assert fill == "write into run what each FILL IN asks for"
    numbers = [line for line, verdict in verdicts(imported.text).items() if verdict.startswith("please look")]
    assert [look.partition(":")[0] for look in looks] == [f"line {number}" for number in numbers]
    assert numbers == [11, 15, 17]
    assert looks[0].endswith(": source tools.sh (became run)")


def test_what_the_job_does_not_do() -> None:
    lost = comments(import_text(SCRIPT).text)["What the script did and the job does not:"]
    assert lost[0].endswith("--privileged gives access to the GPUs of other jobs: line 16")
    assert lost[1] == "the job's log has the output, and no other file: line 17"
    assert "What the script did" not in import_text("#SBATCH -N 2\npython train.py\n").text


def test_lines_with_the_same_end_have_one_comment() -> None:
    others = comments(import_text(SCRIPT).text)["The other lines of the script:"]
    assert others[:2] == ["line 2: became name", "lines 3-6: became slurm"]
    assert others[2] == "lines 8, 10: became env"
    assert others[3].startswith("lines 12-14: not needed because: slurmray starts Ray")


def test_the_counts() -> None:
    """Lines without code are not counted."""
    imported = import_text(SCRIPT)
    total = imported.became + imported.skipped + imported.looks
    assert total == len(verdicts(imported.text)) == 14
    assert imported.summary == (
        f"14 lines of code: {imported.became} became fields, {imported.skipped} not needed, "
        f"{imported.looks} to look at; 2 to export"
    )
    assert (
        import_text("python train.py").summary
        == "1 lines of code: 1 became fields, 0 not needed, 0 to look at"
    )


def test_a_variable_that_is_set_again() -> None:
    found = verdicts(import_text("export A=1\nexport A=2\npython train.py").text)
    assert found[1] == "not needed because: set again below"


def test_run_has_all_of_its_lines() -> None:
    assert "\nrun: |- # lines 1, 3\n" in import_text('A=$X\nsleep 1\npython train.py "$A"').text


def test_a_script_with_tabs_stays_readable() -> None:
    """Also with blanks at the ends of lines."""
    script = "f() {\n\tif true; then \n\t\tpython train.py\n\n\tfi\n}\nf\n"
    assert "\n  f() {\n  \tif true; then \n  \t\tpython train.py" in import_text(script).text
