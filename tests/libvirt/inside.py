# SPDX-License-Identifier: Apache-2.0
"""A domain that boots the appliance with its QEMU guest agent, as a guest of a user's own has agent and fio."""

import base64
import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.libvirtd import Libvirtd

from virtune import shell
from virtune.bench.appliance.build import appliance_for
from virtune.bench.appliance.sources import find_sources
from virtune.bench.guest.agent import AgentGuest, read_clock, speed_words, wrong_speed
from virtune.bench.libvirt.access import LibvirtLine
from virtune.virsh import Virsh

BOOTS = 5

WRITING = """rm -f /run/enough
exec >/dev/null 2>&1
(until [ -e /run/enough ]; do dd if=/dev/zero of=/dev/vda bs=64k count=4 conv=fsync; sleep 0.1; done) &
"""

DOMAIN = """<domain type='qemu'>
  <name>{name}</name>
  <memory unit='MiB'>512</memory>
  <vcpu>2</vcpu>
  <iothreads>1</iothreads>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    <kernel>{kernel}</kernel>
    <initrd>{initramfs}</initrd>
    <cmdline>console=ttyS0 quiet loglevel=3 panic=-1 tsc=reliable mitigations=off no_timer_check ports=1</cmdline>
  </os>
  <features><acpi/></features>
  <cpu mode='maximum'/>
  <clock offset='utc'><timer name='hpet' present='no'/></clock>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type='usb' model='none'/>
    <controller type='pci' index='0' model='pcie-root'/>
    <controller type='pci' index='1' model='pcie-root-port'/>
    <controller type='pci' index='2' model='pcie-root-port'/>
    <controller type='pci' index='3' model='pcie-root-port'/>
    <controller type='pci' index='4' model='pcie-root-port'/>
    <memballoon model='none'/>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw' cache='none' io='io_uring'/>
      <source file='{image}'/>
      <target dev='vda' bus='virtio'/>
    </disk>
    <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
    <serial type='file'><source path='{console}'/><target port='0'/></serial>
  </devices>
</domain>
"""


@dataclass(frozen=True)
class Inside:
    """A domain that runs, and ways to look into its guest."""

    daemon: Libvirtd
    name: str
    image: Path

    def configurations(self) -> tuple[str, str]:
        return self.daemon.xml(self.name, live=True), self.daemon.xml(self.name)

    def ask(self, command: str, **arguments: object) -> object:
        asked = json.dumps({"execute": command, "arguments": arguments})
        return json.loads(self.daemon.virsh("qemu-agent-command", self.name, asked))["return"]

    def sh(self, words: str) -> str:
        """Run a line of shell in the guest and return what it prints."""
        begun = self.ask("guest-exec", path="sh", arg=["-c", words], **{"capture-output": True})
        assert isinstance(begun, dict)
        while True:
            said = self.ask("guest-exec-status", pid=begun["pid"])
            assert isinstance(said, dict)
            if said["exited"]:
                return base64.b64decode(said.get("out-data", "")).decode()
            time.sleep(0.05)

    def boot(self) -> None:
        """Start the domain and wait until its agent answers, again where its clock is wrong: on a busy host that was
        seen. A guest of a user has its drivers by itself.
        """
        for _ in range(BOOTS):
            self._boot()
            first = read_clock(self.agent(), timeout_seconds=60)
            self.sh("for m in $(cat /lib/modules/virtio_blk.order); do insmod /lib/modules/$m.ko; done; sleep 0.3")
            speed = wrong_speed(first, read_clock(self.agent(), timeout_seconds=60))
            if speed is None:
                return
            print(speed_words(self.name, speed))
            self.daemon.virsh("destroy", self.name)
        raise AssertionError(f"the clock of {self.name} was wrong after each of {BOOTS} boots")

    def agent(self) -> AgentGuest:
        virsh = Virsh(self.daemon.uri, write=True)
        return AgentGuest(LibvirtLine(virsh, virsh.uuid(self.name)))

    def _boot(self) -> None:
        self.daemon.virsh("start", self.name)
        deadline = time.monotonic() + 150
        while "{}" not in self.daemon.virsh("qemu-agent-command", self.name, '{"execute":"guest-ping"}', ok=False):
            assert time.monotonic() < deadline, self.last_words()
            time.sleep(0.3)

    def last_words(self) -> str:
        return (self.daemon.home / f"{self.name}.console").read_text(errors="replace")[-500:]

    def revive(self) -> None:
        """Boot a guest again that an earlier test lost, so that it costs the others nothing."""
        if self.daemon.virsh("domstate", self.name).strip() != "running":
            print(self.daemon.virsh("domstate", self.name, "--reason"), self.last_words())
            self.boot()


@contextlib.contextmanager
def inside(daemon: Libvirtd, name: str, *, own_thread: bool = False) -> Iterator[Inside]:
    """Boot the domain and yield it when its agent answers; its disk may have the IOThread."""
    cache = shell.cache_directory()
    appliance, _ = appliance_for(find_sources(cache / "packages", agent=True), cache / "appliances")
    image = daemon.home / f"{name}.raw"
    image.write_bytes(os.urandom(4 * 2**20))
    places = {"kernel": appliance.kernel, "initramfs": appliance.initramfs, "image": image}
    xml = DOMAIN.format(name=name, console=daemon.home / f"{name}.console", **places)
    daemon.define(xml.replace("io='io_uring'", "io='io_uring' iothread='1'") if own_thread else xml)
    found = Inside(daemon, name, image)
    try:
        found.boot()
        yield found
    finally:
        daemon.virsh("destroy", name, ok=False)
        daemon.virsh("undefine", name)
