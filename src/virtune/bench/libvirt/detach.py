# SPDX-License-Identifier: Apache-2.0
"""Detach virtune's disk from a domain, also after the run that attached it is gone.

A disk is detached by its unique alias, so another disk that was attached since under the same target stays.
"""

import contextlib
import time

from virtune.bench.guest.agent import AgentGuest
from virtune.bench.guest.channel import GuestError
from virtune.bench.libvirt.attached import Plugged
from virtune.dialects.libvirt.attach import alias_of, find_plugged
from virtune.model.errors import ReadError, RigError
from virtune.virsh import LibvirtRefused, Virsh

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
