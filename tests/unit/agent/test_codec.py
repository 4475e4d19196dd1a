"""The wire format: no message is lost, damaged or merged, in whatever pieces the bytes arrive."""

from __future__ import annotations

import json
import os
import random
import select
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmray.agent.wire import codec

TEXTS = st.text(max_size=400) | st.binary(max_size=40).map(os.fsdecode)
MESSAGES = st.fixed_dictionaries(
    {"type": st.sampled_from(["phase", "finding", "exit"]), "node": TEXTS.map(lambda text: text[:60])},
    optional={"text": TEXTS, "code": st.integers(), "addresses": st.lists(TEXTS, max_size=5)},
)


@given(MESSAGES)
def test_a_message_is_decoded_unchanged(message: Any) -> None:
    line = codec.encode(message)
    assert line.endswith(b"\n")
    assert b"\n" not in line[:-1]
    assert codec.decode(line[:-1]) == message


@given(
    st.text(max_size=3000),
    st.text(max_size=3000),
    st.lists(st.text(max_size=60), max_size=60),
    st.integers(1, 60),
)
def test_a_message_to_the_controller_fits_into_a_line_of_srun(
    found: str, fix: str, addresses: list[str], length: int
) -> None:
    message: Any = {"type": "finding", "found": found, "fix": fix, "addresses": addresses}
    line = codec.encode_to_controller(message, "n" * length)
    assert len(line) <= codec.MAX_BYTES_TO_CONTROLLER
    decoded = codec.decode(line[:-1])
    assert decoded
    assert decoded["node"] == "n" * length
    assert decoded["addresses"] == addresses[: len(decoded["addresses"])]
    message["node"] = "n" * length
    if len(codec.encode(message)) <= codec.MAX_BYTES_TO_CONTROLLER:
        assert decoded == message


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    text = "building: " + "x" * 5000 + ": permission denied"
    line = codec.encode_to_controller({"type": "failed", "message": text, "kind": "image"}, "node1")
    decoded = codec.decode(line)
    assert decoded
    assert decoded["message"].startswith("building: xxx")
    assert decoded["message"].endswith("xxx: permission denied")
    assert " ... " in decoded["message"]
    assert len(line) > codec.MAX_BYTES_TO_CONTROLLER - 60  # no more is cut than necessary


@given(st.lists(MESSAGES, max_size=20), st.randoms(use_true_random=False))
def test_messages_in_pieces_of_any_size(messages: list[Any], chance: random.Random) -> None:
    data = b"".join(map(codec.encode, messages))
    decoder, lines = codec.LineDecoder(), []
    while data:
        size = chance.choice([0, 1, 2, 7, 100, 4096])
        lines += decoder.feed(data[:size])
        data = data[size:]
    assert [codec.decode(line) for line in lines] == messages
    assert decoder.feed(b"\n") == [b""]


def test_a_million_messages_through_a_pipe() -> None:
    """In pieces of random sizes, with timeouts at random moments: bash's `read -t` loses bytes then."""
    chance = random.Random(19)
    texts = ["", "4/4 nodes", "é \udcff \n \0", "x" * 300]
    kinds: list[Any] = [
        {"type": "phase", "node": f"node{n}", "text": text} for n in range(50) for text in texts
    ]
    lines = [codec.encode(message) for message in kinds]
    order = [chance.randrange(len(kinds)) for _ in range(1_000_000)]
    out, into = os.pipe()

    def write() -> None:
        data = b"".join(lines[number] for number in order)
        position = 0
        while position < len(data):
            size = chance.choice([1, 3, 90, 2000, 60_000, 60_000, 60_000])
            position += os.write(into, data[position : position + size])
        os.close(into)

    writer = threading.Thread(target=write)
    writer.start()
    decoder = codec.LineDecoder()
    position = timeouts = 0
    clock = random.Random(20)
    while True:
        if not select.select([out], [], [], clock.choice([0, 0, 1e-6, 1e-4]))[0]:
            timeouts += 1
            continue
        data = os.read(out, clock.choice([1, 50, 4096, 65_536]))
        if not data:
            break
        for line in decoder.feed(data):
            # Decoding each would take most of a minute. A line equal to an encoded one is that message.
            assert line + b"\n" == lines[order[position]]
            position += 1
    writer.join()
    os.close(out)
    assert position == len(order)
    assert timeouts > 10
    assert decoder.feed(b"\n") == [b""]
    assert all(codec.decode(line) == kind for line, kind in zip(lines, kinds, strict=True))


@pytest.mark.parametrize(
    "line", [b"", b"hello", b"{", b"{}", b"[1]", b'{"type":"x"}', b'{"v":1}', b'{"v":1,"type":2}', b"{\xff}"]
)
def test_other_output_is_not_a_message(line: bytes) -> None:
    assert codec.decode(line) is None


def test_a_message_of_another_version() -> None:
    line = json.dumps({"v": 2, "type": "heartbeat"}).encode()
    with pytest.raises(codec.ProtocolError, match="version 2"):
        codec.decode(line)


def test_a_line_without_end_takes_no_memory() -> None:
    decoder = codec.LineDecoder(limit=1000)
    for _ in range(100):
        assert decoder.feed(b"x" * 100) == []
    assert sum(map(len, decoder._pieces)) <= 1000
    assert decoder.feed(b"\nnext\n") == [b"next"]


def test_a_message_that_is_too_large() -> None:
    with pytest.raises(codec.ProtocolError, match="at most"):
        codec.encode({"type": "head_versions", "text": "x" * codec.MAX_BYTES_TO_NODES})
