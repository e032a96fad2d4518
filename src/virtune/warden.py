# SPDX-License-Identifier: Apache-2.0
"""The guard, and all removing: what a run started is ended and removed once virtune is gone, even if it was killed.

Run as its own program (`python warden.py RUN DIRECTORY`) it imports the standard library only, lives in its own
session, and waits for the end of its standard input, which the kernel closes when virtune ends, even by SIGKILL. Then
it ends every process with the run's mark in its environment (fio's forked workers leave their session, but keep their
environment), gives drives that were handed to a guest back to their drivers, writes the settings of this host's
kernel back that an arm had changed, takes off the FUSE mounts of its exports and removes the run's directory.

Nothing is removed for its name. A directory of virtune's holds a record that names it: its names, its device, inode
and time of birth. Only one that its record names, that we own and whose maker is gone is removed: by descriptors,
never through a link, never across a mount, and nothing in it that another user owns.
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
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

MARK = "VIRTUNE_RUN"
"""The environment variable that marks every process of a run."""

DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that the guard ignores, since it has to clean up after the others end."""

_PREFIX = "virtune-run-"
_OWNER = "owner"
"""The record in each directory of virtune's; locked by the process that made it for as long as it works in it."""

_OWNER_BYTES = 4096
PARTIAL = ".partial"
"""What the name of a directory or image ends in that is being filled."""

_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8
_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_STATX_BYTES, _STATX_BTIME, _STATX_BTIME_AT = 256, 0x800, 80
"""struct statx of linux/stat.h: its size, the bit of the time of birth, and where that stands (`=qI`)."""

_FUSE = ("fuse", "/dev/fuse")
"""Type and source of the mounts of QEMU's FUSE exports. virtune mounts nothing else, and unmounts nothing else."""

_OCTAL = re.compile(rb"\\([0-7]{3})")
_SHORT = 60
"""A longer TMPDIR would leave no room for a socket's name; `,` would end a QEMU option."""

_PATIENCE_SECONDS = 2.0

_DRIVE = "drive-"
"""What the name of a record begins with: a drive that is with a guest, by its PCI address."""

VFIO = "vfio-pci"
"""The driver that hands a device to a guest."""

_SETTINGS = "settings"
"""The name of the record of the settings of this host's kernel that a run changed."""

SETTABLE = re.compile(
    r"(/sys/block/[^/]+)/queue/(iosched/)?[a-z0-9_]+|/proc/sys/vm/dirty_[a-z_]+"
    r"|/sys/module/kvm/parameters/halt_poll_ns|/sys/kernel/mm/transparent_hugepage/enabled",
    re.ASCII,
)
"""The files that a run may have changed; nothing else is written to, whatever a record says."""

OF_SCHEDULER = ("nr_requests", "wbt_lat_usec", "async_depth")
"""What another scheduler changes of its disk's queue, besides all in iosched/, which is its own."""

_CHOSEN = re.compile(r"\[([^]]+)]")
_BY_DEFAULT = "-1"

_BOUND_SECONDS = 10.0
"""A driver is bound before the kernel answers; what is waited for is the link that says so."""

_BIRTH_SECONDS = 60.0
"""After this time a directory without its final name belongs to a killed run."""

_libc = ctypes.CDLL(None, use_errno=True)
_noted: list[str] = []


def run_directory(run_id: str) -> Path:
    """Return the directory of a run's sockets, logs and mounts. It is short, because unix socket paths have at most
    107 bytes.
    """
    return _temporary() / f"{_PREFIX}{run_id}"


def make_run_directory(directory: Path, *, pid: int) -> int:
    """Make a run's private directory, with its record in it before the directory becomes visible.

    Returns a descriptor to keep open while the run lives. It holds a lock, which the kernel releases with the
    process; process ids would mean nothing in another container that sees the directory.
    """
    unborn = directory.with_name(f".{directory.name}")
    owner = make_directory(unborn, becomes=directory, pid=pid)
    unborn.rename(directory)
    return owner


def make_directory(work: Path, *, becomes: Path, pid: int, mode: int = 0o700) -> int:
    """Make a directory that gets another name when it is whole, with the record that proves that virtune made it.
    Returns a descriptor like `make_run_directory`. Raises OSError.
    """
    work.mkdir(mode=mode)
    with _opened(work) as made:
        owner = os.open(_OWNER, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=made)
        with contextlib.suppress(OSError):  # on a filesystem without locks the process id is used
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        who = {"pid": pid, "started": start_time(pid), "boot": _boot()}
        record = {"made_by": "virtune", "names": [becomes.name, work.name], **who, **identity(made)}
        try:
            os.write(owner, f"{json.dumps(record)}\n".encode())
        except OSError:
            os.close(owner)
            os.unlink(_OWNER, dir_fd=made)
            work.rmdir()
            raise
    return owner


@contextlib.contextmanager
def filled(place: Path) -> Iterator[Path]:
    """Yield a new directory beside a place, for the files of what is to be there. The block renames it when it is
    whole; what it does not rename is removed. Raises OSError.
    """
    work = place.with_name(f"{place.name}.{os.urandom(4).hex()}{PARTIAL}")
    owner = make_directory(work, becomes=place, pid=os.getpid(), mode=0o755)
    try:
        os.fsync(owner)  # it outlives a failure of the host, which must not take the proof
        yield work
    finally:
        remove(work)
        os.close(owner)


def abandoned() -> list[Path]:
    """Return the directories of runs whose virtune is gone (ours only: never another user's)."""
    return [place for place in _run_directories() if is_abandoned(place)]


def look_alikes() -> list[str]:
    """Return what has the name of a run's directory, is ours and was not proven to be virtune's; with the reason."""
    return [f"{place}: {why}" for place in _run_directories() if (why := doubt(place)) is not None]


def _run_directories() -> list[Path]:
    place = _temporary()
    found = (*sorted(place.glob(f"{_PREFIX}*")), *sorted(place.glob(f".{_PREFIX}*")))
    return [path for path in found if _is_mine(path)]


def _is_mine(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.lstat().st_uid == os.geteuid()
    return False


def is_abandoned(place: Path) -> bool:
    """Whether virtune made this directory, and the process that did is gone."""
    with contextlib.suppress(OSError), _opened(place) as directory:
        if _is_bare(directory, place.name):
            return time.time() - os.fstat(directory).st_mtime >= _BIRTH_SECONDS
        return _doubt(directory, place.name) is None and not _owner_lives(directory)
    return False


def doubt(place: Path) -> str | None:
    """Say why it is not proven that virtune made a directory; None where it is, and where nothing is there."""
    try:
        with _opened(place) as directory:
            return None if _is_bare(directory, place.name) else _doubt(directory, place.name)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return "it is no directory"
    except OSError as error:
        return f"it cannot be looked at: {(error.strerror or str(error)).lower()}"


def remove(place: Path) -> bool:
    """Remove a directory with all that is in it, where its record proves that virtune made it; returns whether it is
    gone. What is mounted below it, or owned by another user, stays, and so does the directory.
    """
    with (
        contextlib.suppress(OSError),
        _opened(place.parent, flags=0) as parent,
        _opened(place.name, parent) as directory,
    ):
        bare = _is_bare(directory, place.name)
        if _mount_of(directory) != _mount_of(parent) or not (bare or _doubt(directory, place.name) is None):
            return False
        if _mounts_below(directory) or not _emptied(directory, _mount_of(directory)):
            return False
        record = _record(directory)
        # without its record it must not have a name under which it would have to prove something
        last = place.name if record is None else record["names"][-1]
        if last != place.name:
            os.rename(place.name, last, src_dir_fd=parent, dst_dir_fd=parent)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_OWNER, dir_fd=directory)
        os.rmdir(last, dir_fd=parent)
        return True
    return False


def _emptied(directory: int, mount: str, keep: str = _OWNER) -> bool:
    """Remove what is in an open directory, but for its record; returns whether all could be removed."""
    whole = True
    for name in os.listdir(directory):
        try:
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if name == keep:
                continue
            if found.st_uid != os.geteuid():
                whole = False
            elif stat.S_ISDIR(found.st_mode):
                with _opened(name, directory) as below:
                    gone = _mount_of(below) == mount and _emptied(below, mount, keep="")
                whole = gone and whole
                if gone:
                    os.rmdir(name, dir_fd=directory)
            else:
                os.unlink(name, dir_fd=directory)  # refused by the kernel where something is mounted on it
        except FileNotFoundError:
            continue
        except OSError:
            whole = False
    return whole


def remove_file(path: Path, is_ours: Callable[[int], bool]) -> bool:
    """Remove a regular file that we own, where its open descriptor (O_PATH) shows `is_ours` that virtune made it;
    returns whether it is gone by this.
    """
    with contextlib.suppress(OSError), _opened(path.parent, flags=0) as parent:
        descriptor = os.open(path.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and is_ours(descriptor):
                os.unlink(path.name, dir_fd=parent)
                return True
        finally:
            os.close(descriptor)
    return False


def is_empty(descriptor: int) -> bool:
    """Whether a file has never been written, so that nothing is lost with it."""
    found = os.fstat(descriptor)
    return found.st_size == 0 and found.st_nlink == 1


def identity(descriptor: int) -> dict[str, int | None]:
    """Return what tells a file from every other one: its device, its inode, and, as an inode is used again, the time
    of its birth in ns (None where the filesystem does not keep it).
    """
    found = os.fstat(descriptor)
    return {"device": found.st_dev, "inode": found.st_ino, "born": born_ns(descriptor)}


def is_named(descriptor: int, record: Mapping[str, Any]) -> bool:
    """Whether a record names an open file, by its inode and its time of birth in ns. Only where a record has no such
    time the device must be the same too: it may have another number after each start of the host.
    """
    found = identity(descriptor)
    known = "device" if record.get("born") is None else "born"
    return all(found[key] == record.get(key) for key in ("inode", known))


def record_at(path: Path) -> dict[str, Any]:
    """Return what a record says that names its own file as `self`; empty where it is not the very file that virtune
    wrote for this user: a copy, another user's, one that others may write to, no regular file.
    """
    with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            said = _told(descriptor)
            if isinstance(said, dict) and isinstance(said.get("self"), dict) and is_named(descriptor, said["self"]):
                return said
        finally:
            os.close(descriptor)
    return {}


def strange_records(home: Path, said: Callable[[Path], object]) -> list[str]:
    """Return the files among a directory's records that virtune did not write there, such as copies; in words. `said`
    returns what a record says, nothing of such a file.
    """
    every = sorted(home.glob("virtune-*.json"))
    return [f"{record}: it is no record of virtune's, or a copy" for record in every if not said(record)]


def remove_record(record: Path) -> None:
    """Remove a record, where it is the very file that virtune wrote."""
    remove_file(record, lambda found: is_named(found, record_at(record).get("self", {})))


def write_record(path: Path, said: Mapping[str, Any]) -> int:
    """Write a record that names its own file as `self`; returns it open, and locked until it is closed. It is on the
    disk under its name when this returns. Raises OSError.
    """
    new = path.with_suffix(".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, json.dumps({**said, "self": identity(descriptor)}).encode() + b"\n")
        os.fsync(descriptor)
        new.rename(path)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except BaseException:
        os.close(descriptor)
        new.unlink(missing_ok=True)
        raise
    return descriptor


def _told(descriptor: int) -> Any:
    """Return the JSON of an open record; None where others may have written it. Raises OSError, ValueError."""
    found = os.fstat(descriptor)
    others = stat.S_IWGRP | stat.S_IWOTH  # an ACL that lets others write shows in the group's bits
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & others:
        return None
    return json.loads(os.pread(descriptor, _OWNER_BYTES, 0))


def born_ns(place: Path | int) -> int | None:
    """Return when a file was made; None where the C library or the filesystem does not tell."""
    buffer = statx(place, 0, _STATX_BTIME)
    if buffer is None or not struct.unpack_from("=I", buffer)[0] & _STATX_BTIME:
        return None
    seconds, nanoseconds = struct.unpack_from("=qI", buffer, _STATX_BTIME_AT)
    return int(seconds) * 10**9 + int(nanoseconds)


def statx(place: Path | int, flags: int, mask: int) -> bytes | None:
    """Return the struct statx of a path or an open descriptor, for what Python's `os.stat` cannot ask."""
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    start, name = (place, b"") if isinstance(place, int) else (_AT_FDCWD, os.fsencode(place))
    try:
        failed = _libc.statx(start, name, flags | (0 if name else _AT_EMPTY_PATH), mask, buffer)
    except AttributeError:  # a C library without it
        return None
    return None if failed else buffer.raw


def note_removed(words: Iterable[str]) -> None:
    """Keep in words what was removed that another run left: whoever called virtune is told, whatever the verb."""
    _noted.extend(words)


def noted_removals() -> list[str]:
    """Return what was removed since the last call."""
    found = list(_noted)
    del _noted[: len(found)]
    return found


@contextlib.contextmanager
def _opened(place: Path | str, above: int | None = None, *, flags: int = os.O_NOFOLLOW) -> Iterator[int]:
    """Open a directory, not through a link unless the flags permit it. Raises OSError."""
    flags |= os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(place, flags, dir_fd=above)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _mount_of(descriptor: int) -> str:
    """Return the id of the mount that an open file is on: a bind mount has the device of what it shows. Raises
    OSError.
    """
    lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
    return next(line for line in lines if line.startswith("mnt_id:"))


def _doubt(directory: int, name: str) -> str | None:
    if os.fstat(directory).st_uid != os.geteuid():
        return "another user owns it"
    record = _record(directory)
    if record is None:
        return "no record of virtune's is in it"
    if name not in record["names"]:
        return "its record is of another name"
    return None if is_named(directory, record) else "its record is of another directory, of which it is a copy"


def _is_bare(directory: int, name: str) -> bool:
    """Whether a directory without its final name holds nothing: its maker was killed before it wrote the record."""
    if os.fstat(directory).st_uid != os.geteuid() or not (name.startswith(".") or name.endswith(PARTIAL)):
        return False
    names = os.listdir(directory)
    return not names or (names == [_OWNER] and _is_unwritten(directory))


def _is_unwritten(directory: int) -> bool:
    found = os.stat(_OWNER, dir_fd=directory, follow_symlinks=False)
    return stat.S_ISREG(found.st_mode) and found.st_size == 0


def _record(directory: int) -> dict[str, Any] | None:
    """Return the record in an open directory; None where there is none that virtune wrote for this user."""
    with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
        with _owner_of(directory) as owner:
            said = _told(owner)
        names = said.get("names") if isinstance(said, dict) and said.get("made_by") == "virtune" else None
        whole = isinstance(names, list) and len(names) > 0 and all(isinstance(one, str) for one in names)
        if whole and all(type(said.get(key)) is int for key in ("pid", "started", "device", "inode")):
            return dict(said)
    return None


@contextlib.contextmanager
def _owner_of(directory: int) -> Iterator[int]:
    owner = os.open(_OWNER, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        yield owner
    finally:
        os.close(owner)


def start_time(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; 0 when there is no such process."""
    try:
        # comm may hold spaces and parentheses, so fields are counted from the last one
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def sweep(run_id: str, directory: Path) -> list[str]:
    """End the processes of a run and remove what it left; returns what was removed, in words. Of a directory that is
    not proven to be the run's nothing is touched.
    """
    removed = [f"process {pid} ({name})" for pid, name in _end_marked(run_id, directory)]
    if doubt(directory) is not None:
        return removed
    drives = [address for address in noted_drives(directory) if give_back(directory, address)]
    removed += [f"the hold on the drive {address}, which its driver has again" for address in drives]
    removed += [f"the change of {path}" for path in put_back(directory)]
    removed += [f"mount {mount}" for mount in reversed(mounts_below(directory)) if unmount(mount)]
    # What is not back needs its record; a mount that stays may hold data: nothing below it may be deleted.
    if not noted_drives(directory) and not noted_settings(directory) and remove(directory):
        removed.append(f"directory {directory}")
    return removed


def sweep_abandoned() -> None:
    """Remove what every killed run left; whoever called virtune is told."""
    for directory in abandoned():
        note_removed(sweep(run_id_of(directory), directory))


def note_drive(directory: Path, address: str, *, driver: str, group: str) -> None:
    """Record, before anything is changed, that a drive is about to be taken from its driver; on the disk when this
    returns. `group` is its IOMMU group.
    """
    _note(directory / f"{_DRIVE}{address}", {"driver": driver, "group": group})


def _note(place: Path, said: Mapping[str, Any]) -> None:
    with place.with_name(f".{place.name}").open("w") as file:
        file.write(json.dumps({**said, "boot": _boot()}))
        file.flush()
        os.fsync(file.fileno())
    place.with_name(f".{place.name}").rename(place)


def note_settings(directory: Path, files: Mapping[str, tuple[str, str | None]]) -> None:
    """Record what files of this host's kernel hold before a run changes them, and what it left in them, None until
    that is known; in the order in which they are written back. On the disk when this returns. Raises OSError.
    """
    disks = {disk: setting_at(f"{disk}/diskseq") for disk in map(_disk_of, files)}
    _note(directory / _SETTINGS, {"files": files, "disks": disks})


def noted_settings(directory: Path) -> dict[str, tuple[str, str | None]]:
    """Return what a run noted and has not put back, without what is gone with its disk, or with a restart."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        noted = json.loads((directory / _SETTINGS).read_text())
        # another disk may have its name by now
        there = {disk for disk, number in noted["disks"].items() if setting_at(f"{disk}/diskseq") == number}
        if noted["boot"] == _boot():
            return {
                path: (before, ours)
                for path, (before, ours) in noted["files"].items()
                if SETTABLE.fullmatch(path) and _disk_of(path) in there
            }
    return {}


def _disk_of(path: str) -> str:
    found = SETTABLE.fullmatch(path)
    return (found and found[1]) or ""


def put_back(directory: Path) -> list[str]:
    """Write the settings of this host's kernel back that a run changed; returns the files that were written. What
    somebody else has written since is left alone. The record stays only where the kernel does not take a value back.
    """
    written = []
    with _alone_at(directory) as alone:
        changed = _still_ours(noted_settings(directory)) if alone else {}
        if any(setting_at(path) != before for path, before in changed.items()):
            # from here on one of them changes another, which is nobody else's doing
            with contextlib.suppress(OSError):
                note_settings(directory, {path: (before, None) for path, before in changed.items()})
        for path, before in changed.items():
            # to throttle by default is not the same as to be asked for the value that is the default
            for value in (_BY_DEFAULT, before) if path.endswith("/wbt_lat_usec") else (before,):
                if setting_at(path) not in (None, before):
                    written.append(path)
                    with contextlib.suppress(OSError):
                        Path(path).write_text(value)
        # judged when all are written: a limit in bytes is cleared by the ratio that comes back
        refused = {path: (before, now) for path, before in changed.items() if (now := setting_at(path)) != before}
        if any(now is not None for _, now in refused.values()):
            with contextlib.suppress(OSError):
                note_settings(directory, refused)
        elif alone:
            (directory / _SETTINGS).unlink(missing_ok=True)
    return [path for path in dict.fromkeys(written) if setting_at(path) == changed[path]]


def _still_ours(noted: Mapping[str, tuple[str, str | None]]) -> dict[str, str]:
    """Return what is to be written back, with the value: all that nobody else has set since, also what is as it was,
    since what comes back before it may change it. What somebody else has set keeps their value after that.
    """
    now = {path: setting_at(path) for path in noted}
    theirs = {path for path, (_, left) in noted.items() if left not in (None, now[path])}
    found = {path: before for path, (before, _) in noted.items() if not theirs & {path, *led_by(path)}}
    for path in theirs:
        if f"{_disk_of(path)}/queue/scheduler" in found and led_by(path) and now[path] is not None:
            found[path] = str(now[path])
    return found


def led_by(path: str) -> set[str]:
    """Return the files with which the kernel changes this one by itself."""
    place, queue = Path(path), f"{_disk_of(path)}/queue"
    for one, other in (("_ratio", "_bytes"), ("_bytes", "_ratio")):
        if place.name.endswith(one):
            return {str(place.with_name(place.name.removesuffix(one) + other))}
    if place.name == "nr_requests":
        return {f"{queue}/scheduler"}
    beside = place.parent.name == "iosched" or place.name in OF_SCHEDULER
    return {f"{queue}/scheduler", f"{queue}/nr_requests"} if beside else set()


@contextlib.contextmanager
def _alone_at(directory: Path) -> Iterator[bool]:
    """Wait a moment for who puts the same back, the guard of a killed run or the next run; whether nobody does."""
    with contextlib.ExitStack() as ends:
        held = None
        with contextlib.suppress(OSError):
            held = ends.enter_context(_opened(directory))
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while held is not None:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if not isinstance(error, BlockingIOError):
                    break  # a filesystem without locks
            if time.monotonic() > deadline:
                held = None
            time.sleep(0.02)
        yield held is not None


def setting_at(path: str) -> str | None:
    """Return what a file of the kernel's settings holds: of a choice, the word in brackets; None where it tells
    nothing.
    """
    with contextlib.suppress(OSError, UnicodeError):
        return at_work(Path(path).read_text().strip())
    return None


def at_work(shown: str) -> str:
    """Return the value at work of those that a kernel shows, `none [bfq]`; the whole where there is but one."""
    chosen = _CHOSEN.search(shown)
    return chosen[1] if chosen else shown


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
    place = os.path.realpath(tempfile.gettempdir())
    return Path("/tmp" if len(place) > _SHORT or not place.isprintable() or "," in place else place)  # noqa: S108


def _owner_lives(directory: int) -> bool:
    record = _record(directory)
    with _owner_of(directory) as owner:
        try:
            fcntl.flock(owner, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            pass  # a filesystem without locks
    if record is None or record.get("boot") != _boot():
        return False
    return bool(start_time(record["pid"]) == record["started"] != 0)


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
    """Return the FUSE exports that are mounted below a directory, in the order of mounting."""
    with contextlib.suppress(OSError), _opened(directory) as opened:
        return [point for point, kind in _mounts_below(opened) if kind == _FUSE]
    return []


def _mounts_below(directory: int) -> list[tuple[str, tuple[str, str]]]:
    """Return every mount below an open directory, with its type and its source. Raises OSError."""
    above = Path(f"/proc/self/fd/{directory}").readlink()  # without links, as the kernel names mounts
    found = []
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        mount, _, source = line.partition(b" - ")
        # the kernel writes blanks and the like as \ooo, byte by byte
        point = os.fsdecode(_OCTAL.sub(lambda m: bytes([int(m[1], 8)]), mount.split()[4]))
        if point.startswith(f"{above}/"):
            kind, device = os.fsdecode(source).split(" ")[:2]
            found.append((point, (kind, device)))
    return found


def unmount(point: str) -> bool:
    """Unmount lazily, in any state of the mount; returns whether that worked."""
    if _libc.umount2(os.fsencode(point), _MNT_DETACH | _UMOUNT_NOFOLLOW) == 0:
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
