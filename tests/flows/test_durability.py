# SPDX-License-Identifier: Apache-2.0
"""Whether what was flushed is there after a power cut is found out of honest stacks and of those that lie."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.bench.loops import loops_on
from tests.conftest import User, bare_guest, eventually, generator, marked_processes

from virtune.cli import run

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("loop devices")]

LOAD = ("--workload", "randread-4k", "--span", "16M", "--rounds", "1", "--seconds", "100ms", "--ramp", "0")
CALL = ("--check-durability", "--attempts", "1", *LOAD, "-q")
NO_LOOPS = ("unshare", "--mount", "sh", "-c", 'mount --bind /dev/null /dev/loop-control && exec "$@"', "sh")
"""What runs a command where no loop device can be made."""


@pytest.fixture(autouse=True)
def _loaded_by_our_own() -> None:
    generator()


@pytest.fixture
def place(tmp_path: Path) -> tuple[str, ...]:
    return ("--scratch", str(tmp_path / "scratch"), "--store", str(tmp_path / "store"))


def check_of(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The check of the only arm that these words measure."""
    assert run(["compare", "measure", *CALL, *words, "--json"]) == 0
    checks = json.loads(capsys.readouterr().out)["arms"][0]["in_force"]
    (check,) = [one for one in checks if one["setting"] == "durability"]
    return dict(check)


HONEST = {
    "metal": ("--rig", "metal"),
    "raw": ("--rig", "vhost-user", "--set", "disk.aio=io_uring"),
    "page cache": ("--rig", "vhost-user", "--set", "disk.cache=writeback"),
    "qcow2": ("--rig", "storage-daemon", "--set", "disk.format=qcow2"),
    "chain": ("--rig", "vhost-user", "--set", "disk.format=qcow2", "--set", "disk.backing_depth=2"),
    "data file": ("--rig", "vhost-user", "--set", "disk.format=qcow2", "--set", "disk.data_file=on"),
    "luks": ("--rig", "vhost-user", "--set", "disk.format=qcow2", "--set", "disk.encryption=luks"),
}


@pytest.mark.parametrize("stack", HONEST)
def test_an_honest_stack_keeps_what_was_flushed(
    stack: str, place: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    check = check_of((*HONEST[stack], *place), capsys)
    assert (check["asked"], check["found"]) == ("kept", "kept")
    killed = "" if stack == "metal" else "its process was killed 3 times and "
    cuts = 3 if stack == "metal" else 2
    said = r"all [\d.,k]+ flushed blocks were there after 3 cuts.*\. In place of a power cut "
    said += rf"{killed}the ext4 below its image was cut off {cuts} times; not shown: the drive's own cache"
    assert re.match(said, check["proof"]), check["proof"]
    assert (", its NBD export, which a" in check["proof"]) is (stack == "qcow2")


@pytest.mark.parametrize("kind", ["raw", "qcow2"])
def test_where_every_write_is_promised_those_not_flushed_are_there_too(
    kind: str, place: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--rig", "vhost-user", "--set", "disk.cache=writethrough", "--set", f"disk.format={kind}")
    check = check_of((*words, *place), capsys)
    assert check["found"] == "kept"
    assert re.match(r"all [\d.,k]+ acknowledged blocks were there after 3 cuts\. ", check["proof"]), check["proof"]


def test_an_unsafe_cache_loses_what_was_flushed_and_promised_no_more(
    place: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    check = check_of(("--rig", "vhost-user", "--set", "disk.cache=unsafe", *place), capsys)
    assert check["found"] == "not promised"
    said = r"[\d.,k]+ of [\d.,k]+ flushed blocks were gone after a power cut, and cache=unsafe promises no more: even"
    assert re.match(said, check["proof"]), check["proof"]


def said_of(lie: Callable[..., None], place: tuple[str, ...], capsys: pytest.CaptureFixture[str], **how: Any) -> str:
    lie(**how)
    words = ("--rig", "vhost-user", "--set", "disk.aio=threads", *place)
    assert run(["compare", "measure", *CALL, *words]) == 1
    said = capsys.readouterr()
    assert not said.out
    return said.err


def test_a_daemon_that_makes_no_flush_is_found_by_a_power_cut(
    lying: Callable[..., None], place: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    said = said_of(lying, place, capsys, how="unflushed")
    assert re.search(
        r"arm '.*' promises that what was flushed survives a power cut, and [\d.,k]+ of [\d.,k]+ flushed blocks were"
        r" gone after a power cut",
        said,
    ), said
    assert "nothing was measured" in said


def test_a_daemon_that_keeps_some_writes_to_itself_is_found_when_it_is_killed(
    lying: Callable[..., None], place: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "blocks were gone after the end of its process" in said_of(lying, place, capsys, how="lost", often=100)


def test_the_daemon_that_could_lie_and_does_not_keeps_what_was_flushed(
    lying: Callable[..., None], place: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    lying(often=0)
    assert check_of(("--rig", "vhost-user", "--set", "disk.aio=threads", *place), capsys)["found"] == "kept"


FAILS = """#!/bin/sh
echo >> "$0.calls"
[ "$(wc -l < "$0.calls")" -ne NUMBER ] || { echo no memory >&2; exit 1; }
exec REAL "$@"
"""


@pytest.mark.parametrize(("kind", "number"), [("raw", 4), ("raw", 5), ("raw", 6), ("qcow2", 4), ("qcow2", 7)])
def test_a_daemon_that_does_not_start_once_lost_nothing_that_is_known(
    kind: str, number: int, place: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The first calls ask for its version; whichever start fails, it is one to load or one to read back."""
    program = tmp_path / "bin" / "qemu-storage-daemon"
    program.parent.mkdir()
    real = str(shutil.which("qemu-storage-daemon"))
    program.write_text(FAILS.replace("REAL", real).replace("NUMBER", str(number)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    words = ("--rig", "vhost-user", "--set", f"disk.format={kind}", *place)
    assert run(["compare", "measure", *CALL, *words]) == 3
    said = capsys.readouterr().err
    assert "no memory" in said
    assert "promises" not in said


def test_limits_are_left_out_and_a_guest_s_promise_of_each_write_is_not_vouched_for(
    place: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    check = check_of(("--rig", "vhost-user", "--set", "disk.throttle_iops=20", *place), capsys)
    assert check["found"] == "kept"
    assert "its I/O limits, which were left out" in check["proof"]
    bare_guest()
    check = check_of(("--rig", "qemu", "--set", "device.write_cache=off", *place), capsys)
    assert check["found"] is None
    assert "not tried without the guest" in check["proof"]


def test_the_last_line_says_which_arm_did_not_promise_it(
    place: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    arms = ("--arm", "a:disk.cache=none", "--arm", "b:disk.cache=unsafe")
    assert run(["compare", "--rig", "vhost-user", *arms, *CALL, *place, "--attempts", "5"]) == 0
    assert "durability checked (b: not promised)" in " ".join(capsys.readouterr().out.split())


def test_of_a_guest_its_disk_is_tried_without_it(place: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    bare_guest()
    check = check_of(("--rig", "qemu", *place), capsys)
    assert check["found"] == "kept"
    assert check["proof"].endswith(", the guest, whose disk was tried in a qemu-storage-daemon")


def test_without_loop_devices_processes_are_killed_and_it_is_said_what_that_does_not_show(user: User) -> None:
    for rig, found, said in (
        ("vhost-user", "kept when killed", "killed 3 times; not shown: this host's page cache (a loop device and an"),
        (
            "metal",
            None,
            "not looked at: no process is there to be killed, and a loop device and an ext4 on it cannot",
        ),
    ):
        words = user.command("compare", "measure", "--rig", rig, *CALL, "--json")
        done = subprocess.run([*NO_LOOPS, *words], env=user.env, capture_output=True, text=True, check=True)
        (check,) = [one for one in json.loads(done.stdout)["arms"][0]["in_force"] if one["setting"] == "durability"]
        assert check["found"] == found
        assert said in check["proof"]


def test_a_target_is_no_file_of_ours_so_it_is_not_cut_off_and_holds_no_stamps_after(
    tmp_path: Path, place: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "mine"
    target.write_bytes(bytes(range(256)) * (64 * 1024))
    words = ("--rig", "vhost-user", "--target", str(target))
    assert run(["compare", "measure", *CALL, *words, *place]) == 3
    assert f"--allow-write-to {target}" in capsys.readouterr().err
    check = check_of((*words, "--allow-write-to", str(target), *place), capsys)
    assert check["found"] == "kept when killed"
    assert "not shown: this host's page cache (its disk is a target or a volume" in check["proof"]
    with target.open("rb") as file:
        blocks = [file.read(512) for _ in range(64)]
    assert min(len(set(block)) for block in blocks) > 100, "random data, which no disk compresses"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_check_that_is_ended_at_any_instant_leaves_nothing(number: signal.Signals, user: User) -> None:
    user.run("compare", "measure", "--rig", "metal", *CALL)
    before = sorted(user.scratch.iterdir())
    for later in (0.0, 0.2, 0.5, 0.9, 1.4):
        checked = user.start("compare", "measure", "--rig", "vhost-user", *CALL)
        assert eventually(lambda: bool(loops_on(user.scratch)))
        time.sleep(later)
        checked.send_signal(number)
        checked.communicate(60)
        assert eventually(lambda: not loops_on(user.scratch) and not marked_processes())
        assert sorted(user.scratch.iterdir()) == before
