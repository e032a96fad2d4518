# SPDX-License-Identifier: Apache-2.0
"""A real libvirtd for the tests of this folder in one process, and domains to put into it.

Guests with Linux (group `domains`) and without (group `libvirt`) have a libvirtd each, and run side by side.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.libvirt.inside import Inside, inside
from tests.libvirtd import PROGRAMS, Libvirtd, libvirtd

DOMAIN = """<domain type='qemu'>
  <name>{name}</name>
  <memory unit='MiB'>64</memory>
  <vcpu>2</vcpu>
  {rest}
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <features><acpi/></features>
  <cpu mode='maximum'/>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw' {driver}/>
      <source file='{image}'/>
      <target dev='{target}' bus='{bus}'/>
    </disk>
    <graphics type='vnc' passwd='geheim'/>
  </devices>
</domain>
"""

STUDY = "cache='none' io='io_uring' discard='unmap' iothread='1'"
STUDY_THREADS = "<iothreads>1</iothreads><cputune><iothreadpin iothread='1' cpuset='1'/></cputune>"


@pytest.fixture(scope="session")
def daemon() -> Iterator[Libvirtd]:
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}; `tools/setup dev` brings them")
    # QEMU's monitor socket lies below it, and a socket's path may have 107 characters
    home = Path(tempfile.mkdtemp(prefix="lv", dir="/tmp"))
    try:
        with libvirtd(home) as found:
            yield found
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def make(daemon: Libvirtd) -> Iterator[Callable[..., str]]:
    """Defines a domain with one disk; all domains are gone afterwards."""

    def defined(
        name: str, driver: str = "", *, rest: str = "", bus: str = "virtio", target: str = "vda", sparse: bool = False
    ) -> str:
        image = daemon.home / f"{name}.raw"
        with image.open("wb") as file:
            file.write(b"\x01" * (4096 if sparse else 2**20))
            file.truncate(2**20)
        daemon.define(DOMAIN.format(name=name, driver=driver, rest=rest, bus=bus, target=target, image=image))
        return name

    yield defined
    daemon.forget()


@pytest.fixture(scope="module")
def booted(daemon: Libvirtd) -> Iterator[Inside]:
    with inside(daemon, "guest1") as found:
        yield found


@pytest.fixture
def guest1(booted: Inside) -> Inside:
    booted.revive()
    return booted
