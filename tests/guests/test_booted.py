# SPDX-License-Identifier: Apache-2.0
"""Guests under TCG go on from the state of an earlier boot, each for itself."""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.leftovers import left_over

from virtune.bench.appliance.build import Appliance, sign
from virtune.bench.guest.agent import WAIT_SECONDS, read_clock, wrong_speed
from virtune.bench.qemu.machine import DEVICES_FILE, MEMORY_FILE, Vm, running
from virtune.shell import Warden

pytestmark = pytest.mark.real

TRIES = 20


@contextlib.contextmanager
def resumed(appliance: Appliance, warden: Warden) -> Iterator[Vm]:
    """A guest that went on; while another test saves the state, guests boot."""
    for _ in range(TRIES):
        with running(appliance, warden, kvm=False) as vm:
            if "-incoming" in vm.child.command:
                yield vm
                return
    raise AssertionError("no guest went on from a state")


def test_each_guest_has_memory_and_the_time_of_its_own(appliance: Appliance, one_warden: Warden) -> None:
    with resumed(appliance, one_warden) as one, resumed(appliance, one_warden) as other:
        one.guest.put("/run/mine", b"one's own", timeout_seconds=120)
        assert one.guest.get("/run/mine", timeout_seconds=120) == b"one's own"
        assert other.guest.run(["ls", "/run/mine"], timeout_seconds=120).status != 0
        now = float(other.guest.run(["date", "+%s"], timeout_seconds=120).stdout)
        assert abs(now - time.time()) < 60
    with resumed(appliance, one_warden) as later:
        assert later.guest.run(["ls", "/run/mine"], timeout_seconds=120).status != 0, "the state is as it was"


def test_a_damaged_state_is_refused_and_the_guest_boots(
    appliance: Appliance, one_warden: Warden, tmp_path: Path
) -> None:
    with resumed(appliance, one_warden) as vm:
        state = Path(os.readlink(f"/proc/{vm.child.pid}/fd/{descriptor(vm)}")).parent
    home = tmp_path / appliance.key
    damaged = home / state.parent.name / state.name
    damaged.parent.mkdir(parents=True)
    left_over(damaged)
    (home / "vmlinux").symlink_to(appliance.kernel)
    (damaged / DEVICES_FILE).write_bytes(b"QEMU or not")
    with (damaged / MEMORY_FILE).open("wb") as file:
        file.truncate((state / MEMORY_FILE).stat().st_size)
    sign(damaged)
    copy = replace(appliance, kernel=home / "vmlinux")
    with running(copy, one_warden, kvm=False) as vm:
        assert "-incoming" not in vm.child.command
        assert vm.guest.run(["true"], timeout_seconds=120).status == 0
    assert {path.name for path in damaged.iterdir()} == {"owner", "refused"}


def descriptor(vm: Vm) -> str:
    """Return the descriptor of the file that is a guest's memory."""
    (memory,) = [word for word in vm.child.command if "mem-path=" in word]
    return memory.partition("/dev/fd/")[2].partition(",")[0]


def test_a_clock_that_does_not_keep_the_host_s_time_is_seen(appliance: Appliance, one_warden: Warden) -> None:
    with resumed(appliance, one_warden) as vm:
        first = read_clock(vm.guest, timeout_seconds=120)
        time.sleep(WAIT_SECONDS)
        right = read_clock(vm.guest, timeout_seconds=120)
        assert wrong_speed(first, right) is None
        vm.monitor.execute("stop")
        time.sleep(4)  # reading its clock takes up to seconds on a busy machine
        vm.monitor.execute("cont")
        speed = wrong_speed(right, read_clock(vm.guest, timeout_seconds=120))
        assert speed is not None
        assert speed < 0.5
