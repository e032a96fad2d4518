# SPDX-License-Identifier: Apache-2.0
"""What a guest without an operating system says first is read as anybody's words."""

import json

import pytest

from virtune.bench.qemu.load import hello_of
from virtune.model.errors import RigError


def test_what_the_guest_says_first_is_read() -> None:
    said = {"version": "0.1.0", "exit_ns": 26000, "disks": ["disk0"]}
    assert hello_of(json.dumps(said).encode()) == said


@pytest.mark.parametrize(
    "body",
    [
        b'{"version": "0.1.0"}',  # a program that was built before exits were measured
        b'{"exit_ns": 26000}',  # and before it had several disks
        b'{"exit_ns": "soon", "disks": []}',
        b"[1]",
        b"\xff\xfe",
        b"",
        b"[" * 100_000,
        json.dumps({"exit_ns": None, "disks": []}).encode(),
    ],
    ids=["older", "old", "words", "list", "bytes", "nothing", "deep", "null"],
)
def test_a_program_of_another_version_is_named(body: bytes) -> None:
    with pytest.raises(RigError, match="virtune-guest is not of this version of virtune"):
        hello_of(body)
