# SPDX-License-Identifier: Apache-2.0
"""`virtune diagnose VM --prove` of a QEMU without a libvirt: its monitor lifts a limit and puts it back."""

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import User
from tests.guests.loaded import Loaded, loading, null
from tests.published import strictly

from virtune.bench.live.monitor import monitored

# beside six others a guest under TCG met no limit of 40 a second, and then there is none to prove
pytestmark = [pytest.mark.real, pytest.mark.first, pytest.mark.xdist_group("guests")]

LIMIT = 40
"""A guest under TCG was seen to do 84 I/Os a second where others had the CPUs."""
DATA = "/machine/peripheral/data/virtio-backend"
NONE = dict.fromkeys(("bps", "bps_rd", "bps_wr", "iops", "iops_rd", "iops_wr"), 0)


def limited(vm: Loaded, **more: int | str) -> None:
    with monitored(vm.socket) as view:
        view.monitor.execute("block_set_io_throttle", {"id": DATA, **NONE, "iops": LIMIT, **more})


def limits(vm: Loaded) -> dict[str, Any]:
    """Return all that QEMU says of the disk's limits."""
    with monitored(vm.socket) as view:
        (disk,) = (one["inserted"] for one in view.monitor.execute("query-block") if one.get("inserted"))
    return {name: value for name, value in disk.items() if "ops" in name or "bps" in name or name == "group"}


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[Loaded]:
    with loading(tmp_path, null(1_000_000)) as vm:
        limited(vm)
        yield vm


def words(vm: Loaded, *more: str) -> tuple[str, ...]:
    return ("diagnose", "--qmp", str(vm.socket), "--seconds", "3", "--prove", *more)


def test_a_limit_is_confirmed_and_put_back_with_its_bursts(user: User, loaded: Loaded) -> None:
    limited(loaded, iops_max=60, iops_max_length=2, iops_size=4096, bps_rd=10**9, group="mine")
    before = limits(loaded)
    assert (before["iops"], before["iops_max_length"], before["group"]) == (LIMIT, 2, "mine")
    tested = user.run(*words(loaded, "--yes", "--json"))
    (disk,) = strictly(tested.stdout)["disks"]
    assert (disk["bottleneck"]["cause"], disk["proof"]["outcome"]) == ("throttle", "confirmed"), disk
    assert len(tested.stderr.splitlines()) == 1, "what is done; no bar is drawn without a terminal"
    assert disk["proof"]["change"]["low"] > 1.03
    assert disk["proof"]["rounds"] in (6, 12), "six more where others disturb the first"
    assert limits(loaded) == before
    assert "undone  disk.throttle_iops@data=0" in user.run("apply", "undo", "--list").stdout


def test_a_script_that_agrees_beforehand_is_told_the_result_alone(user: User, loaded: Loaded) -> None:
    before = limits(loaded)
    tested = user.run(*words(loaded, "--yes", "-q"))
    assert tested.stderr == ""
    assert any(f"{one} limited by a limit that was set" in tested.stdout for one in ("confirmed:", "whether it is"))
    assert limits(loaded) == before
    refused = user.run(*words(loaded, "-q"), status=2)
    assert "add --yes" in refused.stderr
    assert f"total_iops_sec {LIMIT}" in refused.stderr, "to what one would agree"
    assert limits(loaded) == before


def test_without_consent_nothing_is_lifted(user: User, loaded: Loaded) -> None:
    refused = user.run(*words(loaded), status=2)
    assert "--yes" in refused.stderr
    assert f"total_iops_sec {LIMIT}" in refused.stderr
    assert not user.run("apply", "undo", "--list").stdout.strip()


@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_it_the_limit_comes_back(user: User, loaded: Loaded, ends: int) -> None:
    before = limits(loaded)
    begun(user, loaded).send_signal(ends)
    if ends == signal.SIGKILL:
        time.sleep(1)
        assert not limits(loaded)["iops"]
        assert "it has disk.throttle_iops=0 for a test" in user.run("apply", "undo", "--show").stdout
        assert "is as it was before" in user.run("apply", "undo").stdout
    deadline = time.monotonic() + 60
    while limits(loaded) != before:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def begun(user: User, vm: Loaded) -> Any:
    """Start a test; returns its process at a moment when the limit is lifted."""
    process = user.start(*words(vm, "--yes"))
    deadline = time.monotonic() + 60
    while True:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it was never lifted"
        with contextlib.suppress(Exception):  # the monitor is asked by the other one
            if not limits(vm)["iops"]:
                return process
        time.sleep(0.05)


def test_a_limit_that_is_changed_while_it_is_looked_at_is_told(user: User, loaded: Loaded) -> None:
    """Read once, it was a burst beyond the old one, or something else was the cause."""
    process = user.start("diagnose", "--qmp", str(loaded.socket), "--seconds", "6")
    time.sleep(4)
    limited(loaded, iops=20)
    said, _ = process.communicate()
    told = " ".join(said.split())
    assert f"its limits were changed while it was looked at: iops {LIMIT} and iops 20" in told
    assert "look again" in told


def test_a_qemu_that_has_ended_has_no_limit_to_put_back(user: User, tmp_path: Path) -> None:
    with loading(tmp_path, null(1_000_000)) as vm:
        limited(vm)
        process = begun(user, vm)
        process.send_signal(signal.SIGKILL)
        process.wait(20)
    said = user.run("apply", "undo").stdout
    assert "has ended, and what was set with it" in said
    assert "undone" in user.run("apply", "undo", "--list").stdout


def test_the_limits_of_a_filter_are_left_with_the_command_that_lifts_them(user: User, tmp_path: Path) -> None:
    group = ["-object", f"throttle-group,id=g,x-iops-total={LIMIT}"]
    below = [word.replace("node-name=n0", "node-name=b0") for word in null(1_000_000)]
    above = ["-blockdev", "driver=throttle,node-name=n0,throttle-group=g,file=b0"]
    with loading(tmp_path, [*group, *below, *above]) as vm:
        (disk,) = strictly(user.run(*words(vm, "--yes", "--json")).stdout)["disks"]
    assert disk["bottleneck"]["cause"] == "throttle", disk
    assert disk["proof"]["outcome"] == "untested"
    assert "qom-set" in disk["proof"]["by_hand"]
