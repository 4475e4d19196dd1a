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

from slurmray.agent import protocol

TEXTS = st.text(max_size=400) | st.binary(max_size=40).map(os.fsdecode)
MESSAGES = st.fixed_dictionaries(
    {"type": st.sampled_from(["phase", "finding", "exit"]), "node": TEXTS.map(lambda text: text[:60])},
    optional={"text": TEXTS, "code": st.integers(), "addresses": st.lists(TEXTS, max_size=5)},
)


@given(MESSAGES)
def test_a_message_is_decoded_unchanged(message: dict[str, Any]) -> None:
    line = protocol.encode(message)
    assert line.endswith(b"\n")
    assert b"\n" not in line[:-1]
    assert protocol.decode(line[:-1]) == message


@given(
    st.text(max_size=3000),
    st.text(max_size=3000),
    st.lists(st.text(max_size=60), max_size=60),
    st.integers(1, 60),
)
def test_a_message_to_the_controller_fits_into_a_line_of_srun(
    found: str, fix: str, addresses: list[str], length: int
) -> None:
    message = {"type": "finding", "node": "n" * length, "found": found, "fix": fix, "addresses": addresses}
    line = protocol.encode_to_controller(message)
    assert len(line) <= protocol.MAX_BYTES_TO_CONTROLLER
    decoded = protocol.decode(line[:-1])
    assert decoded
    assert decoded["node"] == message["node"]
    assert decoded["addresses"] == addresses[: len(decoded["addresses"])]
    if len(protocol.encode(message)) <= protocol.MAX_BYTES_TO_CONTROLLER:
        assert decoded == message


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    text = "building: " + "x" * 5000 + ": permission denied"
    line = protocol.encode_to_controller(
        {"type": "failed", "node": "node1", "message": text, "kind": "image"}
    )
    decoded = protocol.decode(line)
    assert decoded
    assert decoded["message"].startswith("building: xxx")
    assert decoded["message"].endswith("xxx: permission denied")
    assert " ... " in decoded["message"]
    assert len(line) > protocol.MAX_BYTES_TO_CONTROLLER - 60  # no more is cut than necessary


@given(st.lists(MESSAGES, max_size=20), st.randoms(use_true_random=False))
def test_messages_in_pieces_of_any_size(messages: list[dict[str, Any]], chance: random.Random) -> None:
    data = b"".join(map(protocol.encode, messages))
    decoder, lines = protocol.LineDecoder(), []
    while data:
        size = chance.choice([0, 1, 2, 7, 100, 4096])
        lines += decoder.feed(data[:size])
        data = data[size:]
    assert [protocol.decode(line) for line in lines] == messages
    assert decoder.feed(b"\n") == [b""]


def test_a_million_messages_through_a_pipe() -> None:
    """In pieces of random sizes, with timeouts at random moments: bash's `read -t` loses bytes then."""
    chance = random.Random(19)
    texts = ["", "4/4 nodes", "é \udcff \n \0", "x" * 300]
    kinds = [{"type": "phase", "node": f"node{n}", "text": text} for n in range(50) for text in texts]
    lines = [protocol.encode(message) for message in kinds]
    order = [chance.randrange(len(kinds)) for _ in range(1_000_000)]
    out, into = os.pipe()

    def write() -> None:
        data = b"".join(lines[each] for each in order)
        position = 0
        while position < len(data):
            size = chance.choice([1, 3, 90, 2000, 60_000, 60_000, 60_000])
            position += os.write(into, data[position : position + size])
        os.close(into)

    writer = threading.Thread(target=write)
    writer.start()
    decoder = protocol.LineDecoder()
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
    assert all(protocol.decode(line) == kind for line, kind in zip(lines, kinds, strict=True))


@pytest.mark.parametrize(
    "line", [b"", b"hello", b"{", b"{}", b"[1]", b'{"type":"x"}', b'{"v":1}', b'{"v":1,"type":2}', b"{\xff}"]
)
def test_other_output_is_not_a_message(line: bytes) -> None:
    assert protocol.decode(line) is None


def test_a_message_of_another_version() -> None:
    line = json.dumps({"v": 2, "type": "heartbeat"}).encode()
    with pytest.raises(protocol.ProtocolError, match="version 2"):
        protocol.decode(line)


def test_a_line_without_end_takes_no_memory() -> None:
    decoder = protocol.LineDecoder(limit=1000)
    for _ in range(100):
        assert decoder.feed(b"x" * 100) == []
    assert sum(map(len, decoder._pieces)) <= 1000
    assert decoder.feed(b"\nnext\n") == [b"next"]


def test_a_message_that_is_too_large() -> None:
    with pytest.raises(protocol.ProtocolError, match="at most"):
        protocol.encode({"type": "job", "text": "x" * protocol.MAX_BYTES_TO_NODES})
