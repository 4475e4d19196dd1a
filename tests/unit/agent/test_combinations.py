"""Values of a sweep in the trainer's command; how a task gets them: controller/test_controller_process.py."""

from __future__ import annotations

import pytest

from slurmray.agent.combinations import fill_in


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["train", "lr=$lr", "${lr}-$b", "$lr$b"], ["train", "lr=1", "1-$(x)", "1$(x)"]),
        (["train", "$lrs", "$HOME", "$$lr", "${lr"], ["train", "$lrs", "$HOME", "$$lr", "${lr"]),
        (["/bin/bash", "-lc", "echo $b"], ["/bin/bash", "-lc", "echo $b"]),
        (["bash", "train.sh", "$b"], ["bash", "train.sh", "$(x)"]),
        ([], []),
    ],
)
def test_values_in_a_command(command: list[str], expected: list[str]) -> None:
    """A shell gets none: it would run what is in them."""
    assert fill_in(command, {"lr": "1", "b": "$(x)"}) == expected
