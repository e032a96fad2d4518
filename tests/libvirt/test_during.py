# SPDX-License-Identifier: Apache-2.0
"""A backup or a mirror of virtune's disk in a domain of a user's: at work under load, undone however that ends."""

import signal
from dataclasses import replace

import pytest
from tests.conftest import User, eventually, marked_processes
from tests.libvirt.inside import WRITING, Inside

from virtune.model.contradictions import contradictions
from virtune.model.stack import Disk, During, Stack

pytestmark = [pytest.mark.real, pytest.mark.once, pytest.mark.xdist_group("domains")]

LOAD = ("--rounds", "1", "--ramp", "0.1", "-q")


def asked(guest: Inside, *words: str, rw: str = "randwrite", kind: During = "mirror") -> tuple[str, ...]:
    load = (*LOAD, "--workload", f"rw={rw},bs=4k,rate_iops=200", "--set", f"disk.during={kind}")
    return ("compare", "measure", "--rig", "libvirt:guest1", "--connect", guest.daemon.uri, *load, *words)


def left(user: User, guest: Inside) -> list[str]:
    here = [str(path) for path in (user.home / "virtune" / "plugged").glob("*.json")]
    here += [str(path) for path in user.scratch.glob("*passing*")] + marked_processes()
    return here + guest.sh("ls -d /run/virtune-*; ps | grep '[f]io '").splitlines()


@pytest.mark.parametrize(
    ("rw", "kind"), [("randwrite", "mirror"), ("randread", "mirror"), ("randwrite", "backup"), ("randread", "backup")]
)
def test_a_job_is_at_work_under_load_and_makes_no_trial_invalid(
    rw: str, kind: During, user: User, guest1: Inside
) -> None:
    before = guest1.configurations()
    found = user.run(*asked(guest1, "--seconds", "2", "--json", rw=rw, kind=kind)).json()
    (trial,) = found["arms"][0]["rounds"]
    (check,) = (one for one in found["arms"][0]["in_force"] if one["setting"] == "disk.during")
    assert (check["found"], check["agrees"]) == (kind, True), check
    assert f"copied under load by {kind}" in check["proof"]
    assert trial["measurement"]["values"]["iops"] > 0
    assert "vm-job" not in {one["id"] for one in trial["measurement"]["remarks"]}
    assert guest1.configurations() == before
    assert not left(user, guest1)


def test_another_job_of_the_vm_beside_the_mirror_makes_it_invalid(user: User, guest1: Inside) -> None:
    copy = str(guest1.daemon.home / "of-the-user.raw")
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


@pytest.mark.parametrize("kind", ["mirror", "backup"])
@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGKILL])
def test_however_the_run_ends_the_job_ends_and_the_disk_is_taken_out(
    ends: signal.Signals, kind: During, user: User, guest1: Inside
) -> None:
    before = guest1.configurations()
    child = user.start(*asked(guest1, "--seconds", "60", kind=kind))
    assert eventually(lambda: has_job(guest1), seconds=90)
    child.send_signal(ends)
    child.communicate(timeout=90)
    if ends == signal.SIGKILL:
        assert eventually(lambda: not marked_processes())
        assert "from the domain guest1" in user.run("host", "clean", "--scratch", str(user.scratch)).stdout
    assert guest1.configurations() == before
    assert not left(user, guest1)
    assert not guest1.daemon.virsh("domjobinfo", "guest1").replace("Job type:         None", "").strip()


def has_job(guest: Inside) -> bool:
    backup = guest.daemon.virsh("backup-dumpxml", "guest1", ok=False)
    return "<mirror" in guest.daemon.xml("guest1", live=True) or "<domainbackup" in backup


def test_what_libvirt_is_not_asked_for_is_refused_beforehand() -> None:
    stack = Stack(rig="libvirt", domain="guest1", during="mirror", disk=Disk(throttle_iops=100))
    assert contradictions(stack) == (), "the limit is the device's there, above the mirror"
    (said,) = contradictions(replace(stack, during="snapshot"))
    assert "maybe of one of yours" in said
