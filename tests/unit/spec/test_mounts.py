"""Mounts as text: SOURCE[:DEST[:OPTIONS]]."""

import pytest

from slurmray.spec.mounts import Mount, parse_mount


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("~/data", Mount("~/data", None, ())),
        ("a b:/c d", Mount("a b", "/c d", ())),
        ("/a/:/b//c/../d/", Mount("/a/", "/b/d", ())),
        ("/a:/b:ro,z,rslave", Mount("/a", "/b", ("ro", "z", "rslave"))),
    ],
)
def test_mount(text: str, expected: Mount) -> None:
    assert parse_mount(text) == expected


@pytest.mark.parametrize(
    "text", ["", "a:", ":/b", "a:b", "a:/", "a:/b:", "a:/b:exec", "a:/b:ro,rw", "a:/b:z,Z", "a:/b:ro:x"]
)
def test_mount_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|unknown mount option|exclude each other"):
        parse_mount(text)
