"""Scripts that are broken, huge or hostile: nothing of them runs, and no secret of them is written."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from slurmray import yaml_source
from slurmray.errors import SpecError, UsageError
from slurmray.importing.launcher import MAX_BYTES, read_launcher
from tests.unit.examples import ROOT
from tests.unit.importing.scripts import TRAINER, fields, import_text

SECRET = "correct0horse1battery2"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "my.slurm: is empty; name a bash script that starts Ray under Slurm"),
        (b"echo 'x\n", "my.slurm:1:6: not valid bash: reached EOF without closing quote `'`"),
        (b"if x", "my.slurm:1:1: not valid bash: `if <cond>` must be followed by `then`"),
        (b"echo \0", "my.slurm:1:6: a NUL character; use a text file"),
        (b"echo \xff", "my.slurm:1:6: not UTF-8; save the file as UTF-8"),
        (
            b"#!/bin/bash\r\necho\r\n",
            "my.slurm: has the line ends of Windows, which sbatch refuses; use dos2unix",
        ),
        (b"#!/bin/zsh\necho x\n", "my.slurm: is no bash script; init --from reads only bash"),
        (b"#" * (MAX_BYTES + 1), "my.slurm: is larger than 256 KB; no launcher is"),
        (
            b"a=xxxxxxxx\n" + b"a=$a$a\n" * 60,
            "my.slurm: has too many commands or too long values; write a job spec by hand",
        ),
    ],
)
def test_one_clear_line(raw: bytes, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_launcher("my.slurm", raw)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "text",
    [
        "( " * 20000 + "x" + " )" * 20000,
        "x && " * 40000 + "x",
        "{ " * 3000 + "x;" + " };" * 3000,
        "if x; then " * 500 + "y; " + "fi; " * 500,
        'echo "$(' * 300 + "x" + ')"' * 300,
    ],
)
def test_deep_nesting(text: str) -> None:
    try:
        import_text(text)
    except SpecError as error:
        assert re.fullmatch(r"my\.slurm(?::1:[0-9]+)?: [^\n]*", str(error))


@pytest.mark.parametrize(
    "lines",
    [
        *("--nodes=N", "--gpus=N", "--gpus=h100:N", "--nodes=N --gpus=8", "--ntasks=N", "--mem=N"),
        *("--ntasks-per-node=N --gpus-per-task=1", "--gres=gpu:N", "--time=N", "--cpus-per-task=N"),
    ],
)
def test_numbers_that_python_does_not_convert(lines: str) -> None:
    text = "".join(f"#SBATCH {option}\n" for option in lines.replace("N", "9" * 5000).split())
    import_text(
        f"#!/bin/bash\n{text}ulimit -n {'9' * 5000}\na=(x y)\necho ${{a[000000000{'1' * 5000}]}}\n{TRAINER}"
    )


def test_an_element_of_an_array_with_leading_zeros() -> None:
    import_text(f"#!/bin/bash\na=(x y)\necho ${{a[0000000009]}}\n{TRAINER}")


@pytest.mark.parametrize(
    "text",
    [
        "touch made",
        "$(touch made)",
        "x=`touch made`",
        "python train.py $(touch made) `touch made` <(touch made)",
        "#SBATCH --comment=$(touch made)\npython train.py",
        "bash -c 'touch made'",
        "eval 'touch made'",
        "cat <<EOF\n$(touch made)\nEOF",
        "docker run -v $(touch made):/x img touch made",
        "source made.sh",
    ],
)
def test_nothing_of_the_script_runs(text: str, current_folder: Path) -> None:
    (current_folder / "made.sh").write_text("touch made")
    import_text(text)
    assert not (current_folder / "made").exists()


@pytest.mark.parametrize(
    "text",
    [
        "export WANDB_API_KEY={}",
        "WANDB_API_KEY={}\nexport WANDB_API_KEY\ndocker run -e WANDB_API_KEY=$WANDB_API_KEY img x",
        "PASSWORD='{}'\npython train.py --login $PASSWORD",
        "MY_TOKEN={}\necho $MY_TOKEN {}\npython train.py {}",
        "docker run -e HF_TOKEN={} img python train.py",
        "docker run --env=HF_TOKEN={} --frobnicate img python train.py",
        "singularity exec --env A_SECRET={},B=1 i.sif python train.py",
        "srun --export=ALL,DB_PASSWORD={} python train.py",
        "#SBATCH --export=API_KEY={}\npython train.py",
        "API_TOKEN={} python train.py",
        "API_TOKEN={} vllm serve x &\npython train.py",
        "env API_TOKEN={} python train.py",
        "wandb login {}\npython train.py",
        "huggingface-cli login --token {}\npython train.py",
        "python train.py --api-key {}",
        "python train.py --api_key={}",
        "python -m openrlhf.cli.train_ppo_ray --use_wandb {}",
        "python train.py +trainer.wandb_api_key={}",
        "export https_proxy=http://me:{}@proxy:3128",
        "pip install --index-url https://me:{}@host/simple x",
        "docker run img bash -c 'pip install --index-url https://me:{}@host/simple x; python train.py'",
        "python train.py --data https://me:{}@host/x",
        "unknown_program --password {}",
        'ray job submit --runtime-env-json=\'{{"env_vars": {{"API_KEY": "{}"}}}}\' -- python train.py',
        'if [ -z "$X" ]; then export X_TOKEN={}; fi\npython train.py',
        "source /opt/x --token {}",
        "f() {{\n  export A_KEY={}\n}}\nf\npython train.py",
        "mysql_password={} && mysql -p{}",
        # By what a value is for: options, headers, addresses, arguments of programs.
        "curl -u me:{} https://host/x",
        "curl --user=me:{} https://host/x",
        "curl -H 'Authorization: Bearer {}' https://host/x",
        'curl -H "X-Api-Key: {}" https://host/x',
        "curl --header 'PRIVATE-TOKEN: {}' https://host/x",
        "curl -d x https://hooks.slack.com/services/T0/B0/{}",
        "curl https://discord.com/api/webhooks/1/{} -d x",
        "curl 'https://open.feishu.cn/open-apis/bot/v2/hook/{}' -d x",
        "curl 'https://host/x?access_token={}&a=b'",
        "wget --password {} https://host/x",
        "wget --http-password={} https://host/x",
        "PGPASSWORD={} psql -c 'select 1'",
        "export MYSQL_PWD={}",
        "DB_PASS={}\npython train.py --db $DB_PASS",
        "export dbPassword={}",
        "export SSHPASS={}",
        "export AWS_SECRET_ACCESS_KEY={} AWS_SESSION_TOKEN={}",
        "export SLACK_WEBHOOK={}",
        "export WANDB_APIKEY={}",
        "export AUTH_HEADER='Bearer {}'",
        "sshpass -p {} ssh host x",
        "sshpass -p{} ssh host x",
        "redis-cli -a {} ping",
        "mysql -uroot -p{} x",
        "docker login -u me -p {} registry",
        "docker login --password={} registry",
        "wandb login --relogin {}",
        "hf auth login {}",
        "aws configure set aws_secret_access_key {}",
        "git config --global github.token {}; git config set user.password {}",
        "kinit -w {} me",
        "openssl enc -k {} -in x",
        "git clone https://oauth2:{}@gitlab.com/x/y",
        "pip install git+https://{}:x-oauth-basic@github.com/x/y",
        "ARGS=(--a 1 --api-key {})\npython train.py ${ARGS[@]} $X",
        'ARGS="--a 1 --api-key {}"\npython train.py $ARGS $X',
        "A=$X\npython train.py --password {} $A",
        "A=$X\npython train.py --swanlab.api_key={} $A",
        "cat > x.yaml <<EOF\napi_key: {}\nEOF\npython train.py",
        "echo machine api.wandb.ai login user password {} >> ~/.netrc",
        "if [ $X ]; then\n  python x.py --token {}\nfi",
        "f() {{\n  python train.py --token {}\n}}\nf",
        'srun bash -c "python train.py --api-key {} $X"',
        "python - <<'EOF'\nimport wandb; wandb.login(key='{}')\nEOF",
        'python -c \'import os; os.environ["HF_TOKEN"] = "{}"\'',
    ],
)
@pytest.mark.parametrize("end", ["", "\npython train.py", "\nA=$B\npython train.py $A"])
def test_no_secret_is_written(text: str, end: str) -> None:
    """By name, by option or by what the program takes it for; whether it becomes a field or stays bash."""
    script = text.replace("{}", SECRET).replace("{{", "{").replace("}}", "}")
    assert SECRET not in import_text(script + end).text


@pytest.mark.parametrize(
    "form", ["python train.py --api-key {} $X", "A=$X; curl -u {} $A; python train.py $A"]
)
def test_a_short_secret(form: str) -> None:
    """It is not looked for elsewhere, as it may be part of other words."""
    assert "q7z" not in import_text(form.format("q7z")).text


@pytest.mark.parametrize(
    "text",
    [
        "TYPE=token\nREMOVE=true\npython train.py $TYPE $REMOVE $X",
        "python train.py --mode basic --learning-rate 3",
        'A=(--calculate-per-token-loss --loss-type sft)\npython train.py "${A[@]}"',
        'python train.py +teacher.gsm8k.key="openai/gsm8k"',
        "python train.py data.reward_model_key=reward_model --ground_truths_key ground_truth",
        "python train.py --use_wandb True",
    ],
)
def test_what_only_looks_like_a_secret(text: str) -> None:
    assert "..." not in import_text(text).text


def test_a_secret_in_an_array() -> None:
    """The command has the other elements as before."""
    run = fields(f'E=(x=1 +api_key={SECRET} y=2)\npython train.py "${{E[@]}}" $X')["run"]
    assert "E=(x=1 +api_key=... y=2)\n" in run
    assert 'python train.py "${E[@]}" $X' in run


@pytest.mark.parametrize("flag", ["--hf-auth-token", "--api-key", "--password"])
def test_a_flag_with_the_name_of_a_secret(flag: str) -> None:
    """The option after it is no secret."""
    command = ["python", "train.py", flag, "--learning-rate", "1e-6"]
    assert fields(" ".join(command))["run"] == command


@pytest.mark.parametrize(
    "text",
    [
        "# \x1b[31mred\x1b]0;title\x07\n" + TRAINER,
        "strange\x1b[31m --x\n" + TRAINER,
        "#SBATCH --comment='\x1b[31m'\n" + TRAINER,
        "python train.py $'a\\nb' 'x\x85y\x7f\u2028z'",
        "export A=$'\\n' B='# no comment' C=': x' D='- y' E='\u00e9\U0001f680'\n" + TRAINER,
        "#SBATCH -J 'a: b # c'\n" + TRAINER,
    ],
)
def test_special_characters(text: str) -> None:
    """The job spec is valid YAML, and shows no control character on a terminal."""
    made = import_text(text).text
    assert all(character.isprintable() or character == "\n" for character in made)
    assert yaml_source.read("job.yaml", made).problems == []


def test_the_name_of_the_script_is_data() -> None:
    made = read_launcher("a\x1b[31m\nname: x", TRAINER.encode()).text
    assert made.splitlines()[0].startswith("# From a?[31m?name: x, by ")


@pytest.mark.parametrize(
    ("version", "is_refused"),
    [
        *(("v3.8.0", True), ("3.13.1", True), ("(devel)", True), ("", True)),
        *(("v3.14.0", False), ("v3.14.1", False), ("4.0.0", False)),
    ],
)
def test_an_old_parser(
    version: str, is_refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = shutil.which("shfmt", path=str(Path(sys.executable).parent))
    (tmp_path / "shfmt").write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo \'{version}\' || exec {own} "$@"\n'
    )
    (tmp_path / "shfmt").chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: str(tmp_path / "shfmt"))
    if is_refused:
        shown = re.escape(version.removeprefix("v") or "of no version")
        with pytest.raises(
            UsageError, match=rf"/shfmt is shfmt {shown}, .*pip install 'shfmt-py>=4\.1', or "
        ):
            import_text(TRAINER)
    else:
        assert import_text(TRAINER).has_trainer


def test_without_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    expected = (
        "slurmray init --from needs shfmt, which reads bash: pip install 'shfmt-py>=4.1', "
        "or put shfmt 3.14 of github.com/mvdan/sh/releases on PATH"
    )
    with pytest.raises(UsageError) as caught:
        import_text(TRAINER)
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("platform", "machine", "has_wheel"),
    [
        *(("linux", "x86_64", True), ("linux", "aarch64", True)),
        *(("linux", "ppc64le", False), ("darwin", "x86_64", False), ("darwin", "arm64", False)),
    ],
)
def test_the_plain_install_brings_the_parser(platform: str, machine: str, has_wheel: bool) -> None:
    project = (ROOT / "pyproject.toml").read_text()
    dependencies, _, extras = project.partition("[project.optional-dependencies]")
    (line,) = re.findall('"(shfmt-py[^"]*)"', dependencies)
    needed = Requirement(line)
    assert needed.marker
    assert needed.marker.evaluate({"sys_platform": platform, "platform_machine": machine}) == has_wheel
    assert not needed.specifier.contains("4.0.0")
    assert "shfmt" not in extras
