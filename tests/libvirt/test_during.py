# SPDX-License-Identifier: Apache-2.0
"""A mirror of virtune's disk in a domain of a user's: at work under load, and undone however the run ends."""

import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.conftest import User, eventually, marked_processes
from tests.libvirt.inside import Inside, inside
from tests.libvirtd import Libvirtd

from virtune.model.contradictions import contradictions
from virtune.model.stack import Disk, Stack

pytestmark = [pytest.mark.real, pytest.mark.once, pytest.mark.xdist_group("domains")]

LOAD = ("--rounds", "1", "--ramp", "0.1", "-q", "--set", "disk.during=mirror")

WRITING = """rm -f /run/enough
exec >/dev/null 2>&1
(until [ -e /run/enough ]; do dd if=/dev/zero of=/dev/vda bs=64k count=4 conv=fsync; sleep 0.1; done) &
"""


@pytest.fixture(scope="module")
def booted(daemon: Libvirtd) -> Iterator[Inside]:
    with inside(daemon, "guest1") as found:
        yield found


@pytest.fixture
def guest1(booted: Inside) -> Inside:
    booted.revive()
    return booted


def asked(guest: Inside, *words: str, rw: str = "randwrite") -> tuple[str, ...]:
    load = (*LOAD, "--workload", f"rw={rw},bs=4k,rate_iops=200")
    return ("compare", "measure", "--rig", "libvirt:guest1", "--connect", guest.daemon.uri, *load, *words)


def left(user: User, guest: Inside) -> list[str]:
    here = [str(path) for path in (user.home / "virtune" / "plugged").glob("*.json")]
    here += [str(path) for path in user.scratch.glob("*passing*")] + marked_processes()
    return here + guest.sh("ls -d /run/virtune-*; ps | grep '[f]io '").splitlines()


@pytest.mark.parametrize("rw", ["randwrite", "randread"])
def test_a_mirror_is_at_work_under_load_and_makes_no_trial_invalid(rw: str, user: User, guest1: Inside) -> None:
    before = guest1.configurations()
    found = user.run(*asked(guest1, "--seconds", "2", "--json", rw=rw)).json()
    (trial,) = found["arms"][0]["rounds"]
    (check,) = (one for one in found["arms"][0]["in_force"] if one["setting"] == "disk.during")
    assert (check["found"], check["agrees"]) == ("mirror", True), check
    assert "copied under load by mirror" in check["proof"]
    assert trial["measurement"]["values"]["iops"] > 0
    assert "vm-job" not in {one["id"] for one in trial["measurement"]["remarks"]}
    assert guest1.configurations() == before
    assert not left(user, guest1)


def test_another_job_of_the_vm_beside_the_mirror_makes_it_invalid(user: User, guest1: Inside) -> None:
    copy = str(guest1.daemon.home / "copy.raw")
    guest1.daemon.virsh("blockcopy", "guest1", "vda", copy, "--transient-job")
    guest1.sh(WRITING)
    try:
        found = user.run(*asked(guest1, "--seconds", "1", "--json")).json()
        assert "Block Copy" in guest1.daemon.virsh("blockjob", "guest1", "vda", "--raw"), (
            "the user's own is left alone"
        )
    finally:
        guest1.sh("touch /run/enough")
        guest1.daemon.virsh("blockjob", "guest1", "vda", "--abort")
    (remark,) = (one for one in found["arms"][0]["rounds"][0]["measurement"]["remarks"] if one["id"] == "vm-job")
    assert (remark["weight"], remark["text"][-17:]) == ("invalid", "block copy of vda")


@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGKILL])
def test_however_the_run_ends_the_mirror_ends_and_the_disk_is_taken_out(
    ends: signal.Signals, user: User, guest1: Inside
) -> None:
    before = guest1.configurations()
    child = user.start(*asked(guest1, "--seconds", "60"))
    assert eventually(lambda: "<mirror" in guest1.daemon.xml("guest1", live=True), seconds=90)
    child.send_signal(ends)
    child.communicate(timeout=90)
    if ends == signal.SIGKILL:
        assert "<mirror" in guest1.daemon.xml("guest1", live=True)
        assert eventually(lambda: not marked_processes())
        assert "from the domain guest1" in user.run("host", "clean", "--scratch", str(user.scratch)).stdout
    assert guest1.configurations() == before
    assert not left(user, guest1)


def test_what_libvirt_is_not_asked_for_is_refused_beforehand() -> None:
    stack = Stack(rig="libvirt", domain="guest1", during="mirror", disk=Disk(throttle_iops=100))
    assert contradictions(stack) == (), "the limit is the device's there, above the mirror"
    for kind in ("backup", "snapshot"):
        (said,) = contradictions(replace(stack, during=kind))
        assert said == f"in a domain of yours the disk is mirrored, and disk.during={kind} is not done there"
