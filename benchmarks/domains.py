# SPDX-License-Identifier: Apache-2.0
"""Domains of a real libvirtd under load, for other benchmarks: started as the tests start it, with its own sockets.

Each domain is the guest without an operating system. It loads its first disk, which is a null-co of a storage daemon
over NBD; the others are files. Each QEMU has a second monitor beside libvirt's, by which the benchmark counts and
loads, so that neither needs libvirt.
"""

import contextlib
import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.libvirtd import Libvirtd, libvirtd

from virtune.bench.qemu.load import Line, find_guest

DOMAIN = """<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>{name}</name>
  <memory unit='MiB'>64</memory>
  <vcpu>1</vcpu>
  <iothreads>1</iothreads>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    <loader type='rom'>/usr/share/qemu/qboot.rom</loader>
    <kernel>{guest}</kernel>
  </os>
  <features><acpi/></features>
  <cpu mode='maximum'/>
  <clock offset='utc'><timer name='hpet' present='no'/></clock>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
    <controller type='pci' index='0' model='pcie-root'/>
    <controller type='pci' index='1' model='pcie-root-port'>
      <address type='pci' domain='0' bus='0' slot='1' function='0'/>
    </controller>
    <controller type='virtio-serial' index='0' ports='1'>
      <address type='pci' domain='0' bus='0' slot='3' function='0'/>
    </controller>
    <controller type='scsi' index='0' model='virtio-scsi'>
      <address type='pci' domain='0' bus='0' slot='4' function='0'/>
    </controller>
    <disk type='network' device='disk'>
      <driver name='qemu' type='raw' iothread='1'/>
      <source protocol='nbd' name='null'><host transport='unix' socket='{nbd}'/></source>
      <target dev='vda' bus='virtio'/>
      <address type='pci' domain='0' bus='1' slot='0' function='0'/>
    </disk>
    {disks}
    <console type='unix'><source mode='bind' path='{line}'/><target type='virtio' port='0'/></console>
  </devices>
  <qemu:commandline>
    <qemu:arg value='-qmp'/><qemu:arg value='unix:{monitor},server=on,wait=off'/>
  </qemu:commandline>
</domain>
"""

DISK = """<disk type='file' device='disk'>
      <driver name='qemu' type='raw'/><source file='{image}'/><target dev='sd{letters}' bus='scsi'/>
      <address type='drive' controller='0' bus='0' target='0' unit='{unit}'/>
    </disk>"""


@contextlib.contextmanager
def null_export(directory: Path, latency_ns: int) -> Iterator[Path]:
    """Yield the socket of an NBD export of a null-co."""
    place = directory / "nbd.sock"
    words = ["qemu-storage-daemon", "--nbd-server", f"addr.type=unix,addr.path={place},max-connections=0"]
    # not read-zeroes=on: the NBD server would see holes, send those, and never wait for the latency
    words += ["--blockdev", f"null-co,node-name=n,size={64 << 20},read-zeroes=off,latency-ns={latency_ns}"]
    words += ["--export", "nbd,id=e,node-name=n,name=null,writable=on"]
    with subprocess.Popen(words) as daemon:
        try:
            until = time.monotonic() + 20
            while not place.exists() and time.monotonic() < until:
                time.sleep(0.02)
            yield place
        finally:
            daemon.terminate()


def load(monitor: Path, ids: Sequence[str], end: threading.Event) -> None:
    """Have QEMU read from each of these disks, again and again."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(monitor))
        file = connection.makefile("rw")
        file.readline()
        print(json.dumps({"execute": "qmp_capabilities"}), file=file, flush=True)
        file.readline()
        while not end.wait(0.2):
            for disk in ids:
                words = {"command-line": f'qemu-io -d {disk} "aio_read 0 4k"'}
                print(json.dumps({"execute": "human-monitor-command", "arguments": words}), file=file, flush=True)
                file.readline()


def letters(number: int) -> str:
    """The letters of a disk's name: a to z, aa to az."""
    return ("" if number < 26 else "a") + chr(ord("a") + number % 26)


def define(daemon: Libvirtd, directory: Path, name: str, disks: int, nbd: Path) -> None:
    """Define a domain with so many disks."""
    more = []
    for disk in range(1, disks):
        image = directory / f"{name}.{disk}.raw"
        with image.open("wb") as file:
            file.truncate(64 << 20)
        more.append(DISK.format(image=image, letters=letters(disk - 1), unit=disk - 1))
    places = {"line": directory / f"{name}.line", "monitor": directory / f"{name}.load", "nbd": nbd}
    daemon.define(DOMAIN.format(name=name, guest=find_guest(), disks="".join(more), **places))


def begin(daemon: Libvirtd, directory: Path, name: str, job: str) -> socket.socket:
    """Start a domain, and its load; returns the line to its guest."""
    # what the guest says before somebody listens is lost
    daemon.virsh("start", "--paused", name)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(directory / f"{name}.line"))
    daemon.virsh("resume", name)
    line = Line(connection)
    assert line.receive(60) is not None
    line.ask("job", job.encode(), expect="armed", timeout_seconds=60)
    line.ask("go", b"60000 0", expect="began", timeout_seconds=60)
    return connection


@contextlib.contextmanager
def domains(directory: Path, vms: int, disks: int, *, job: str, latency_ns: int, loaded: bool) -> Iterator[Libvirtd]:
    """Run domains `vm0`, `vm1`, ... under load while the block runs; their further disks too if `loaded`. A domain's
    second monitor is its name with the suffix `.load`.
    """
    end = threading.Event()
    with contextlib.ExitStack() as ends:
        nbd = ends.enter_context(null_export(directory, latency_ns))
        daemon = ends.enter_context(libvirtd(directory / "libvirt"))
        names = [f"vm{number}" for number in range(vms)]
        for name in names:
            define(daemon, directory, name, disks, nbd)
            ends.enter_context(begin(daemon, directory, name, job))
        ids = [f"scsi0-0-0-{number}" for number in range(disks - 1)]
        threads = [
            threading.Thread(target=load, args=(directory / f"{name}.load", ids, end)) for name in names if loaded
        ]
        for thread in threads:
            thread.start()
            ends.callback(thread.join)
        ends.callback(end.set)
        yield daemon
