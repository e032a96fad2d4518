# SPDX-License-Identifier: Apache-2.0
"""Access to a running libvirt domain: check that it exists, its agent answers, and it meets a load's requirements;
and virtune's disks in existing domains, recorded before they are attached, so that they are found after a crash, and
detached, also after the run that attached them is gone.

A missing requirement is reported in one sentence, with what to do, before anything is created or attached.

There is one small file per run and domain: the libvirt, the domain, the disk's name, the scratch image, and the
process that attached it. It is on the disk before anything is attached, and removed when all is detached. A disk is
detached by its unique alias, so another disk that was attached since under the same target stays.
"""

import contextlib
import fcntl
import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from virtune import warden
from virtune.bench.guest.agent import (
    SPEED_HINT,
    AgentGuest,
    GuestError,
    Refused,
    read_clock,
    speed_words,
    wrong_speed,
)
from virtune.bounded import opened
from virtune.dialects.libvirt.disk import alias_of, find_plugged
from virtune.dialects.libvirt.domain import has_agent, read_domain
from virtune.dialects.text.xml import Element
from virtune.model.errors import PreconditionError, ReadError, RigError, VirtuneError
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

    def jobs(self, disks: Sequence[str]) -> dict[str, str]:
        """Return what libvirt does now with the domain or these disks of it (`backup`, `block copy of vda`), each
        with how far it is; nothing where it does not tell.
        """
        mark = f"virtune-{secrets.token_hex(16)}"
        disks = [disk for disk in disks if _TARGET.fullmatch(disk)]
        asked = [f"domjobinfo {self.uuid}", *(f"blockjob {self.uuid} {disk} --raw" for disk in disks)]
        with contextlib.suppress(VirtuneError):
            _, *answers = self.virsh.run("; ".join(f"echo {mark}; {one}" for one in asked), ok=(0, 1)).split(mark)
            found = [(_JOB.search(answer), _PROGRESS.findall(answer)) for answer in answers]
            names = ["", *(f" of {disk}" for disk in disks)]
            return {
                f"{job[1].lower()}{name}": " ".join(progress)
                for (job, progress), name in zip(found, names, strict=False)
                if job is not None
            }
        return {}


_TARGET = re.compile(r"[A-Za-z0-9]+", re.ASCII)
_JOB = re.compile(r"^(?:Operation: +| *type=)(.*\S)", re.MULTILINE)
_PROGRESS = re.compile(r"^(?:\w+ processed: +| *cur=)(.*\S)", re.MULTILINE)


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


_SUFFIX = ".json"
_UUID = re.compile(r"[0-9a-fA-F-]{1,64}")
"""The names of domains' lock files: any other could lead to another directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugged:
    """A domain to which a run attaches its disk. `name` is the disk's: its serial number, and part of its alias.

    `owner` and `started` are the process that does it, and its start time (clock ticks since boot).
    """

    name: str
    uri: str
    uuid: str
    domain: str
    scratch: str
    owner: int
    started: int

    @property
    def abandoned(self) -> bool:
        """Whether the process that attached it is gone."""
        return warden.start_time(self.owner) != self.started


@contextlib.contextmanager
def alone_in(home: Path, uuid: str, domain: str) -> Iterator[None]:
    """Lock a domain; raises PreconditionError while another virtune measures in it."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with opened(home / f"{uuid}.lock", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PreconditionError(f"another virtune is measuring in {domain}", hint="wait for it to end") from None
        yield


def write_down(home: Path, *, uri: str, uuid: str, domain: str, scratch: Path) -> Plugged:
    """Record a disk before it is attached, under a new name; on the disk when this returns."""
    pid = os.getpid()
    plugged = Plugged(
        name=f"virtune-{secrets.token_hex(4)}",
        uri=uri,
        uuid=uuid,
        domain=domain,
        scratch=str(scratch),
        owner=pid,
        started=warden.start_time(pid),
    )
    os.close(warden.write_record(home / f"{plugged.name}{_SUFFIX}", asdict(plugged)))
    return plugged


def strike_out(home: Path, plugged: Plugged) -> None:
    """Remove the record of a detached disk."""
    warden.remove_record(home / f"{plugged.name}{_SUFFIX}")


def written_down(home: Path) -> list[Plugged]:
    """Return all records, of live and of dead runs."""
    return [found for path in sorted(home.glob(f"virtune-*{_SUFFIX}")) if (found := said(path)) is not None]


def said(path: Path) -> Plugged | None:
    """Return what a record says; None where it is not the very file that virtune wrote."""
    found = warden.record_at(path)
    words = {one.name: found.get(one.name) for one in fields(Plugged)}
    numbers = [words.pop(name) for name in ("owner", "started")]
    if not all(type(one) is int for one in numbers) or not all(isinstance(one, str) for one in words.values()):
        return None
    fits = (
        path.name == f"{found['name']}{_SUFFIX}" and _UUID.fullmatch(found["uuid"]) and "\0" not in found["scratch"]
    )
    return Plugged(**{one.name: found[one.name] for one in fields(Plugged)}) if fits else None


_GONE_SECONDS = 30.0
"""A guest releases a disk in 0.2 s; one with a busy kernel under emulation took 3 s."""

_AGAIN_SECONDS = 5.0
"""After this time QEMU forgets a request that a booting guest did not see, and accepts another."""

_LOOK_SECONDS = 0.1
_SWEEP_SECONDS = 10.0

_SWEEP = """for process in /proc/[0-9]*; do
case $(readlink "$process/cwd") in "$1" | "$1"/*) kill -9 "${process#/proc/}" ;; esac
done
rm -rf "$1"
"""
"""Ends all processes that work in a directory, and removes it."""


def unplug(virsh: Virsh, uuid: str, domain: str, name: str) -> bool:
    """Detach the disk of a name and wait until it is gone; returns whether there was one.

    Raises RigError when the guest does not release it.
    """
    deadline, again, was_there = time.monotonic() + _GONE_SECONDS, 0.0, False
    while True:
        if time.monotonic() >= again:
            again = time.monotonic() + _AGAIN_SECONDS
            # requested even if it is not visible: an interrupted attach may still be in progress, and libvirt runs
            # them in order
            try:
                virsh.run("detach-device-alias", uuid, alias_of(name), "--live")
                was_there = True
            except LibvirtRefused:
                again = 0.0 if _job_ended(virsh, uuid, name) else again
        if not _is_there(virsh, uuid, name):
            return was_there
        if time.monotonic() > deadline:
            raise RigError(
                f"the guest of {domain} does not let go of virtune's disk {name}",
                hint="`virtune host clean` tries it again; a guest that is off, or boots, has to be up for that",
            )
        time.sleep(_LOOK_SECONDS)


def sweep_guest(guest: AgentGuest, place: str) -> None:
    """End virtune's processes in a guest and remove their directory; a guest that is gone needs neither."""
    with contextlib.suppress(GuestError):
        guest.run(["sh", "-c", _SWEEP, "sh", f"/run/{place}"], timeout_seconds=_SWEEP_SECONDS)


def take_out(left: Plugged, virsh: Virsh, guest: AgentGuest) -> bool:
    """Clean up after a dead run in a domain; returns whether its disk was still attached."""
    sweep_guest(guest, left.name)
    return unplug(virsh, left.uuid, left.domain, left.name)


def _is_there(virsh: Virsh, uuid: str, name: str) -> bool:
    try:
        return _shown(virsh, uuid, name) is not None
    except ReadError:
        return True


def _job_ended(virsh: Virsh, uuid: str, name: str) -> bool:
    """End the job of the disk of a name, with which libvirt does not detach it; returns whether there was one."""
    with contextlib.suppress(ReadError, LibvirtRefused):
        if (disk := _shown(virsh, uuid, name)) is not None:
            virsh.run("blockjob", uuid, str(disk.value("target", "dev")), "--abort")
            return True
    return False


def _shown(virsh: Virsh, uuid: str, name: str) -> Element | None:
    found = virsh.dump([uuid])
    return None if not found or found[0].live is None else find_plugged(found[0].live.encode(), name)
