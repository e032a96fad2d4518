# SPDX-License-Identifier: Apache-2.0
"""Disks of a running Linux guest exchanged on request, in real QEMUs; and a restart that its agent vouches for."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.conftest import User
from tests.libvirt.dying import killed_at
from tests.libvirt.inside import Inside
from tests.libvirtd import Libvirtd, plain

import virtune
from virtune import shell
from virtune.apply.journal import Journal
from virtune.bench.appliance.build import appliance_for, archive, file
from virtune.bench.appliance.sources import find_sources
from virtune.bench.verify import opened
from virtune.flows.domains.apply import Back, Means, undo
from virtune.probe.process import Process
from virtune.virsh import Virsh

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("domains")]

LINUX = """<domain type='qemu'>
  <name>linux</name>
  <memory unit='MiB'>256</memory>
  <vcpu current='1'>2</vcpu>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    <kernel>{kernel}</kernel><initrd>{initrd}</initrd>
    <cmdline>console=ttyS0 quiet loglevel=3 panic=-1 tsc=reliable mitigations=off no_timer_check ports=1</cmdline>
  </os>
  <features><acpi/></features>
  <cpu mode='maximum'/>
  <clock offset='utc'><timer name='hpet' present='no'/></clock>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw'/><source file='{home}/root.raw'/><target dev='vda' bus='virtio'/>
    </disk>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw' cache='writeback'/>
      <source file='{home}/data.raw'/><target dev='vdb' bus='virtio'/>
    </disk>
    <serial type='file'><source path='{home}/var/log/libvirt/linux-console.log'/></serial>
    {interface}
    <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
  </devices>
</domain>
"""

SOURCE = Path(virtune.__file__).parent
SHUTDOWN = b"#!/bin/sh\n# what the guest's agent calls\nexec /bin/poweroff -f\n"
NET = ("failover", "net_failover", "virtio_net")
HOST, GUEST = "10.213.77.1", "10.213.77.2"
UP_NET = f"""for module in {" ".join(NET)}; do insmod /net/$module.ko; done
for one in /sys/class/net/e*; do ip addr add {GUEST}/24 dev "${{one##*/}}"; ip link set "${{one##*/}}" up; done
""".encode()
"""What the guest's first process does beside, to be on the network."""

REPLUG = ("--replug", "vdb", "--timeout", "20", "--yes")


@pytest.fixture(scope="module")
def bridge() -> Iterator[str | None]:
    """A bridge for guests; None where the machine lets us make none."""
    name = f"vt{os.getpid()}"[:15]
    made = subprocess.run(["ip", "link", "add", name, "type", "bridge"], capture_output=True).returncode == 0
    if not made or not Path("/dev/net/tun").exists():
        yield None
        return
    subprocess.run(["ip", "addr", "add", f"{HOST}/24", "dev", name], check=True)
    subprocess.run(["ip", "link", "set", name, "up"], check=True)
    yield name
    subprocess.run(["ip", "link", "del", name], check=True)


@pytest.fixture(scope="module")
def linux(daemon: Libvirtd, bridge: str | None) -> Iterator[str]:
    """A Linux with QEMU's guest agent, a disk that it would boot from, and one that holds a filesystem."""
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("not installed: mkfs.ext4; `tools/setup dev` brings it")
    cache = shell.cache_directory()
    sources = find_sources(cache / "packages", agent=True)
    appliance, _ = appliance_for(sources, cache / "appliances")
    more = [file("sbin/shutdown", SHUTDOWN, program=True)]
    interface = ""
    if bridge is not None:
        interface = f"<interface type='bridge'><source bridge='{bridge}'/><model type='virtio'/></interface>"
        more += [file(f"net/{name}.ko", next(sources.modules.rglob(f"{name}.ko")).read_bytes()) for name in NET]
        init = (SOURCE / "guest" / "init").read_bytes()
        more.append(file("init", init.replace(b"# Ports come", UP_NET + b"# Ports come", 1), program=True))
    initrd = daemon.home / "linux.initrd"  # the kernel unpacks one archive after the other, and the last one counts
    initrd.write_bytes(appliance.initramfs.read_bytes() + archive(more, directories=["mnt"]))
    (daemon.home / "root.raw").write_bytes(b"\x01" * 2**20)
    data = daemon.home / "data.raw"
    data.write_bytes(bytes(4 * 2**20))
    subprocess.run(["mkfs.ext4", "-q", "-F", data], check=True)
    daemon.forget()
    daemon.define(LINUX.format(kernel=appliance.kernel, initrd=initrd, home=daemon.home, interface=interface))
    daemon.virsh("start", "linux")
    until_the_agent_answers(daemon)
    run_inside(daemon, "insmod /lib/modules/virtio_blk.ko")
    yield "linux"
    daemon.forget()


def until_the_agent_answers(daemon: Libvirtd) -> None:
    deadline = time.monotonic() + 150
    while "return" not in daemon.virsh("qemu-agent-command", "linux", '{"execute":"guest-ping"}', ok=False):
        assert time.monotonic() < deadline, (daemon.home / "var/log/libvirt/linux-console.log").read_text()
        time.sleep(0.3)


def run_inside(daemon: Libvirtd, script: str) -> None:
    assert Inside(daemon, "linux", daemon.home / "root.raw").sh(f"{script} && echo done") == "done\n"


def ring(daemon: Libvirtd) -> bool:
    """Whether the running QEMU holds an io_uring."""
    fds = Path(f"/proc/{daemon.qemu('linux')}/fd").iterdir()
    return any(str(fd.readlink()) == "anon_inode:[io_uring]" for fd in fds)


def test_a_spare_disk_is_exchanged_and_back(user: User, daemon: Libvirtd, linux: str) -> None:
    before, live, pid = daemon.xml(linux), daemon.xml(linux, live=True), daemon.qemu(linux)
    words = ("--set", "iothread.count=1", "--set", "device.iothread@vdb=1", "--set", "disk.aio@vdb=io_uring")
    ran = user.run("apply", linux, "--connect", daemon.uri, *words, "--set", "disk.cache@vdb=none", *REPLUG)
    assert "changed" in ran.stdout
    assert "after it is powered off" not in ran.stdout
    assert "cache='none' io='io_uring' iothread='1'" in daemon.xml(linux, live=True)
    assert (ring(daemon), opened(Process(pid), daemon.home / "data.raw").direct) == (True, "on")
    ran = user.run("apply", "undo", "last", "--replug")
    assert "is as it was before" in ran.stdout
    assert (daemon.xml(linux), daemon.qemu(linux)) == (before, pid)
    assert plain(daemon.xml(linux, live=True)) == plain(live)
    assert opened(Process(pid), daemon.home / "data.raw").direct == "off"


def test_a_disk_that_is_mounted_is_left_alone(user: User, daemon: Libvirtd, linux: str) -> None:
    before, live = daemon.xml(linux), daemon.xml(linux, live=True)
    run_inside(daemon, "mount -t ext4 /dev/vdb /mnt")
    words = ("apply", linux, "--connect", daemon.uri, "--set", "disk.cache@vdb=none", *REPLUG)
    ran = user.run(*words, status=3)
    assert "the guest has vdb mounted on /mnt" in ran.stderr
    ran = user.run(*words[:4], "--set", "disk.cache@vda=none", "--replug", "vda", "--yes", status=3)
    assert "vda is what the guest boots from, and is not unplugged" in ran.stderr
    run_inside(daemon, "umount /mnt")
    assert (daemon.xml(linux), daemon.xml(linux, live=True)) == (before, live)


def test_what_cannot_be_plugged_in_now_is_plugged_in_later(user: User, daemon: Libvirtd, linux: str) -> None:
    before, live = daemon.xml(linux), daemon.xml(linux, live=True)
    data = daemon.home / "data.raw"
    data.rename(data.with_suffix(".away"))  # the running QEMU keeps it open, until it is unplugged
    words = ("--set", "disk.aio@vdb=io_uring", *REPLUG)
    ran = user.run("apply", linux, "--connect", daemon.uri, *words, status=1)
    assert "libvirt refused `attach-device`" in ran.stderr
    assert "the domain may be half changed: `virtune apply undo 2" in ran.stderr
    assert daemon.xml(linux) == before
    data.with_suffix(".away").rename(data)
    assert "linux is as it was before" in user.run("apply", "undo").stdout
    assert daemon.xml(linux) == before
    assert plain(daemon.xml(linux, live=True)) == plain(live)


INSTANTS = range(4, 10)
"""Before and after each step of its own; what comes before is the same in every change, see test_apply.py."""


@pytest.mark.parametrize("instants", [(6, 8), pytest.param(INSTANTS, marks=pytest.mark.long)], ids=str)
def test_killed_at_any_step_undo_plugs_it_in_as_it_was(
    instants: Sequence[int], user: User, daemon: Libvirtd, linux: str
) -> None:
    before, live = daemon.xml(linux), plain(daemon.xml(linux, live=True))
    place = user.home / "virtune" / "journal"
    means = Means(replug=("vdb",), replug_seconds=20.0)

    def killed(instant: int) -> bool:
        return killed_at(instant, daemon.uri, linux, ["disk.aio@vdb=io_uring"], journal=place, means=means)

    for instant in instants:
        assert killed(instant), instant
        for entry in Journal(place).entries()[-1:]:
            back = Back(replug=True)
            undo(Virsh(daemon.uri, write=True), entry, journal=Journal(place), anyway=False, back=back)
        assert daemon.xml(linux) == before, instant
        assert plain(daemon.xml(linux, live=True)) == live, instant
    assert not killed(INSTANTS.stop), "before and after each of five steps"
    assert "io='io_uring'" in daemon.xml(linux, live=True)
    user.run("apply", "undo", "last", "--replug")
    assert plain(daemon.xml(linux, live=True)) == live


@pytest.mark.long(always="a restart that the console vouches for is in each run (test_restart.py)")
def test_a_restart_that_agent_and_address_vouch_for(
    user: User, daemon: Libvirtd, linux: str, bridge: str | None
) -> None:
    pid = daemon.qemu(linux)
    words: tuple[str, ...] = ("--set", "disk.cache@vda=none", "--restart", "--timeout", "60", "--yes")
    words = (*words, "--healthy", "guest-agent")
    if bridge is not None:
        nobody = user.run("apply", linux, "--connect", daemon.uri, *words, "--healthy", "ping:10.213.77.9", status=3)
        assert "10.213.77.9 does not answer a ping now" in nobody.stderr
        words = (*words, "--healthy", "ping", "--healthy", f"ping:{GUEST}")
    ran = user.run("apply", linux, "--connect", daemon.uri, *words)
    assert "it was powered off and on, is healthy, and runs with all of it" in ran.stdout
    assert daemon.qemu(linux) != pid
    assert "cache='none'" in daemon.xml(linux, live=True)
