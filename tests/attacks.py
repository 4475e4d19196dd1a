"""Counts the hostile inputs of each test, for docs/inside/faults.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

_count = 0  # inputs of the running test


def tried(inputs: Iterable[T]) -> Iterator[T]:
    """Yield hostile inputs one by one, and count those that the running test takes."""
    global _count  # noqa: PLW0603 - one test runs at a time
    for each in inputs:
        _count += 1
        yield each


def _counted(test: Callable[..., Any]) -> Callable[..., Any]:
    """Return a test of Hypothesis that counts its examples."""

    @wraps(test)
    def count(*args: Any, **kwargs: Any) -> Any:
        next(tried([args]))
        return test(*args, **kwargs)

    return count


class Counter:
    """A pytest plugin: hands the recorder kind and number of inputs of each test with the mark `attack`.

    Its inputs are those of `tried`, or the examples of Hypothesis. Without either, a test with parameters has
    one, and another test as many as its mark says: `inputs`.
    """

    @pytest.hookimpl(tryfirst=True)  # before marks leave it out
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Note the kind: a test that is left out, or fails before it begins, has tried nothing."""
        if mark := item.get_closest_marker("attack"):
            item.user_properties.append(("attack", [mark.args[0], 0]))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Count what a test tries."""
        global _count  # noqa: PLW0603
        _count = 0
        mark = item.get_closest_marker("attack")
        handle = getattr(getattr(item, "obj", None), "hypothesis", None) if mark else None
        test = handle.inner_test if handle else None
        if handle:
            handle.inner_test = _counted(handle.inner_test)
        try:
            return (yield)
        finally:
            if handle:
                handle.inner_test = test
            if mark:
                given = 1 if hasattr(item, "callspec") else mark.kwargs.get("inputs", 1)
                item.user_properties.append(("attack", [mark.args[0], _count or given]))
