# SPDX-License-Identifier: Apache-2.0
"""The guard: ends and removes everything that a run started once virtune is gone, even if it was killed.

Run as its own program (`python warden.py RUN DIRECTORY`) it imports the standard library only, lives in its own
session, and waits for the end of its standard input, which the kernel closes when virtune ends, even by SIGKILL. Then
it ends every process with the run's mark in its environment (fio's forked workers leave their session, but keep their
environment), gives drives that were handed to a guest back to their drivers, unmounts everything below the run's
directory and removes that.
"""

import contextlib
import ctypes
import fcntl
import json
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
"""The signals that the guard ignores, since it has to clean up after the others end."""

_PREFIX = "virtune-run-"
_OWNER = "owner"
_MNT_DETACH = 2
_OCTAL = re.compile(rb"\\([0-7]{3})")
_SHORT = 60
"""A longer TMPDIR would leave no room for a socket's name; `,` would end a QEMU option."""

_PATIENCE_SECONDS = 2.0

_DRIVE = "drive-"
"""What the name of a record begins with: a drive that is with a guest, by its PCI address."""

VFIO = "vfio-pci"
"""The driver that hands a device to a guest."""

_BOUND_SECONDS = 10.0
"""A driver is bound before the kernel answers; what is waited for is the link that says so."""

_BIRTH_SECONDS = 60.0
"""After this time a directory without its final name belongs to a killed run."""


def run_directory(run_id: str) -> Path:
    """Return the directory of a run's sockets, logs and mounts. It is short, because unix socket paths have at most
    107 bytes.
    """
    return _temporary() / f"{_PREFIX}{run_id}"


def make_run_directory(directory: Path, *, pid: int) -> int:
    """Make a run's private directory, with its owner recorded before the directory becomes visible.

    Returns a descriptor to keep open while the run lives. It holds a lock, which the kernel releases with the
    process; process ids would mean nothing in another container that sees the directory.
    """
    unborn = directory.with_name(f".{directory.name}")
    unborn.mkdir(mode=0o700)
    owner = os.open(unborn / _OWNER, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with contextlib.suppress(OSError):  # on a filesystem without locks the process id is used
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
    """Remove everything that a run left; returns what was removed, in words."""
    removed = [f"process {pid} ({name})" for pid, name in _end_marked(run_id, directory)]
    drives = [address for address in noted_drives(directory) if give_back(directory, address)]
    removed += [f"the hold on the drive {address}, which its driver has again" for address in drives]
    removed += [f"mount {mount}" for mount in reversed(mounts_below(directory)) if unmount(mount)]
    # A mount that could not be unmounted may hold data: nothing below it may be deleted.
    if directory.exists() and not mounts_below(directory) and not noted_drives(directory):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            removed.append(f"directory {directory}")
    return removed


def note_drive(directory: Path, address: str, *, driver: str, group: str) -> None:
    """Record, before anything is changed, that a drive is about to be taken from its driver; on the disk when this
    returns. `group` is its IOMMU group.
    """
    place = directory / f"{_DRIVE}{address}"
    with place.with_name(f".{place.name}").open("w") as file:
        file.write(json.dumps({"driver": driver, "group": group, "boot": _boot()}))
        file.flush()
        os.fsync(file.fileno())
    place.with_name(f".{place.name}").rename(place)


def noted_drives(directory: Path) -> list[str]:
    """Return the PCI addresses of the drives that a run took from their drivers and has not given back."""
    return sorted(place.name.removeprefix(_DRIVE) for place in directory.glob(f"{_DRIVE}*"))


def give_back(directory: Path, address: str, root: Path = Path("/")) -> bool:
    """Give a drive back to the driver that it was taken from; returns whether that driver has it again.

    A drive that a process still holds is left alone: the kernel would wait for that process to end. No record is kept
    of a drive that is back, or that is no longer where virtune left it: after a restart of the host another device
    may have its address, and one that has a third driver was given that by somebody else since.
    """
    place, device = directory / f"{_DRIVE}{address}", root / "sys/bus/pci/devices" / address
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        noted = json.loads(place.read_text())
        ours = device.exists() and noted["boot"] == _boot() and driver_of(device) in (noted["driver"], VFIO, "")
        if ours:
            if driver_of(device) == VFIO and not _let_go(root / "dev/vfio" / noted["group"]):
                return False
            if driver_of(device) != noted["driver"]:
                bind(device, noted["driver"], override="\n")
            elif (device / "driver_override").read_text().strip() == VFIO:
                (device / "driver_override").write_text("\n")
            if driver_of(device) != noted["driver"]:
                return False
        place.unlink()
        return ours
    return False


def bind(device: Path, driver: str, *, override: str) -> None:
    """Take a device of PCI from its driver and give it to another one. `override` is the driver that the device is
    reserved for from now on, a newline for none. Raises OSError with what the kernel says.
    """
    bus = device.parents[1]
    (device / "driver_override").write_text(override)
    with contextlib.suppress(FileNotFoundError):  # it has no driver
        (device / "driver" / "unbind").write_text(device.name)
    (bus / "drivers_probe").write_text(device.name)
    deadline = time.monotonic() + _BOUND_SECONDS
    while driver_of(device) != driver and time.monotonic() < deadline:
        time.sleep(0.02)


def driver_of(device: Path) -> str:
    """Return the name of a device's driver, empty without one."""
    with contextlib.suppress(OSError):
        return (device / "driver").readlink().name
    return ""


def _boot() -> str:
    """Return the kernel's name of this start of the host."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _let_go(node: Path) -> bool:
    """Wait a moment for the processes that have a device node open to end; returns whether none has."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while any(holders_of(node)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def holders_of(node: Path) -> Iterator[int]:
    """Yield the processes that have a device node open, by its name in /dev."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if any(Path(f"/proc/{entry}/fd/{fd}").readlink() == node for fd in os.listdir(f"/proc/{entry}/fd")):
                    yield int(entry)


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


def marked(run_id: str, directory: Path) -> Iterator[tuple[int, str]]:
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

    Its working directory is the run's before it closes the pipe that the guard waits for. Until its exec it runs the
    Python that forked it, and during the exec it has no environment. Any other process in there is a user's.
    """
    if Path(f"/proc/{pid}/cwd").readlink() != directory.resolve():
        return False
    return not environ or Path(f"/proc/{pid}/exe").samefile("/proc/self/exe")


def _end_marked(run_id: str, directory: Path) -> list[tuple[int, str]]:
    ended = dict(marked(run_id, directory))
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _PATIENCE_SECONDS
        for pid, name in marked(run_id, directory):
            ended[pid] = name
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        while time.monotonic() < deadline and any(marked(run_id, directory)):
            time.sleep(0.02)
    return sorted(ended.items())


def mounts_below(directory: Path) -> list[str]:
    """Return the mounts below a directory, in the order of mounting."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
        # the kernel writes blanks and the like as \ooo, byte by byte
        points = [os.fsdecode(_OCTAL.sub(lambda m: bytes([int(m[1], 8)]), line.split()[4])) for line in lines]
        return [point for point in points if point.startswith(f"{directory}/")]
    return []


def unmount(point: str) -> bool:
    """Unmount lazily, in any state of the mount; returns whether that worked."""
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
