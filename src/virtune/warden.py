# SPDX-License-Identifier: Apache-2.0
"""The guard: removes all that a run started once virtune is gone, however it went.

Run as its own program (`python warden.py RUN DIRECTORY`) it imports the standard library only, lives in its own
session, and waits for the end of its standard input, which the kernel closes when virtune ends, be it by SIGKILL.
Then it ends every process that carries the run's mark in its environment (fio's forked workers leave their
session, but keep their environment), unmounts what is mounted below the run's directory and removes that.
"""

import contextlib
import ctypes
import fcntl
import os
import re
import shutil
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

MARK = "VIRTUNE_RUN"
"""The environment variable that marks every process of a run."""

DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What may be sent to all that runs: the guard is there for what comes after."""

_PREFIX = "virtune-run-"
_OWNER = "owner"
_MNT_DETACH = 2
_OCTAL = re.compile(rb"\\([0-7]{3})")
_SHORT = 60
"""A longer TMPDIR would leave no room for a socket's name; `,` would end an option of QEMU's."""

_PATIENCE_SECONDS = 2.0

_BIRTH_SECONDS = 60.0
"""A run's directory has its final name long before; one that does not belongs to a run that was killed meanwhile."""


def run_directory(run_id: str) -> Path:
    """Return where a run keeps sockets, logs and mounts. Short, because unix socket paths end at 107 bytes."""
    return _temporary() / f"{_PREFIX}{run_id}"


def make_run_directory(directory: Path, *, pid: int) -> int:
    """Make a run's private directory, which has its owner's name in it from the first instant that others see it.

    Returns a descriptor to keep open for as long as the run lives. It holds a lock, which the kernel lets go of with
    the process: who sees the directory from another container knows no process by its number.
    """
    unborn = directory.with_name(f".{directory.name}")
    unborn.mkdir(mode=0o700)
    owner = os.open(unborn / _OWNER, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with contextlib.suppress(OSError):  # where a filesystem has no locks, the number has to do
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.write(owner, f"{pid} {start_time(pid)}\n".encode())
    unborn.rename(directory)
    return owner


def abandoned() -> list[Path]:
    """Return the directories of runs whose virtune is gone (ours only: never another user's)."""
    found = []
    unborn = _temporary().glob(f".{_PREFIX}*")
    for directory in (*_temporary().glob(f"{_PREFIX}*"), *unborn):
        with contextlib.suppress(OSError):
            status = directory.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                continue
            if directory.name.startswith(".") and time.time() - status.st_mtime < _BIRTH_SECONDS:
                continue
            if not _owner_lives(directory):
                found.append(directory)
    return found


def start_time(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; 0 when there is no such process."""
    try:
        # comm may hold spaces and parentheses, so fields are counted from the last one
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def sweep(run_id: str, directory: Path) -> list[str]:
    """Remove all that a run left; returns what was removed, in words."""
    removed = [f"process {pid} ({name})" for pid, name in _end_marked(run_id, directory)]
    removed += [f"mount {mount}" for mount in reversed(mounts_below(directory)) if unmount(mount)]
    # What could not be unmounted is somebody's data: nothing below it may be deleted.
    if directory.exists() and not mounts_below(directory):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            removed.append(f"directory {directory}")
    return removed


def run_id_of(directory: Path) -> str:
    """Return the run id in the name of a run's directory."""
    return directory.name.removeprefix(".").removeprefix(_PREFIX)


def _temporary() -> Path:
    place = tempfile.gettempdir()
    return Path("/tmp" if len(place) > _SHORT or not place.isprintable() or "," in place else place)  # noqa: S108


def _owner_lives(directory: Path) -> bool:
    try:
        owner = os.open(directory / _OWNER, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    with os.fdopen(owner, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            pass  # a filesystem without locks
        try:
            pid, started = (int(word) for word in file.read(100).split())
        except (OSError, ValueError):
            return False
    return start_time(pid) == started != 0


def _marked(run_id: str, directory: Path) -> Iterator[tuple[int, str]]:
    mark = f"{MARK}={run_id}".encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            environ = Path(f"/proc/{entry}/environ").read_bytes()
            if mark in environ.split(b"\0") or _is_being_started(entry, directory, environ):
                yield int(entry), Path(f"/proc/{entry}/comm").read_text().strip()


def _is_being_started(pid: str, directory: Path, environ: bytes) -> bool:
    """Whether a process is one of the run's between its fork and its exec: it has no mark yet.

    It is in the run's directory already when it lets go of the pipe that the guard waits for. Until its exec it is
    still the Python that forked it, and in the midst of that it has no environment. Anything else in there is a
    person's.
    """
    if Path(f"/proc/{pid}/cwd").readlink() != directory.resolve():
        return False
    return not environ or Path(f"/proc/{pid}/exe").samefile("/proc/self/exe")


def _end_marked(run_id: str, directory: Path) -> list[tuple[int, str]]:
    ended = dict(_marked(run_id, directory))
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _PATIENCE_SECONDS
        for pid, name in _marked(run_id, directory):
            ended[pid] = name
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        while time.monotonic() < deadline and any(_marked(run_id, directory)):
            time.sleep(0.02)
    return sorted(ended.items())


def mounts_below(directory: Path) -> list[str]:
    """Return what is mounted below a directory, in the order it was mounted."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
        # the kernel writes blanks and the like as \ooo, byte by byte
        points = [os.fsdecode(_OCTAL.sub(lambda m: bytes([int(m[1], 8)]), line.split()[4])) for line in lines]
        return [point for point in points if point.startswith(f"{directory}/")]
    return []


def unmount(point: str) -> bool:
    """Unmount lazily, whatever state the mount is in; returns whether that worked."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(os.fsencode(point), _MNT_DETACH) == 0:
        return True
    # without root only FUSE's own helper may unmount
    for helper in ("fusermount3", "fusermount"):
        path = shutil.which(helper)
        if path and os.spawnv(os.P_WAIT, path, [helper, "-u", "-z", point]) == 0:
            return True
    return False


def _main() -> None:
    run_id, directory = sys.argv[1:]
    for number in DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    sweep(run_id, Path(directory))


if __name__ == "__main__":
    _main()
