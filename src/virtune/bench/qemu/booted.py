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
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from virtune.bench.appliance.build import PARTIAL, Appliance
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
    """Whether there is a state to resume; it counts as used now."""
    if (place / _REFUSED).exists() or not (place / DEVICES_FILE).exists():
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
            if not place.exists() and _is_first(place, ends) and _has_room(place.parent, machine):
                for left in place.parent.glob(f"{place.name}.*{PARTIAL}"):  # by a process that was killed
                    shutil.rmtree(left, ignore_errors=True)
                work = place.with_name(f"{place.name}.{os.getpid()}{PARTIAL}")
                work.mkdir()
        if work is None:
            yield None
            return
        ends.callback(shutil.rmtree, work, ignore_errors=True)
        yield work
        with contextlib.suppress(OSError):
            work.rename(place)
        _remove_old(place)


def refuse(place: Path) -> None:
    """Note that a state cannot be saved or resumed, and remove it; whoever runs on it keeps it until the end."""
    shutil.rmtree(place, ignore_errors=True)
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
        (place / _REFUSED).touch()


def _is_first(place: Path, ends: contextlib.ExitStack) -> bool:
    """Whether no other process saves this state now; if so, none does until the end, which removes the lock."""
    place.parent.mkdir(exist_ok=True)
    name = place.with_name(f"{place.name}.lock")
    lock = ends.enter_context(name.open("w"))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    # who had it may have removed it since we opened it, and the next one has a file of its own
    if not name.exists() or not os.path.samestat(os.fstat(lock.fileno()), name.stat()):
        return False
    ends.callback(name.unlink, missing_ok=True)
    return not place.exists()


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
        states = [path for path in ours if path.is_dir() and not path.name.endswith(PARTIAL)]
        old += sorted(states, key=lambda path: every[path])[:-_KEPT]
        for path in old:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _boot() -> str:
    """Return the beginning of this boot's id."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    return "unknown"
