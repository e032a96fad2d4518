# SPDX-License-Identifier: Apache-2.0
"""A host's settings of all its guests as arms: how KVM polls for them, on which pages their memory lies.

The former is written to a file in the place of the kernel's, since some kernels only show theirs, and seen on a guest
that halts. Whether equal pages are merged is a setting of each QEMU.
"""

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.bench.bound import HALTING, THP, halting_file, told
from tests.conftest import SPAN, User, bare_guest

from virtune import warden as guard
from virtune.bench.host_settings import host_set, settable
from virtune.bench.live.monitor import halt_polls_of
from virtune.bench.port import DiskImageSpec
from virtune.bench.qemu.carried import halt_poll_check
from virtune.bench.qemu.machine import Accelerator
from virtune.bench.qemu.rig import BareSession
from virtune.bench.qmp import Monitor
from virtune.model.contradictions import contradictions
from virtune.model.errors import PreconditionError
from virtune.model.event import Event
from virtune.model.evidence import Check
from virtune.model.stack import Host, Machine, Stack
from virtune.shell import Warden

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("loop devices")]

NEVER = Stack(rig="qemu", host=Host(halt_poll_ns=0))

needs_kvm = pytest.mark.skipif(not (HALTING.exists() and Path("/dev/kvm").exists()), reason="there is no KVM here")


@pytest.fixture
def halting(tmp_path: Path) -> Iterator[Path]:
    with halting_file(tmp_path) as file:
        yield file


def unheard(_: Event) -> None: ...


@needs_kvm
def test_kvm_is_told_how_long_to_poll_and_told_the_former_time_after_it(halting: Path, warden: Warden) -> None:
    before = guard.setting_at(str(HALTING))
    assert before not in (None, "0")
    with host_set(NEVER, [], warden.directory) as checks:
        assert [(one.setting, one.found, one.agrees) for one in checks()] == [("host.halt_poll_ns", "0", True)]
        assert halting.read_text() == "0"
    assert guard.setting_at(str(HALTING)) == before


@needs_kvm
def test_a_file_that_only_shows_the_setting_is_said_before_anything_starts(halting: Path) -> None:
    told("mount", "-o", "remount,bind,ro", HALTING)
    with (
        pytest.raises(PreconditionError, match="/sys/module/kvm/parameters/halt_poll_ns is read-only here"),
        settable({NEVER: []}, unheard, allow_in_use=True),
    ):
        pytest.fail("it was written to")


TICKING = bytes.fromhex(
    "fa31c08ed88ed0bc007cc70620003a00c706220000f0"  # without interrupts: the stack, the clock's interrupt to 0x3a
    "b011e620b008e621b004e621b001e621b0fee621"  # the interrupt controller: of the clock alone
    "b034e643b0c8e64030c0e640"  # the clock: 5966 a second
    "fbf4ebfc"  # halt, again and again
    "b020e620cf"  # 0x3a: its interrupt was seen
)
"""A guest without a system that halts until its clock ticks, for the machine `microvm`."""


def polls_of_a_halting_guest(place: Path) -> int:
    """Return how often KVM has polled for it after a moment, until it has."""
    rom = place / "rom"
    rom.write_bytes(TICKING.ljust(0xFFF0, b"\0") + bytes.fromhex("ea000000f0").ljust(16, b"\0"))
    ours, theirs = socket.socketpair()
    words = [shutil.which("qemu-system-x86_64") or "", "-M", "microvm", "-accel", "kvm", "-nodefaults", "-display"]
    words += ["none", "-cpu", "host,-arch-capabilities", "-m", "16M", "-bios", str(rom)]
    words += ["-chardev", f"socket,id=m,fd={theirs.fileno()}", "-mon", "chardev=m,mode=control"]
    with ours, theirs, subprocess.Popen(words, pass_fds=[theirs.fileno()]) as vm:
        try:
            with Monitor(ours) as monitor:
                until, polls = time.monotonic() + 20, 0
                while not polls and time.monotonic() < until:
                    time.sleep(0.2)
                    polls = halt_polls_of(monitor) or 0
                return polls
        finally:
            vm.kill()


@needs_kvm
def test_a_kvm_that_polls_although_it_was_told_not_to_is_found_out(
    halting: Path, warden: Warden, tmp_path: Path
) -> None:
    with host_set(NEVER, [], warden.directory) as checks:  # the kernel itself has another file, and keeps its value
        polls = polls_of_a_halting_guest(tmp_path)
        assert [one.agrees for one in checks()] == [True]
    check = halt_poll_check(NEVER, polls)
    assert check is not None
    assert (check.agrees, check.found) == (False, "more than 0")
    assert f"polled {polls} times" in check.proof


def test_a_guest_that_never_halts_has_no_such_setting() -> None:
    never = Stack(rig="qemu", host=NEVER.host, machine=Machine(system="bare"))
    assert [one for one in contradictions(never) if "never halts" in one]
    assert not contradictions(NEVER)


@needs_kvm
def test_a_guest_without_kvm_is_refused(halting: Path, user: User, tmp_path: Path) -> None:
    emulator = tmp_path / "qemu"
    emulator.write_text('#!/bin/sh\ncase "$*" in *kvm*) exit 1;; esac\nexec qemu-system-x86_64 "$@"\n')
    emulator.chmod(0o755)
    words = ("compare", "measure", "--rig", "qemu", "--set", "host.halt_poll_ns=0")
    refused = user.run(
        *words,
        "--set",
        f"machine.emulator={emulator}",
        "--allow-in-use",
        "--scratch",
        str(tmp_path),
        "--span",
        "16M",
        status=3,
        exactly=True,
    )
    assert "host.halt_poll_ns is KVM's, and the guest runs without it" in refused.stderr
    assert halting.read_text() != "0"


EMULATED = Accelerator(kvm=False, why="these tests run anywhere", tried=False)


def bare(**asked: Any) -> Stack:
    return Stack(rig="qemu", machine=Machine(system="bare", **asked))


@pytest.fixture
def image(tmp_path: Path) -> Path:
    with (tmp_path / "image").open("wb") as file:
        file.truncate(SPAN)
    return tmp_path / "image"


def seen_in(stack: Stack, image: Path, warden: Warden) -> tuple[Check, int]:
    """Bring a guest up; returns what is said of its memory, and its QEMU's process."""
    session = BareSession(bare_guest(), warden, known=EMULATED)
    try:
        with session.up(stack, DiskImageSpec(image=image, size_bytes=SPAN, writes=False)) as bench:
            (check,) = (one for one in bench.in_force.checks if one.setting.startswith("memory."))
            return check, bench.processes["guest"]
    finally:
        session.give_up()


needs_thp = pytest.mark.skipif(not THP.exists(), reason="this kernel has no transparent huge pages")


@needs_thp
@pytest.mark.parametrize("asked", ["always", "madvise", "never"])
def test_a_guests_memory_lies_on_the_pages_that_the_host_was_told_to_make(
    asked: str, image: Path, warden: Warden
) -> None:
    before = guard.setting_at(str(THP))
    with host_set(bare(thp=asked), [], warden.directory) as checks:
        assert [(one.setting, one.found, one.agrees) for one in checks()] == [("memory.thp", asked, True)]
        check, _ = seen_in(bare(thp=asked), image, warden)
        assert check.agrees, check.proof
    assert guard.setting_at(str(THP)) == before


@needs_thp
@pytest.mark.parametrize(
    ("set_to", "asked", "found"), [("madvise", "never", "always or madvise"), ("never", "always", "never")]
)
def test_memory_on_other_pages_than_the_host_says_is_found_out(
    set_to: str, asked: str, found: str, image: Path, warden: Warden
) -> None:
    with host_set(bare(thp=set_to), [], warden.directory):
        check, _ = seen_in(bare(thp=asked), image, warden)
    assert (check.found, check.agrees) == (found, False)


@needs_thp
def test_a_machine_ends_with_its_trial_where_its_pages_count(image: Path, warden: Warden) -> None:
    session, pids = BareSession(bare_guest(), warden, known=EMULATED), []
    for stack in (bare(thp="madvise"), bare(thp="madvise"), bare(), bare()):
        with (
            host_set(stack, [], warden.directory),
            session.up(stack, DiskImageSpec(image=image, size_bytes=SPAN, writes=False)) as bench,
        ):
            pids.append(bench.processes["guest"])
    session.give_up()
    assert len(set(pids)) == 3, "what it has of the pages of the trial before belongs to no arm"


@pytest.mark.skipif(not Path("/sys/kernel/mm/ksm").exists(), reason="this kernel merges no pages")
@pytest.mark.parametrize("asked", [True, False])
def test_a_guests_memory_is_merged_or_not_as_its_qemu_was_told(asked: bool, image: Path, warden: Warden) -> None:
    check, _ = seen_in(bare(ksm=asked), image, warden)
    assert check.agrees, check.proof
    assert "/sys/kernel/mm/ksm/run is " in check.proof


@pytest.mark.skipif(not Path("/sys/kernel/mm/ksm").exists(), reason="this kernel merges no pages")
def test_a_qemu_that_merges_pages_although_it_was_told_not_to_is_found_out(
    image: Path, warden: Warden, tmp_path: Path
) -> None:
    liar = tmp_path / "qemu"
    liar.write_text(f"""#!{sys.executable}
import os, sys
os.execvp("qemu-system-x86_64", [word.replace("mem-merge=off", "mem-merge=on") for word in sys.argv])
""")
    liar.chmod(0o755)
    check, _ = seen_in(bare(ksm=False, emulator=str(liar)), image, warden)
    assert (check.setting, check.found, check.agrees) == ("memory.ksm", "on", False)
