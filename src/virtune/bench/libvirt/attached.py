# SPDX-License-Identifier: Apache-2.0
"""virtune's disks in existing domains: recorded before they are attached, so that they are found after a crash, and
detached, also after the run that attached them is gone.

There is one small file per run and domain: the libvirt, the domain, the disk's name, the scratch image, and the
process that attached it. It is on the disk before anything is attached, and removed when all is detached.

A disk is detached by its unique alias, so another disk that was attached since under the same target stays.
"""

import contextlib
import fcntl
import os
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from virtune import warden
from virtune.bench.guest.agent import AgentGuest
from virtune.bench.guest.channel import GuestError
from virtune.bounded import opened
from virtune.dialects.libvirt.disk import alias_of, find_plugged
from virtune.model.errors import PreconditionError, ReadError, RigError
from virtune.virsh import LibvirtRefused, Virsh

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
    path = home / f"{plugged.name}{_SUFFIX}"
    warden.remove_file(path, lambda found: warden.is_named(found, warden.record_at(path).get("self", {})))


def written_down(home: Path) -> list[Plugged]:
    """Return all records, of live and of dead runs."""
    return [said for path in sorted(home.glob(f"virtune-*{_SUFFIX}")) if (said := _said(path)) is not None]


def look_alikes(home: Path) -> list[str]:
    """Return the files among the records that virtune did not write there, such as copies; in words."""
    every = sorted(home.glob(f"virtune-*{_SUFFIX}"))
    return [f"{path}: it is no record of virtune's, or a copy" for path in every if _said(path) is None]


def _said(path: Path) -> Plugged | None:
    said = warden.record_at(path)
    words = {one.name: said.get(one.name) for one in fields(Plugged)}
    numbers = [words.pop(name) for name in ("owner", "started")]
    if not all(type(one) is int for one in numbers) or not all(isinstance(one, str) for one in words.values()):
        return None
    fits = path.name == f"{said['name']}{_SUFFIX}" and _UUID.fullmatch(said["uuid"]) and "\0" not in said["scratch"]
    return Plugged(**{one.name: said[one.name] for one in fields(Plugged)}) if fits else None


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
            # requested even if it is not visible: an interrupted attach may still be in progress, and libvirt runs
            # them in order
            with contextlib.suppress(LibvirtRefused):
                virsh.run("detach-device-alias", uuid, alias_of(name), "--live")
                was_there = True
            again = time.monotonic() + _AGAIN_SECONDS
        if not _is_there(virsh, uuid, name):
            return was_there
        if time.monotonic() > deadline:
            raise RigError(
                f"the guest of {domain} does not let go of virtune's disk {name}",
                hint="`virtune clean` tries it again; a guest that is off, or boots, has to be up for that",
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
    found = virsh.dump([uuid])
    if not found or found[0].live is None:
        return False
    with contextlib.suppress(ReadError):
        return find_plugged(found[0].live.encode(), name) is not None
    return True
