# SPDX-License-Identifier: Apache-2.0
"""`virtune host probe` as a user calls it."""

import os
import time
from pathlib import Path

from tests.conftest import User


def test_the_page_is_printed_in_time_and_in_100_columns(user: User) -> None:
    begin = time.monotonic()
    ran = user.run("host", "probe")
    assert time.monotonic() - begin < 60  # two for the probe, the rest for a cold Python on a busy machine
    assert max(len(line) for line in ran.stdout.splitlines()) <= 100
    for word in ("processors", "io_uring", "/dev/kvm", "fio", "O_DIRECT", "warnings and notes"):
        assert word in ran.stdout
    assert "\x1b[" not in ran.stdout
    assert ran.stderr == ""


def test_the_document_has_its_schema_and_numbers_with_units(user: User, tmp_path: Path) -> None:
    document = user.run("host", "probe", "--json", "--scratch", str(tmp_path)).json()
    assert document["schema"] == "virtune/probe/1"
    host = document["host"]
    assert host["kernel"]["release"] == os.uname().release
    assert host["memory"]["total_bytes"] > 0
    assert host["scratch"]["directory"] == str(tmp_path)
    assert {"id", "weight", "text", "advice"} == set().union(*document["findings"])
    assert all(isinstance(because, str) for because in document["unknown"].values())


def test_without_any_program_the_probe_still_answers(user: User, tmp_path: Path) -> None:
    document = user.run("host", "probe", "--json", path=str(tmp_path)).json()
    assert document["host"]["fio"]["program"] is None
    assert document["unknown"]["fio.program"] == "not installed"
    assert document["unknown"]["qemu.storage_daemon"] == "not installed"
    assert "fio is not installed" in [finding["text"] for finding in document["findings"]]


def test_help_says_what_is_tried(user: User) -> None:
    text = user.run("host", "probe", "--help").stdout
    assert "--scratch" in text
    assert "does not yet mean that a guest boots" in " ".join(text.split())
