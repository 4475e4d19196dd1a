"""Settings: their shape, their text, and that no value of a job spec can become anything else than text."""

import json
import os
import re
import subprocess
import types
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from typing_extensions import is_typeddict

from slurmray.agent import settings as shape
from slurmray.loading import load_spec
from slurmray.script.pretty import pretty
from slurmray.script.render import assemble, render_script, settings_of_text
from slurmray.script.settings import settings_of
from slurmray.spec import JobSpec
from tests.unit.test_render import CASES, GOLDENS, MARKED

IDS = [f"{spec.stem}.{runtime}" for spec, runtime in CASES]
every_case = pytest.mark.parametrize(("path", "runtime"), CASES, ids=IDS)


def spec_of(path: Path, runtime: str, root: Path) -> JobSpec:
    return load_spec(path.relative_to(root), [("--runtime", runtime)], [])


def annotations() -> Any:
    """The TypedDict Settings, which the module defines for type checkers only."""
    module = types.ModuleType("shape")
    text = Path(shape.__file__).read_text().replace("TYPE_CHECKING = False", "TYPE_CHECKING = True")
    exec(text, module.__dict__)  # noqa: S102 - our own file
    return module.__dict__["Settings"], module.__dict__


def misfits(value: Any, hint: Any, names: dict[str, Any], path: str = "") -> list[str]:
    """Where a value is not what the annotation says."""
    if is_typeddict(hint):
        hints = get_type_hints(hint, names)
        if not isinstance(value, dict) or list(value) != list(hints):
            return [f"{path}: {value!r} has not the keys {list(hints)}, in that order"]
        return [text for key in hints for text in misfits(value[key], hints[key], names, f"{path}.{key}")]
    if get_origin(hint) is Union:
        return min((misfits(value, each, names, path) for each in get_args(hint)), key=len)
    if get_origin(hint) is list:
        items = value if isinstance(value, list) else [value, "not a list"]
        return [text for item in items for text in misfits(item, get_args(hint)[0], names, f"{path}[]")]
    if get_origin(hint) is dict:
        keys, values = get_args(hint)
        return [
            text
            for key, item in value.items()
            for text in misfits(key, keys, names, path) + misfits(item, values, names, f"{path}[{key}]")
        ]
    return [] if hint is Any or type(value) is hint else [f"{path}: {value!r} is no {hint}"]


@every_case
def test_settings_have_the_shape_the_agent_reads(path: Path, runtime: str, in_checkout: Path) -> None:
    hint, names = annotations()
    assert misfits(settings_of(spec_of(path, runtime, in_checkout), "again"), hint, names) == []


def test_a_spec_with_every_field_has_that_shape_too() -> None:
    hint, names = annotations()
    settings = settings_of(JobSpec.model_validate(MARKED), "again")
    assert misfits(settings, hint, names) == []
    text = json.dumps(settings)
    for value in ("Zmark-setup", "Zmark-run", "Zmark-arg", "Zmark.io/zmark", "8642010", "Zmark-commit"):
        assert value in text


def test_the_check_of_the_shape_finds_what_is_wrong() -> None:
    hint, names = annotations()
    settings: dict[str, Any] = {**settings_of(JobSpec(), "again")}
    assert misfits({**settings, "nodes": "2"}, hint, names) == [".nodes: '2' is no <class 'int'>"]
    assert misfits({**settings, "nodes": True}, hint, names)
    assert misfits({**settings, "env": {"A": None}}, hint, names)
    assert misfits({key: settings[key] for key in settings if key != "nodes"}, hint, names)


def test_decisions() -> None:
    def settings(**fields: Any) -> Any:
        return settings_of(JobSpec.model_validate(fields), "again")

    assert settings()["container"]["runtimes"] == ["podman", "docker"]
    assert settings(run="echo $HOME")["trainer"]["command"] == ["bash", "-c", "echo $HOME"]
    assert settings(stop={"signal": "INT"})["stop"]["cancel_signal"] == "INT"
    assert settings(stop={"signal": "INT"}, requeue={"exit_code": 9})["stop"]["cancel_signal"] == "TERM"
    assert settings(ray={"debug": "legacy"})["ray"]["args"] == ["--ray-debugger-external"]
    assert settings(env={"A": "b", "SECRET": None})["env"] == {"A": "b"}
    assert settings(env={"A": "b", "SECRET": None})["env_from_submitter"] == ["SECRET"]
    assert settings(checks={"paths": ["/a"]}, preflight="none")["checks"]["paths"] == []
    (mount,) = settings(container={"mounts": ["a:/b:ro,z,rslave"]})["container"]["mounts"]
    assert mount == {"source": "a", "destination": "/b", "options": ["ro", "rslave"]}
    (service,) = settings(services=[{"name": "a", "run": "b", "image": "c"}])["services"]
    assert service["image_with_registry"] == "docker.io/library/c"
    assert service["run"] == ["bash", "-c", "b"]


def test_a_secret_has_no_value_in_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "Zmark-secret")
    text = render_script(JobSpec.model_validate({"env": {"WANDB_API_KEY": None}}))
    assert "WANDB_API_KEY" in text
    assert "Zmark-secret" not in text


# -- the text of the settings ----------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_pretty_is_json_without_invisible_characters(value: object) -> None:
    text = pretty(value)
    assert json.loads(text) == value
    assert pretty(json.loads(text)) == text
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\xa0\u2028-\u202e\ud800-\udfff]", text)
    text.encode()


def test_pretty_keeps_short_things_on_a_line() -> None:
    value = {"a": ["x", "y"], "b": {"c": [1], "d": {}}, "e": ["z" * 50, "z" * 60], "f": {"g": 1}}
    assert pretty(value).splitlines() == [
        "{",
        '  "a": ["x", "y"],',
        '  "b": {',
        '    "c": [1],',
        '    "d": {}',
        "  },",
        '  "e": [',
        f'    "{"z" * 50}",',
        f'    "{"z" * 60}"',
        "  ],",
        '  "f": {"g": 1}',
        "}",
    ]


# -- through bash ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(GOLDENS.glob("hostile*.yaml")), ids=lambda path: path.stem)
def test_hostile_values_are_text(path: Path, tmp_path: Path, in_checkout: Path) -> None:
    runtime = {"hostile": "podman"}.get(path.stem, path.stem.removeprefix("hostile-").replace("bare", "none"))
    spec = spec_of(path, runtime, in_checkout)
    text = render_script(spec, "it's `id` $HOME \\ \u202e\n")
    head, _, rest = text.partition(": <<'SETTINGS'\n")
    body, end, after = rest.partition("\nSETTINGS\n")
    assert end
    assert json.loads(body) == settings_of(spec, "it's `id` $HOME \\ \u202e\n")
    script = tmp_path / "script.sh"
    script.write_text(f"{head}while IFS= read -r line; do echo \"$line\"; done <<'SETTINGS'\n{body}{end}")
    done = subprocess.run(["/bin/bash", script], cwd=tmp_path, capture_output=True, check=True, env={})
    assert done.stderr == b""
    assert json.loads(done.stdout) == settings_of(spec, "it's `id` $HOME \\ \u202e\n")
    assert list(tmp_path.iterdir()) == [script]
    # The story has no value of the job spec in it.
    story = after[: after.index("\n: <<'AGENT'\n")]
    assert "it's" not in story.replace("job's", "")
    assert "{{" not in story


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
@pytest.mark.parametrize(
    "setup",
    [
        "",
        "module load python",
        'it\'s "quoted" \\"\\\\ \\n %s %% $HOME `id`\n\tnext\n',
        "a\rb\x01\x7f\\c\\0101 é☃",
        '\\\\"',
    ],
)
def test_bash_reads_the_setup_without_python(setup: str, locale: str, tmp_path: Path) -> None:
    """A host without Python has nothing else that reads JSON."""
    script = tmp_path / "script.sh"
    script.write_text(render_script(JobSpec(setup=setup)))
    env = {"LC_ALL": locale, "PATH": os.environ["PATH"]}
    done = subprocess.run(["bash", script, "setup_of_settings"], env=env, capture_output=True, check=True)
    assert done.stdout.decode() == setup


@hypothesis_settings(max_examples=40)
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs", "Cf"], max_codepoint=0xFFFF)))
def test_bash_reads_any_setup(tmp_path_factory: pytest.TempPathFactory, setup: str) -> None:
    script = tmp_path_factory.mktemp("setup") / "script.sh"
    text = assemble([], pretty({"version": "1", "setup": setup, "preflight": "fail"}), ["none"])
    script.write_text(text.partition("\n# ---- 3. agent")[0] + "\n")
    env = {"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]}
    done = subprocess.run(["bash", script, "setup_of_settings"], env=env, capture_output=True, check=True)
    assert done.stdout.decode() == setup


def test_settings_of_text() -> None:
    text = render_script(JobSpec(), "again")
    assert json.loads(settings_of_text(text)) == settings_of(JobSpec(), "again")
    with pytest.raises(ValueError, match="SETTINGS"):
        settings_of_text("#!/bin/bash\n")
