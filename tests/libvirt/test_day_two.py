# SPDX-License-Identifier: Apache-2.0
"""What libvirt does to a VM's disks while they are measured in place is seen, and the trial does not count."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import User
from tests.libvirt.inside import WRITING, Inside, inside
from tests.libvirtd import Libvirtd

pytestmark = [pytest.mark.real, pytest.mark.once, pytest.mark.xdist_group("domains")]

PULLED = """<domainbackup mode='pull'><server transport='unix' socket='{place}/backup.sock'/>
<disks><disk name='vda' backup='yes' type='file'><scratch file='{place}/backup.qcow2'/></disk></disks></domainbackup>
"""

READING = WRITING.replace(
    "if=/dev/zero of=/dev/vda bs=64k count=4 conv=fsync; sleep 0.1",
    "if=/dev/vda of=/dev/null bs=4k count=100 iflag=direct; sleep 0.2",
)


@contextlib.contextmanager
def running(kind: str, guest: Inside, place: Path) -> Iterator[None]:
    """A copy of a disk on which the VM writes, or a backup that waits for who reads it."""
    if kind == "backup":
        (place / "backup.xml").write_text(PULLED.format(place=guest.daemon.home))
        guest.daemon.virsh("backup-begin", guest.name, str(place / "backup.xml"))
        end: tuple[str, ...] = ("domjobabort", guest.name)
    else:
        copy = str(guest.daemon.home / "copy.raw")
        guest.daemon.virsh("blockcopy", guest.name, "vda", copy, "--transient-job")
        guest.sh(WRITING)
        end = ("blockjob", guest.name, "vda", "--abort")
    try:
        yield
    finally:
        guest.sh("touch /run/enough")
        guest.daemon.virsh(*end)


@pytest.mark.parametrize(
    ("kind", "said", "weight"),
    [
        ("block copy", "did this with the VM: block copy of vda", "invalid"),
        ("backup", "had open, though it did not go on, this with the VM: backup, backup of vda", "warning"),
    ],
)
def test_a_job_of_the_vm_is_seen_and_a_trial_beside_one_that_goes_on_does_not_count(
    kind: str, said: str, weight: str, user: User, booted: Inside, tmp_path: Path
) -> None:
    booted.revive()
    words = ("compare", "measure", "--rig", "libvirt:guest1", "--connect", booted.daemon.uri, "--json")
    load = (
        "--rounds",
        "1",
        "--workload",
        "rw=randread,bs=4k,rate_iops=200",
        "--seconds",
        "0.5",
        "--ramp",
        "0.1",
        "-q",
    )
    with running(kind, booted, tmp_path):
        found = user.run(*words, *load).json()
    for trial in found["arms"][0]["rounds"]:
        (remark,) = (one for one in trial["measurement"]["remarks"] if one["id"] == "vm-job")
        assert (remark["weight"], remark["text"]) == (weight, f"while it was measured libvirt {said}")


@pytest.fixture(scope="module")
def threaded(daemon: Libvirtd) -> Iterator[Inside]:
    with inside(daemon, "guest2", own_thread=True) as found:
        yield found


@pytest.mark.parametrize(
    ("where", "asked", "untold"),
    [
        ("booted", ("disk.aio=threads",), {"disk.aio"}),
        ("threaded", ("disk.aio=threads",), {"disk.aio"}),
        ("threaded", ("disk.aio=io_uring", "device.iothread=iothread1"), {"disk.aio", "device.iothread"}),
    ],
)
def test_what_another_disk_does_beside_is_not_taken_for_the_measured_one(
    where: str, asked: tuple[str, ...], untold: set[str], user: User, request: pytest.FixtureRequest
) -> None:
    """The domain's own disk runs on io_uring, of the main loop or of an IOThread, and is busier than the load."""
    guest: Inside = request.getfixturevalue(where)
    guest.revive()
    words = ("compare", "measure", "--rig", f"libvirt:{guest.name}", "--connect", guest.daemon.uri, "--json", "-q")
    load = ("--rounds", "1", "--workload", "rw=randread,bs=4k,rate_iops=100", "--seconds", "1", "--ramp", "0.1")
    settings = [word for one in asked for word in ("--set", one)]
    guest.sh(READING)
    try:
        found = user.run(*words, *settings, *load).json()
    finally:
        guest.sh("touch /run/enough")
    checks = {one["setting"]: one for one in found["arms"][0]["in_force"]}
    assert {name for name in ("disk.aio", "device.iothread") if checks[name]["agrees"] is None} >= untold
    assert "whether an io_uring completed requests is not shown to us" in checks["disk.aio"]["proof"]
    assert "were as busy" in checks["device.iothread"]["proof"] or "device.iothread" not in untold
