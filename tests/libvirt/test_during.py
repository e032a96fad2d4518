# SPDX-License-Identifier: Apache-2.0
"""A backup, a mirror or snapshots of virtune's disk in a domain of a user's: at work under load, undone however that
ends.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.conftest import User, eventually, marked_processes
from tests.libvirt.inside import WRITING, Inside

from virtune.bench.libvirt.during import DomainSnapshots
from virtune.model.contradictions import contradictions
from virtune.model.stack import Disk, During, Stack
from virtune.probe.process import Process
from virtune.virsh import LibvirtRefused, Virsh

pytestmark = [pytest.mark.real, pytest.mark.once, pytest.mark.xdist_group("domains")]

SECONDS = {"mirror": "2", "backup": "2", "snapshot": "8"}
"""A snapshot is taken and merged in 1.2 s, and on a busy host in 4."""

LOAD = ("--rounds", "1", "--ramp", "0.1", "-q")


def asked(guest: Inside, *words: str, rw: str = "randwrite", kind: During = "mirror") -> tuple[str, ...]:
    load = (*LOAD, "--workload", f"rw={rw},bs=4k,rate_iops=200", "--set", f"disk.during={kind}")
    return ("compare", "measure", "--rig", "libvirt:guest1", "--connect", guest.daemon.uri, *load, *words)


def left(user: User, guest: Inside) -> list[str]:
    here = [str(path) for path in (user.home / "virtune" / "plugged").glob("*.json")]
    here += [str(path) for path in user.scratch.glob("*passing*")] + marked_processes()
    return here + guest.sh("ls -d /run/virtune-*; ps | grep '[f]io '").splitlines()


@pytest.mark.parametrize("kind", ["mirror", "backup", "snapshot"])
@pytest.mark.parametrize(
    "rw",
    ["randwrite", pytest.param("randread", marks=pytest.mark.long(always="writes, from which a job has more to do"))],
)
def test_a_job_is_at_work_under_load_and_makes_no_trial_invalid(
    rw: str, kind: During, user: User, guest1: Inside
) -> None:
    before = guest1.configurations()
    found = user.run(*asked(guest1, "--seconds", SECONDS[kind], "--json", rw=rw, kind=kind)).json()
    (trial,) = found["arms"][0]["rounds"]
    (check,) = (one for one in found["arms"][0]["in_force"] if one["setting"] == "disk.during")
    assert (check["found"], check["agrees"]) == (kind, True), check
    if kind == "snapshot":
        taken, merged, *_ = (int(word) for word in check["proof"].split() if word.isdigit())
        assert min(taken, merged) >= 1, check["proof"]
    else:
        assert f"copied under load by {kind}" in check["proof"]
    assert not [one for one in found["arms"][0]["in_force"] if one["agrees"] is False]
    assert trial["measurement"]["values"]["iops"] > 0
    assert "vm-job" not in {one["id"] for one in trial["measurement"]["remarks"]}
    assert guest1.configurations() == before
    assert not left(user, guest1)


@pytest.mark.parametrize("kind", ["mirror", "snapshot"])
def test_another_job_of_the_vm_beside_ours_makes_it_invalid(kind: During, user: User, guest1: Inside) -> None:
    copy = str(guest1.daemon.home / f"of-the-user-{kind}.raw")
    guest1.daemon.virsh("blockcopy", "guest1", "vda", copy, "--transient-job")
    guest1.sh(WRITING)
    try:
        found = user.run(*asked(guest1, "--seconds", SECONDS[kind], "--json", kind=kind)).json()
        assert "Block Copy" in guest1.daemon.virsh("blockjob", "guest1", "vda", "--raw"), (
            "the user's own is left alone"
        )
    finally:
        guest1.sh("touch /run/enough")
        guest1.daemon.virsh("blockjob", "guest1", "vda", "--abort")
    (remark,) = (one for one in found["arms"][0]["rounds"][0]["measurement"]["remarks"] if one["id"] == "vm-job")
    assert (remark["weight"], remark["text"][-17:]) == ("invalid", "block copy of vda")


@pytest.mark.parametrize(
    ("ends", "kind"),
    [
        (signal.SIGKILL, "mirror"),
        (signal.SIGKILL, "backup"),
        (signal.SIGKILL, "snapshot"),
        (signal.SIGINT, "snapshot"),
        pytest.param(signal.SIGINT, "mirror", marks=pytest.mark.long(always="a snapshot, of which most is left")),
        pytest.param(signal.SIGINT, "backup", marks=pytest.mark.long(always="a snapshot, of which most is left")),
    ],
)
def test_however_the_run_ends_the_job_ends_and_the_disk_is_taken_out(
    ends: signal.Signals, kind: During, user: User, guest1: Inside
) -> None:
    before = guest1.configurations()
    guest1.daemon.virsh("domjobinfo", "guest1", "--completed", ok=False)  # what was told once is told no more
    child = user.start(*asked(guest1, "--seconds", "60", kind=kind))
    assert eventually(lambda: has_job(guest1, "passing.qcow2" if kind == "snapshot" else "<mirror"), seconds=180)
    child.send_signal(ends)
    child.communicate(timeout=90)
    if ends == signal.SIGKILL:
        assert eventually(lambda: not marked_processes())
        assert "from the domain guest1" in user.run("host", "clean", "--scratch", str(user.scratch)).stdout
    assert guest1.configurations() == before
    assert not left(user, guest1)
    assert not guest1.daemon.virsh("domjobinfo", "guest1").replace("Job type:         None", "").strip()


def test_a_kill_while_a_snapshot_is_merged_leaves_neither_after_clean(user: User, guest1: Inside) -> None:
    before = guest1.configurations()
    child = user.start(*asked(guest1, "--seconds", "60", kind="snapshot"))
    assert eventually(lambda: has_job(guest1, "job='active-commit'"), seconds=180)
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=90)
    assert eventually(lambda: not marked_processes())
    assert "from the domain guest1" in user.run("host", "clean", "--scratch", str(user.scratch)).stdout
    assert guest1.configurations() == before
    assert not left(user, guest1)


def has_job(guest: Inside, mark: str) -> bool:
    """Whether a job of this mark is there, or a backup is or just was: so small a one is soon over, and the next one
    begins when virtune looks again.
    """
    backup = guest.daemon.virsh("backup-dumpxml", "guest1", ok=False)
    over = guest.daemon.virsh("domjobinfo", "guest1", "--completed", "--keep-completed", ok=False)
    return mark in guest.daemon.xml("guest1", live=True) or "<domainbackup" in backup or "Backup" in over


DISK = """<disk type='file' device='disk'>
<driver name='qemu' type='{kind}' cache='none' io='io_uring' discard='unmap'/>
<source file='{image}'/><target dev='{target}' bus='virtio'/><serial>{target}</serial></disk>
"""
FILLED = """cd /dev; d=$(grep -lx vdz /sys/block/vd*/serial | cut -d/ -f4); rm -f /run/enough
(until [ -e /run/enough ]; do dd if=/dev/urandom of=$d bs=64k count=8 seek=$(($(date +%s) % 32 * 8)) conv=fsync; done
rm /run/enough) >/dev/null 2>&1 &
"""
MIB = 2**20


@dataclass(frozen=True)
class Plug:
    """Disks that a test plugs into a domain, as its user."""

    guest: Inside
    home: Path

    def add(self, target: str, kind: str = "raw") -> Path:
        image = self.home / f"{target}.{kind}"
        subprocess.run(["qemu-img", "create", "-q", "-f", kind, image, str(16 * MIB)], check=True)
        xml = self.home / f"{target}.xml"
        xml.write_text(DISK.format(kind=kind, image=image, target=target))
        self.guest.daemon.virsh("attach-device", "guest1", str(xml), "--live")
        return image

    def source(self, target: str) -> str:
        rows = (line.split() for line in self.guest.daemon.virsh("domblklist", "guest1").splitlines())
        return next((row[1] for row in rows if row and row[0] == target), "")

    def remove(self, target: str) -> None:
        self.guest.daemon.virsh("detach-disk", "guest1", target, "--live")
        assert eventually(lambda: not self.source(target), seconds=30)


@pytest.fixture
def plug(guest1: Inside, tmp_path: Path) -> Iterator[Plug]:
    home = guest1.daemon.home / tmp_path.name
    home.mkdir()
    before, found = guest1.configurations(), Plug(guest1, home)
    yield found
    for name in guest1.daemon.virsh("snapshot-list", "guest1", "--name").split():
        guest1.daemon.virsh("snapshot-delete", "guest1", name, "--metadata")
    for target in ("vdx", "vdy", "vdz"):
        if found.source(target):
            found.remove(target)
    assert guest1.configurations() == before


def snapshots_of(plug: Plug, image: Path, *, kind: type[Virsh] = Virsh) -> tuple[DomainSnapshots, Path]:
    virsh = kind(plug.guest.daemon.uri, write=True)
    overlay = plug.home / "over.qcow2"
    disk = Disk(format="qcow2" if image.suffix == ".qcow2" else "raw")
    return DomainSnapshots(virsh, virsh.uuid("guest1"), "vdz", overlay, image=image, disk=disk), overlay


@pytest.mark.parametrize("kind", ["raw", "qcow2"])
def test_what_is_merged_is_the_disk_and_the_users_disks_and_snapshots_stay_as_they_are(
    kind: str, guest1: Inside, plug: Plug
) -> None:
    daemon = guest1.daemon
    plug.add("vdy")
    daemon.virsh("snapshot-create-as", "guest1", "of-the-user", "--disk-only", "--diskspec", "vda,snapshot=no")
    image = plug.add("vdz", kind)
    theirs = {one: plug.source(one) for one in ("vda", "vdy")}
    told, written = daemon.virsh("snapshot-dumpxml", "guest1", "of-the-user"), daemon.xml("guest1")
    job, overlay = snapshots_of(plug, image)
    guest1.sh(FILLED)
    with job.run():
        job.mark()
        process, opened = Process(daemon.qemu("guest1")), set[int]()
        until = time.monotonic() + 60
        while min(counted(job)) < 2 and time.monotonic() < until:
            job.tend()
            assert {one: plug.source(one) for one in theirs} == theirs
            opened |= {flags & os.O_DIRECT for flags in flags_of(process, overlay)}
            time.sleep(0.1)
        job.mark()
    assert opened == {os.O_DIRECT}, "the overlay is opened as the disk is"
    assert (job.check().agrees, min(counted(job)) >= 2) == (True, True), job.check()
    guest1.sh("touch /run/enough; while [ -e /run/enough ]; do sleep 0.1; done; sync")
    seen = guest1.sh("sha256sum </dev/$(grep -lx vdz /sys/block/vd*/serial | cut -d/ -f4)").split()[0]
    assert (plug.source("vdz"), daemon.virsh("blockjob", "guest1", "vdz", "--raw").strip()) == (str(image), "")
    plug.remove("vdz")
    plain = plug.home / "plain.raw"
    subprocess.run(["qemu-img", "convert", "-f", kind, "-O", "raw", image, plain], check=True)
    assert any(plain.read_bytes())
    assert subprocess.check_output(["sha256sum", plain], text=True).split()[0] == seen, "no write is lost"
    assert daemon.virsh("snapshot-list", "guest1", "--name").split() == ["of-the-user"]
    assert daemon.virsh("snapshot-dumpxml", "guest1", "of-the-user") == told
    assert (daemon.xml("guest1"), {one: plug.source(one) for one in theirs}) == (written, theirs)


def counted(job: DomainSnapshots) -> list[int]:
    """How many snapshots were taken, and merged, by what its check says."""
    return [int(word) for word in job.check().proof.split() if word.isdigit()][:2]


def flags_of(process: Process, file: Path) -> list[int]:
    """The flags of a process's descriptors of a file."""
    place = Path(f"/proc/{process.pid}")
    found = []
    for one in (place / "fd").iterdir():
        with contextlib.suppress(OSError):
            if one.readlink() == file:
                words = (place / "fdinfo" / one.name).read_text().split()
                found.append(int(words[words.index("flags:") + 1], 8))
    return found


def test_a_disk_that_comes_just_before_a_snapshot_is_not_in_it(plug: Plug) -> None:
    class Meanwhile(Virsh):
        """Somebody plugs a disk in when virtune has looked which there are."""

        def run(self, *words: str, ok: tuple[int, ...] = (0,)) -> str:
            if words[0] == "snapshot-create":
                plug.add("vdx")
            return super().run(*words, ok=ok)

    image = plug.add("vdz")
    job, _ = snapshots_of(plug, image, kind=Meanwhile)
    with pytest.raises(LibvirtRefused, match="missing existing file for disk vdx"), job.run():
        pass
    assert (plug.source("vdx"), plug.source("vdz")) == (str(plug.home / "vdx.raw"), str(image))
    assert not list(plug.home.glob("vdx.virtune*"))


def test_a_snapshot_that_somebody_else_took_of_the_disk_is_not_merged(guest1: Inside, plug: Plug) -> None:
    job, overlay = snapshots_of(plug, plug.add("vdz"))
    words = ("--disk-only", "--no-metadata", "--diskspec", "vda,snapshot=no", "--diskspec")
    with pytest.raises(LibvirtRefused, match="is not active"), job.run():
        guest1.daemon.virsh("snapshot-create-as", "guest1", *words, f"vdz,file={plug.home}/theirs.qcow2")
        until = time.monotonic() + 3
        while time.monotonic() < until:
            job.tend()
    assert plug.source("vdz") == f"{plug.home}/theirs.qcow2", "it is theirs"
    assert overlay.exists()


def test_what_libvirt_is_not_asked_for_is_refused_beforehand() -> None:
    stack = Stack(rig="libvirt", domain="guest1", during="mirror", disk=Disk(throttle_iops=100))
    assert contradictions(stack) == (), "the limit is the device's there, above the mirror"
    snapshot = replace(stack, during="snapshot")
    assert contradictions(snapshot) == ()
    (said,) = contradictions(replace(snapshot, disk=Disk(detect_zeroes="on")))
    assert "a snapshot without detect_zeroes" in said
