"""Reads the records of `scontrol --oneliner show node`, as Slurm 21.08 to 26.05 print them."""

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Tuple

# Reason and Comment, which are an administrator's texts, come later in a line.
_RECORD = re.compile("^NodeName=([^ ]+) .*? State=([A-Z_]+).*? BootTime=([0-9]{1,12}) ", re.MULTILINE)


def parse(shown: str) -> "Dict[str, Tuple[bool, int]]":
    """Node -> whether Slurm has marked it down, and when it booted, seconds since 1970."""
    return {name: (state == "DOWN", int(boot)) for name, state, boot in _RECORD.findall(shown)}
