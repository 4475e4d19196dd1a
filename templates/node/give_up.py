"""How a node says that the job cannot go on."""


class GiveUp(Exception):
    """(kind, text): the batch script ends the job with the exit code of that kind."""
