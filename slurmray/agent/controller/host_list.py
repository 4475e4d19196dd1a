"""Slurm's host lists, e.g. `gpu-[001-064],login`. Slurm's commands and pdsh read them."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Tuple

NAMES_SHOWN = 4  # nodes named in a log line


def host_list(nodes: "Iterable[str]") -> str:
    """The host list of nodes, sorted. Slurm puts only numbers at the end of names into brackets."""
    names: "List[str]" = []  # without a number
    numbers: "Dict[str, List[str]]" = {}  # prefix -> numbers as in the names, e.g. 001
    for node in sorted(set(nodes)):
        prefix = node.rstrip("0123456789")
        if prefix == node:
            names.append(node)
        else:
            numbers.setdefault(prefix, []).append(node[len(prefix) :])
    return ",".join(sorted(names + [prefix + _ranges(numbers[prefix]) for prefix in numbers]))


def _ranges(numbers: "List[str]") -> str:
    """`[1-3,7]`, or a single number as it is."""
    ranges: "List[Tuple[str, str]]" = []
    for number in sorted(numbers, key=lambda digits: (int(digits), len(digits))):
        first, last = ranges[-1] if ranges else ("", "")
        # A range counts with the width of its first number: 08-10 is 08, 09, 10; 8-10 is 8, 9, 10.
        if last and number == str(int(last) + 1).zfill(len(first)):
            ranges[-1] = first, number
        else:
            ranges.append((number, number))
    texts = [first if first == last else "%s-%s" % (first, last) for first, last in ranges]
    return "[%s]" % ",".join(texts) if len(numbers) > 1 else texts[0]


def names(nodes: "List[str]") -> str:
    """`node1, node2 and 3 more`."""
    more = " and %d more" % (len(nodes) - NAMES_SHOWN) if len(nodes) > NAMES_SHOWN else ""
    return ", ".join(nodes[:NAMES_SHOWN]) + more


def and_names(nodes: "List[str]") -> str:
    """`node1`, `node1, node2 and node3`; a host list of more than NAMES_SHOWN."""
    if len(nodes) > NAMES_SHOWN:
        return host_list(nodes)
    return " and ".join(filter(None, [", ".join(nodes[:-1]), *nodes[-1:]]))
