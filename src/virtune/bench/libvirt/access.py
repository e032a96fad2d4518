# SPDX-License-Identifier: Apache-2.0
"""Access to a running libvirt domain: check that it exists, its agent answers, and it meets a load's requirements.

A missing requirement is reported in one sentence, with what to do, before anything is created or attached.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virtune.bench.guest.agent import AgentGuest, Refused
from virtune.bench.guest.channel import SPEED_HINT, GuestError, read_clock, speed_words, wrong_speed
from virtune.dialects.libvirt.domain import has_agent, read_domain
from virtune.model.errors import PreconditionError, ReadError
from virtune.model.stack import Stack, thread_number
from virtune.probe.process import Process, process_of_domain
from virtune.probe.programs import read_engines
from virtune.virsh import DumpedDomain, LibvirtRefused, Virsh

NEEDED = ("guest-exec", "guest-exec-status", "guest-file-open", "guest-file-read", "guest-file-write",
          "guest-file-close")  # fmt: skip
"""The agent commands that must be allowed."""

_PING_SECONDS = 5.0
_FIO_SECONDS = 30.0
_CHANNEL = "<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>"


class LibvirtLine:
    """The agent of a domain, by the libvirt that owns its port."""

    def __init__(self, virsh: Virsh, uuid: str) -> None:
        self._virsh, self._uuid = virsh, uuid

    def ask(self, command: str, arguments: Mapping[str, Any], *, timeout_seconds: float) -> Any:
        """Return what the agent answers; raises Refused with its words, GuestError when there is no answer."""
        asked = {"execute": command} | ({"arguments": dict(arguments)} if arguments else {})
        try:
            said = self._virsh.agent(self._uuid, json.dumps(asked), timeout_seconds=timeout_seconds)
        except LibvirtRefused as refusal:
            if "read only access" in refusal.message:
                raise PreconditionError(
                    f"the connection {self._virsh.uri} only reads, and a disk is plugged in by one that writes",
                    hint="take one that may change domains, such as qemu:///system, as root or in libvirt's group",
                ) from None
            if "unable to execute QEMU agent command" in refusal.message:
                words = refusal.message.partition("unable to execute QEMU agent command")[2]
                raise Refused(f"the guest agent refused `{command}`: {words.partition(': ')[2]}") from None
            raise GuestError(refusal.message.partition("`: ")[2] or refusal.message) from None
        try:
            return json.loads(said)["return"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise GuestError(f"the guest agent answered `{command}` with what cannot be read") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainAccess:
    """A running domain with an agent and fio. `process` is its QEMU, None where that is not visible here."""

    virsh: Virsh
    uuid: str
    domain: str
    process: Process | None
    guest: AgentGuest
    vcpus: int
    engines: frozenset[str]

    def dump(self) -> DumpedDomain:
        """Return the domain's present configurations from libvirt; raises PreconditionError when it is gone."""
        found = self.virsh.dump([self.uuid])
        if not found:
            raise PreconditionError(f"there is no domain {self.domain} any more at {self.virsh.uri}")
        return found[0]


def find_way(uri: str, domain: str) -> DomainAccess:
    """Return the access to a domain; raises PreconditionError with what is missing and what to do."""
    virsh = Virsh(uri, write=True)
    facts = virsh.facts()
    if facts.hypervisor != "QEMU":
        raise PreconditionError(f"virtune plugs disks into domains of QEMU, and {uri} runs {facts.hypervisor}")
    if not facts.local:
        raise PreconditionError(
            f"{uri} is not this host, and a scratch disk has to lie where the domain runs",
            hint="call virtune on that host, with qemu:///system",
        )
    uuid = virsh.uuid(domain)
    live = _running(virsh, uuid, domain)
    if not has_agent(live):
        raise PreconditionError(
            f"{domain} has no port for a guest agent, by which virtune runs fio in it",
            hint=f"`virsh attach-device` gives it one as it runs: {_CHANNEL}; then install qemu-guest-agent in it",
        )
    guest = AgentGuest(LibvirtLine(virsh, uuid))
    _require_agent(guest, domain)
    clock = read_clock(guest, timeout_seconds=_PING_SECONDS)
    engines = _engines(guest, domain)
    cpus = guest.run(["grep", "-c", "^processor", "/proc/cpuinfo"], timeout_seconds=_PING_SECONDS).stdout.strip()
    speed = wrong_speed(clock, read_clock(guest, timeout_seconds=_PING_SECONDS))
    if speed is not None:
        raise PreconditionError(speed_words(domain, speed), hint=SPEED_HINT)
    return DomainAccess(
        virsh=virsh,
        uuid=uuid,
        domain=domain,
        process=process_of_domain(uuid),
        guest=guest,
        vcpus=int(cpus) if cpus.isdigit() else read_domain(live).vcpus,
        engines=engines,
    )


def require_possible(way: DomainAccess, stack: Stack) -> None:
    """Raise PreconditionError for settings that this running domain cannot get."""
    wanted = thread_number(stack.device.iothread or "")
    if wanted is None:
        return
    threads = [thread.number for thread in read_domain((way.dump().live or "").encode()).threads]
    if wanted not in threads:
        has = f"it has {', '.join(map(str, threads))}" if threads else "it has none"
        raise PreconditionError(
            f"{way.domain} has no IOThread {wanted}: {has}, and virtune changes nothing of the domain itself",
            hint=f"`virsh iothreadadd {way.domain} {wanted} --live` gives it one as it runs",
        )


def _running(virsh: Virsh, uuid: str, domain: str) -> bytes:
    found = virsh.dump([uuid])
    if not found or found[0].live is None or found[0].state != "running":
        state = found[0].state if found else "gone"
        raise PreconditionError(
            f"{domain} is {state}, and virtune measures in a domain that runs",
            hint=f"`virsh -c {virsh.uri} {'resume' if state == 'paused' else 'start'} {domain}`",
        )
    try:
        read_domain(found[0].live.encode())
    except ReadError as error:
        raise PreconditionError(f"libvirt's XML of {domain} cannot be read: {error.message}") from None
    return found[0].live.encode()


def _require_agent(guest: AgentGuest, domain: str) -> None:
    try:
        guest.ping(timeout_seconds=_PING_SECONDS)
    except GuestError as error:
        raise PreconditionError(
            f"the guest agent of {domain} does not answer: {error.message}",
            hint="in the guest: `apt-get install qemu-guest-agent`, then `systemctl start qemu-guest-agent`",
        ) from None
    if guest.system() == "mswindows":
        raise PreconditionError(f"{domain} runs Windows, and virtune measures in Linux guests only")
    allowed = guest.commands()
    forbidden = [command for command in NEEDED if command not in allowed]
    if forbidden:
        raise PreconditionError(
            f"the guest agent of {domain} is not allowed to carry out {forbidden[0]}",
            hint="some distributions forbid it: its option `--block-rpcs`, in /etc/sysconfig/qemu-ga of the guest",
        )


def _engines(guest: AgentGuest, domain: str) -> frozenset[str]:
    """Return the engines of the guest's fio, with io_uring only if the guest's kernel allows it."""
    said = guest.run(["fio", "--enghelp"], timeout_seconds=_FIO_SECONDS)
    if said.status != 0:
        raise PreconditionError(
            f"{domain} has no fio, which makes the load inside of it",
            hint="in the guest: `apt-get install fio`, `dnf install fio` or `zypper install fio`",
        )
    engines = frozenset(read_engines(said.stdout.decode(errors="replace")))
    if "io_uring" in engines:
        words = ["--name=try", "--ioengine=io_uring", "--filename=/dev/zero", "--rw=read", "--bs=4k", "--size=4k"]
        tried = guest.run(["fio", "--thread=1", "--readonly", *words], timeout_seconds=_FIO_SECONDS)
        engines = engines if tried.status == 0 else engines - {"io_uring"}
    return engines


def scripts() -> Mapping[str, bytes]:
    """Return virtune's scripts for a guest (armed, barrier, counters, disk), by name."""
    ours = Path(__file__).resolve().parents[2] / "guest"
    return {name: (ours / name).read_bytes() for name in ("armed", "barrier", "counters", "disk")}
