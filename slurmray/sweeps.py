"""Sweeps as they are read from a script or the list of submitted jobs."""

from __future__ import annotations

import math
from typing import TypeGuard

MAX_TASKS = 1000  # of a sweep: Slurm's default for MaxArraySize is 1001
MAX_VALUE = 1000  # characters


def is_sweep(value: object) -> TypeGuard[dict[str, list[str]]]:
    """Whether a value is a sweep, {parameter: values}, of at most MAX_TASKS tasks; {} is none."""
    if not isinstance(value, dict) or not all(isinstance(values, list) for values in value.values()):
        return False
    texts = [*value, *(text for values in value.values() for text in values)]
    is_text = all(isinstance(text, str) and len(text) <= MAX_VALUE for text in texts)
    return is_text and all(value.values()) and math.prod(map(len, value.values())) <= MAX_TASKS
