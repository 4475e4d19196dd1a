"""Functions that tests submit: jobs import this module."""


def add(first: int, second: int) -> int:
    return first + second
