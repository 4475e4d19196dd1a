"""Job specs as YAML: what is written is what is read, with comments behind the fields."""

from __future__ import annotations

import pytest

from slurmray import yaml_source
from slurmray.errors import SpecError
from slurmray.loading.write import write_yaml


@pytest.mark.parametrize("is_fast", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "a", "null", "~", "true", "007", "12:00:00", "1e-6", "- a", "a: b", "a #b", "---", "..."),
        *(
            "#",
            "*",
            "&a",
            "!x",
            "%",
            "@",
            "`",
            "'",
            '"',
            "it's",
            "[a",
            "{",
            "a\\b",
            "$HOME/x",
            "é",
            "\U0001f680",
        ),
        *("a\nb", "a\n", "a\n\n\nb\n\n", " a\nb", "\ta\nb", "a\n\tb", "a \nb", "\na", "a\n  b\n c", "\n"),
        *("a\x85b", "a\u2028b\nc", "\x7f", "\t", "a\r\nb", "\ufeffa", "a\n---\nb", "a\n# b"),
    ],
)
def test_what_is_written_is_read(text: str, is_fast: bool) -> None:
    spec = {
        "run": text,
        "items": [text, {"a": text, "b": None}, [text]],
        "empty": [],
        "env": {f"x{text}": text},
    }
    paths = [("run",), ("items", "0"), ("items", "1", "b"), ("empty",), ("env", f"x{text}"), ("no", "such")]
    made = write_yaml(spec, dict.fromkeys(paths, "line 1"))
    assert yaml_source.read("job.yaml", made, is_fast=is_fast).data == spec
    assert made.count("# line 1\n") == len(paths) - 1


def test_numbers_and_truth() -> None:
    assert write_yaml({"a": [1, 1.5, True, None]}, {}) == "a:\n  - 1\n  - 1.5\n  - true\n  - null\n"


def test_texts_of_several_lines_are_blocks() -> None:
    made = write_yaml({"run": "a() {\n\tb \n\n}\na"}, {("run",): "lines 1-5"})
    assert made == "run: |- # lines 1-5\n  a() {\n  \tb \n\n  }\n  a\n"


def test_a_text_that_no_job_spec_may_have() -> None:
    with pytest.raises(SpecError, match="the job spec: is larger than 256 KB"):
        write_yaml({"run": "x" * yaml_source.MAX_BYTES}, {})
