# SPDX-License-Identifier: Apache-2.0
"""The state of a guest after its boot, saved once and resumed by the guests that follow.

Under TCG Linux boots for 2 to 3 s of CPU time, and a saved state is resumed in 0.1 s. A state is the guest's memory,
a file that every guest maps for itself (what it writes is its own), and what QEMU knows of its devices. It lies with
the appliance that was booted, and counts for this QEMU with these options until the host boots again: a guest on TCG
has the host's time-stamp counter, whose frequency it measured.
"""

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from virtune import warden
from virtune.bench.appliance.build import LOCK, Appliance, is_whole, sign
from virtune.dialects.qemu.guest import GuestMachine, machine_argv
from virtune.model.machine import MEMORY

MEMORY_FILE, DEVICES_FILE = "memory", "devices"

_KEPT = 6
"""How many states an appliance keeps; each takes 0.1 GB."""

_REFUSED = "refused"
"""The file that says of a state that it could not be saved or resumed, so that it is not tried again."""

_ROOM_BYTES = 256 * 1024**2
"""The room that must be left on the disk, beside the guest's whole memory."""

_UNUSED_SECONDS = 24 * 3600
"""States of another boot are removed when they were not used for so long: a home directory may be that of several
hosts, and a guest whose memory is taken away by another host dies.
"""


def place_of(appliance: Appliance, program: str, machine: GuestMachine, *, prepared: str) -> Path:
    """Return where the state of a machine after its boot belongs, by everything that it depends on; `prepared` is
    what was run in the guest before it was saved.
    """
    path = Path(program).resolve()
    about = path.stat()
    plain = replace(machine, kernel=appliance.kernel.name, initramfs="", console="", monitor=-1, agent=None)
    words = machine_argv(str(path), replace(plain, channels=(-1,) * len(machine.channels)))
    parts = (appliance.key, machine.agent is not None, words, about.st_size, about.st_mtime_ns, prepared)
    key = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    return appliance.kernel.parent / "booted" / f"{_boot()}-{key}"


def is_saved(place: Path) -> bool:
    """Whether there is a state to resume, which nobody else could have changed; it counts as used now."""
    if (place / _REFUSED).exists() or not (place / DEVICES_FILE).exists() or not is_whole(place):
        return False
    with contextlib.suppress(OSError):
        os.utime(place)
    return True


@contextlib.contextmanager
def to_save(place: Path, machine: GuestMachine) -> Iterator[Path | None]:
    """Yield a directory for the files of a state that becomes `place` with the end of the block; None where there is
    one already, it was refused, another process is at it, or there is no room.
    """
    with contextlib.ExitStack() as ends:
        work = None
        with contextlib.suppress(OSError):
            if not _has_one(place) and _is_first(place, ends) and _has_room(place.parent, machine):
                for left in place.parent.glob(f"{place.name}.*{warden.PARTIAL}"):
                    gone = warden.is_abandoned(left) and warden.remove(left)
                    warden.note_removed([f"half a saved guest {left}"] if gone else [])
                work = ends.enter_context(warden.filled(place))
        if work is None:
            yield None
            return
        yield work
        with contextlib.suppress(OSError):
            sign(work)
            warden.remove(place)  # what others may have changed
            work.rename(place)
        _remove_old(place)


def refuse(place: Path) -> None:
    """Note that a state cannot be saved or resumed, and remove it; whoever runs on it keeps it until the end."""
    warden.remove(place)
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        with warden.filled(place) as work:
            (work / _REFUSED).touch()
            work.rename(place)


def _has_one(place: Path) -> bool:
    """Whether there is a state, a refusal of one, or something else in its place that has to stay."""
    there = (place / _REFUSED).exists() or (place.exists() and warden.doubt(place) is not None)
    return there or is_saved(place)


def _is_first(place: Path, ends: contextlib.ExitStack) -> bool:
    """Whether no other process saves this state now; if so, none does until the end, which removes the lock."""
    place.parent.mkdir(exist_ok=True)
    name = place.with_name(f"{place.name}{LOCK}")
    lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    ends.callback(os.close, lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    # who had it may have removed it since we opened it, and the next one has a file of its own
    if not name.exists() or not os.path.samestat(os.fstat(lock), name.stat()):
        return False
    ends.callback(warden.remove_file, name, warden.is_empty)
    return not _has_one(place)


def _has_room(directory: Path, machine: GuestMachine) -> bool:
    disk = os.statvfs(directory)
    return disk.f_bavail * disk.f_frsize >= (machine.asked.memory or MEMORY) + _ROOM_BYTES


def _remove_old(place: Path) -> None:
    """Remove what other boots left, with any appliance, and of this boot what was not used for the longest time."""
    home, now = place.parent.parent.parent, time.time()
    with contextlib.suppress(OSError):
        every = {path: path.stat().st_mtime for path in home.glob("*/booted/*")}
        boot, oldest = f"{_boot()}-", now - _UNUSED_SECONDS
        old = [path for path, used in every.items() if not path.name.startswith(boot) and used < oldest]
        ours = [path for path in every if path.parent == place.parent and path.name.startswith(boot)]
        states = [path for path in ours if path.is_dir() and not path.name.endswith(warden.PARTIAL)]
        old += sorted(states, key=lambda path: every[path])[:-_KEPT]
        for path in old:
            if path.suffix == LOCK:
                warden.remove_file(path, warden.is_empty)
            else:
                warden.remove(path)


def _boot() -> str:
    """Return the beginning of this boot's id."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    return "unknown"
