import pytest

from slurmray.slurm import syntax


def read_like_sbatch(line: str) -> str:
    """Parse the rest of an #SBATCH line like sbatch (src/sbatch/opt.c, get_argument)."""
    value, quote, position = "", "", 0
    while position < len(line):
        char = line[position]
        if char == "\\" and quote != "'" and position + 1 < len(line):
            position += 1
            value += line[position]
        elif quote and char == quote:
            quote = ""
        elif not quote and char in "\"'":
            quote = char
        elif not quote and (char.isspace() or char == "#"):
            break
        else:
            value += char
        position += 1
    assert not quote
    return value


@pytest.mark.parametrize(
    "value",
    [
        "",
        "1-00:00:00",
        "a b",
        'a "b"',
        r"back\slash",
        "\\",
        "it's",
        "#no comment",
        "a#b",
        "q#%x.%j.log",
        "h100&ib",
        "$HOME `x`",
        "é\t",
    ],
)
def test_sbatch_reads_the_quoted_value(value: str) -> None:
    line = syntax.directive("comment", value)
    assert line.startswith("#SBATCH --comment=")
    assert read_like_sbatch(line.removeprefix("#SBATCH ")) == f"--comment={value}"


def test_a_plain_value_is_not_quoted() -> None:
    assert syntax.directive("time", "1-00:00:00") == "#SBATCH --time=1-00:00:00"
    assert syntax.directive("hold", None) == "#SBATCH --hold"


@pytest.mark.parametrize(
    ("gres", "expected"),
    [
        ("gpu:8", (None, 8)),
        ("gpu:h100:8", ("h100", 8)),
        ("gpu", (None, 1)),
        ("gpu:h100", ("h100", 1)),
        ("nvme:1,gpu:2", (None, 2)),
        ("nvme:1", (None, 0)),
        ("gpuless:3", (None, 0)),
        ("gpu-slice:3", (None, 0)),
        ("none", (None, 0)),
        ("gpu:0", (None, 0)),
        ("gpu:3090:4", ("3090", 4)),
        ("gpu:1g.10gb:2", ("1g.10gb", 2)),
        ("gpu:1g.10gb", ("1g.10gb", 1)),
        ("gres/gpu:h100:8, gres/nvme:1", ("h100", 8)),
    ],
)
def test_gpus_in_gres(gres: str, expected: tuple[str | None, int]) -> None:
    assert syntax.gpus_in_gres(gres) == expected


@pytest.mark.parametrize(
    "gres",
    ["gpu:h100:x", "gpu:", "gpu::8", "gpu:a:b:1", "gpu:8(S:0-1)", "gpu(S:0)", "gpu=8", "nvme:1,gpu:-1:1:1"],
)
def test_malformed_gres_is_refused(gres: str) -> None:
    with pytest.raises(ValueError, match="expected gpu, gpu:8 or gpu:h100:8, got 'gpu"):
        syntax.gpus_in_gres(gres)


@pytest.mark.parametrize("gres", ["gpu:2k", "gpu:h100:1M", "gpu:1234567890"])
def test_more_gpus_than_a_node_can_have(gres: str) -> None:
    with pytest.raises(ValueError, match="no node has so many GPUs"):
        syntax.gpus_in_gres(gres)


def test_two_kinds_of_gpus_are_refused() -> None:
    with pytest.raises(ValueError, match="more than one type"):
        syntax.gpus_in_gres("gpu:a100:4,gpu:h100:4")


def test_gpus_in_count() -> None:
    assert syntax.gpus_in_count("8") == (None, 8)
    assert syntax.gpus_in_count("h100:8") == ("h100", 8)
    assert syntax.gpus_in_count("0") == (None, 0)
    assert syntax.gpus_in_count("1g.10gb:2") == ("1g.10gb", 2)
    for text in ("", "h100", "08", "-1", "h100:", "gpu:h100:8", "٨"):
        with pytest.raises(ValueError, match="expected a number"):
            syntax.gpus_in_count(text)


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("--comment=x", ("comment", "x")),
        ("--site-option=a=b", ("site-option", "a=b")),
        ("--site-flag", ("site-flag", None)),
        ("--hold", ("hold", None)),
        ("--exclusive=user", ("exclusive", "user")),
    ],
)
def test_extra(option: str, expected: tuple[str, str | None]) -> None:
    assert syntax.split_extra(option) == expected


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("comment=x", "expected one long option"),
        ("-c 4", "expected one long option"),
        ("--comment x", "expected one long option"),
        ("--nodes=3", "use slurm.nodes"),
        ("--wrap=x", "use run"),
        ("--ntask=3", "write the full name"),
        ("--hold=1", "takes no value"),
        ("--time", "needs a value"),
    ],
)
def test_extra_refused(option: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        syntax.split_extra(option)


def test_no_option_is_both_known_and_taken() -> None:
    assert not syntax.OPTIONS.keys() & syntax.RESERVED.keys()
    assert set(syntax.FIELDS_ONLY) <= syntax.OPTIONS.keys()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu-[0,1]", ["gpu-0", "gpu-1"]),
        ("a[08-10]-ib,b", ["a08-ib", "a09-ib", "a10-ib", "b"]),
        ("r[1-2]n[09,10]x", ["r1n09x", "r1n10x", "r2n09x", "r2n10x"]),
        ("", []),
    ],
)
def test_hostlist_is_expanded(text: str, expected: list[str]) -> None:
    assert syntax.expand_host_list(text, 4) == expected


@pytest.mark.attack("a damaged events.jsonl")
@pytest.mark.parametrize(
    "text",
    [
        "n[1-5]",
        "n[1-3],a,b",
        "n[1-999999999]",
        "[1-3][1-3]",
        "n[1-2" + ",3" * 10**4 + "]",
        "n[x]",
        "n[]",
        "a,[",
        "[" * 10**6,
    ],
)
def test_host_list_that_is_wrong_or_too_long(text: str) -> None:
    with pytest.raises(ValueError, match=r"more than 4 hosts|: expected "):
        syntax.expand_host_list(text, 4)
