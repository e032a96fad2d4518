# SPDX-License-Identifier: Apache-2.0
"""Scratch images: created, filled and removed by virtune, fully written, reused while valid, looked into outside of
the stack that wrote them.

QEMU and filesystems serve reads of never-written blocks without accessing the disk, so an image is filled once with
incompressible data. A small JSON file beside each image, its witness, records its maker, size and inode, and its own
inode. It is written before the image is filled, and only what it names is reused, written to, or removed.

Their directory is one in which only we and root can replace files. QEMU and fio open images by name, so owning the
directory is not enough: a user who may rename a directory above it decides where its name leads. With that checked up
to the root, an image needs no descriptor as a target does: whoever could exchange it may write to all that we may.
"""

import contextlib
import errno
import fcntl
import functools
import json
import os
import re
import shutil
import signal
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from virtune import shell
from virtune.bench.layouts import contents, copy_pieces, luks_words, piece_bytes, write_key
from virtune.bench.port import DiskImageSpec
from virtune.bounded import opened, read_bounded
from virtune.dialects.qemu.images import (
    chain_of,
    create_commands,
    data_file_of,
    escaped,
    files_of,
    image_node,
    key_of,
    qcow2_options,
    secret_words,
)
from virtune.fio.job import Region
from virtune.model.errors import PreconditionError, RigError, words_of
from virtune.model.event import Say, step
from virtune.model.facts import Unknown
from virtune.model.stack import Disk, Filesystem, Stack
from virtune.model.text import format_bytes, setting_text
from virtune.probe.access import user_name, why_exchangeable
from virtune.probe.images import has_clusters, read_qcow2, unwritten_bytes
from virtune.warden import PARTIAL, identity, is_empty, is_named, note_removed, remove_file

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def scratch_place(directory: Path) -> Path:
    """Return, and create if needed, a directory that only we may write to: `directory` itself, or one in it.

    The returned path has no symbolic links. Raises PreconditionError where another user could replace files there,
    OSError where it cannot be created.
    """
    # others may traverse it, but neither list nor write: QEMU, which may run as another user, opens files here
    directory.mkdir(mode=0o711, parents=True, exist_ok=True)
    place = directory.resolve(strict=True)
    if not place.lstat().st_mode & _OTHERS_WRITE:
        require_safe(place)
        return place
    inner = _inner(place)
    with contextlib.suppress(FileExistsError):
        inner.mkdir(mode=0o711)
    require_safe(inner)
    return inner


def made_place(directory: Path) -> Path | None:
    """Return the directory that `scratch_place` would return if it exists; None if not, without creating it.

    Raises PreconditionError like `scratch_place`.
    """
    with contextlib.suppress(OSError):
        place = directory.resolve(strict=True)
        if place.lstat().st_mode & _OTHERS_WRITE:
            place = _inner(place)
        if place.is_dir():
            require_safe(place)
            return place
    return None


def require_safe(place: Path) -> None:
    """Raise PreconditionError unless a directory is ours, and only we and root can replace it."""
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise _refusal(place, f"{place} is no directory")
    if found.st_uid != os.geteuid():
        raise _refusal(place, f"it belongs to {user_name(found.st_uid)}, who could exchange what lies in it")
    if (why := why_exchangeable(place)) is not None:
        raise _refusal(place, why)


def _inner(place: Path) -> Path:
    return place / f"virtune-scratch-{os.geteuid()}"


def _refusal(place: Path, reason: str) -> PreconditionError:
    hint = "`--scratch DIR` names a directory of yours, below directories of yours or root's"
    return PreconditionError(f"cannot use {place} for scratch files: {reason}", hint=hint)


FILESYSTEM_PROGRAMS: Mapping[Filesystem, tuple[str, ...]] = {
    "none": (),
    "ext4": ("mke2fs", "debugfs"),
    "xfs": ("mkfs.xfs",),
}
"""The programs that make each."""

FILE = "load"
"""The name of the file in the filesystem's root directory."""

_MIB = 1024**2

_JOURNAL_MIB = 16
_FILESYSTEM_BYTES = 32 * _MIB
"""For the journal, the superblocks and their copies; group tables and bitmaps take less than a 64th of the rest."""

_LOG_MIB = 64
"""The log of an XFS: mkfs.xfs takes no smaller one."""

_SECOND_GROUP_BYTES = 32 * _MIB
"""XFS wants two allocation groups, for two superblocks. All that is used is in the first, in which the file is one
extent; mkfs.xfs writes it no other way."""

_LEAST_XFS_BYTES = 304 * _MIB
"""mkfs.xfs takes no filesystem below 300 MiB."""

_PATIENCE_SECONDS = 60.0
_SLOWEST_BPS = 20e6
"""A disk that writes less a second than this ends a program's patience."""

_LARGE_BYTES = 2**31
_PROTO = "xfs.proto"
_SYSTEM_PROGRAMS = "/usr/sbin:/sbin"


def image_bytes(disk: Disk, span: int) -> int:
    """Return the size of an image on which `span` bytes are loaded: with a filesystem that needs room for itself."""
    if disk.filesystem == "none":
        return span
    least = span + span // 64 + _FILESYSTEM_BYTES
    if disk.filesystem == "xfs":
        least = max(least + _LOG_MIB * _MIB + _SECOND_GROUP_BYTES, _LEAST_XFS_BYTES)
    return -(-least // _MIB) * _MIB


def _require_free(directory: Path, free: int, size: int, what: str = "image needs") -> None:
    if free < size + _SPARE_BYTES:
        needed = f"the scratch {what} {format_bytes(size)}, and {format_bytes(_SPARE_BYTES)} stay free"
        raise PreconditionError(f"{directory} has {format_bytes(free)} free: {needed}", hint=_ELSEWHERE)


def find_maker(program: str) -> str:
    """Return the path of a program: a user's PATH may lack the directories of the system's own, of which these need
    no root. Raises MissingToolError.
    """
    return shutil.which(program, path=_SYSTEM_PROGRAMS) or shell.find(program)


def patience_of(span: int) -> float:
    """Return the seconds that a program may take to make one image of another with so many bytes in it."""
    return _PATIENCE_SECONDS + span / _SLOWEST_BPS


def make_filesystem(kind: Filesystem, image: Path, source: int, warden: shell.Warden, span: int) -> None:
    """Make a filesystem in a file of its size, and in it the file with what the descriptor `source` reads (`span`
    bytes).

    Raises RigError when a program fails. debugfs ends well whatever it did: the caller looks at what was written.
    """
    for program, *words in _xfs(image, source, warden) if kind == "xfs" else _ext4(image, source):
        patience_seconds = patience_of(span)
        with warden.running([find_maker(program), *words], name=program, keep=(source,)) as child:
            status = child.wait(patience_seconds)
        if status is None:
            raise RigError(f"{program} did not end within {patience_seconds:.0f} s")
        _require_no_lack(image.parent, child.log)  # debugfs ends well whatever it did
        if status:
            too_large = "mkfs.xfs before xfsprogs 6.13 takes no file of 2 GiB or more: `--span 1G` is smaller"
            hint = too_large if kind == "xfs" and span >= _LARGE_BYTES else child.last_words()
            raise RigError(f"{program} ended with status {status}", hint=hint)


def _ext4(image: Path, source: int) -> Sequence[Sequence[str]]:
    make = ["mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-N", "64", "-J", f"size={_JOURNAL_MIB}"]
    make += ["-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0", str(image)]
    return make, ["debugfs", "-w", "-R", f"write /proc/self/fd/{source} {FILE}", str(image)]


def _xfs(image: Path, source: int, warden: shell.Warden) -> Sequence[Sequence[str]]:
    """Sectors of 4 KiB, so that a disk of any logical block size can carry it."""
    proto = warden.directory / _PROTO
    proto.write_text(f"none\n0 0\nd--755 0 0\n{FILE} ---644 0 0 /proc/self/fd/{source}\n$\n")
    group = image.stat().st_size - _SECOND_GROUP_BYTES
    make = ["mkfs.xfs", "-q", "-f", "-K", "-b", "size=4096", "-s", "size=4096", "-d", f"agsize={group}"]
    return ([*make, "-l", f"size={_LOG_MIB}m,agnum=0", "-p", str(proto), str(image)],)


_WITNESS = ".virtune.json"
_LOCK = "virtune.lock"
_LOCK_SECONDS = 3.0
_FORMAT = 2
_PASSING = "-passing"
"""Marks the name of an image that is removed after its run."""

_OURS = re.compile(r"virtune-\d+(-[a-z0-9-]+)?\.(raw|qcow2|key)(\.partial)?(\.virtune\.json)?")
"""The names of virtune's files in a scratch directory; no other file is ever read or removed."""
_SPARE_BYTES = 64 * 1024**2
"""Left free beside an image, so that filling a scratch directory never takes the last block of a filesystem."""

_ELSEWHERE = "`--span SIZE` makes the image smaller, `--scratch DIR` puts it elsewhere"

_WITNESS_BYTES, _OUTPUT_BYTES = 4096, 64 * 1024
"""The most that is read of a witness, which has some hundred bytes, and of what fio printed while it filled."""


_TRIED_BYTES = 64 * 1024
_LACKING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})


def measured_in(directory: Path) -> bool:
    """Whether a virtune has the lock of this scratch directory."""
    for place in (directory, _inner(directory)):
        with contextlib.suppress(FileNotFoundError, PermissionError), opened(place / _LOCK, os.O_NOFOLLOW) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False


_Make = Callable[[Path, int], None]
"""Makes a file by its path and its open descriptor."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A file of an image: of which size its disk is, and how many bytes of that it holds at least."""

    name: str
    make: _Make
    size: int
    holds: int
    mode: int = 0o644


class Scratch:
    """The scratch images of one run, in one directory, locked against a second virtune. Use as a context manager."""

    def __init__(self, directory: Path, *, span_bytes: int, say: Say, passing: bool = False) -> None:
        """`passing`: the images are made for this run only, and removed after it."""
        self.directory = directory
        self._passing = _PASSING if passing else ""
        self.span_bytes = span_bytes
        self._say = say
        self._place = -1
        self._ends = contextlib.ExitStack()
        self.made: set[Path] = set()  # by this run

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as ends:
            try:
                self.directory = scratch_place(self.directory)
                self._place = ends.enter_context(opened(self.directory, os.O_DIRECTORY | os.O_NOFOLLOW))
                locked = self._lock(ends)
            except OSError as error:
                hint = "`--scratch DIR` names a directory you may write to"
                raise PreconditionError(
                    f"cannot use {self.directory} for scratch files: {error.strerror}", hint=hint
                ) from None
            if not locked:
                hint = "wait for it, or use another directory with `--scratch DIR`"
                raise PreconditionError(f"another virtune is measuring in {self.directory}", hint=hint)
            for left in list(scratch_files(self.directory)):
                if is_left_over(left):
                    words = f"{left} ({format_bytes(left.lstat().st_size)})"
                    note_removed([words] if remove(left) else [])
            self._ends = ends.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._ends, contextlib.suppress(FileNotFoundError):  # somebody removed the directory
            for image in list(scratch_files(self.directory)):
                if _PASSING in image.name:
                    remove(image)

    def _lock(self, ends: contextlib.ExitStack) -> bool:
        """Lock the directory; returns False if another process has the lock. Raises OSError."""
        while True:
            lock = ends.enter_context(opened(_LOCK, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, within=self._place))
            if not _locked(lock):
                return False
            if os.fstat(lock).st_nlink:  # its last owner may have removed it
                return True

    def lack(self) -> str | None:
        """Say why nothing can be written there any more: full, a used-up quota, read-only, an error of the disk. None
        while it can be, and where that cannot be tried.
        """
        try:
            # a file without a name, which is gone when it is closed
            with open(os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600, dir_fd=self._place), "wb") as file:  # noqa: PTH123
                file.write(bytes(_TRIED_BYTES))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            return error.strerror if error.errno in _LACKING else None
        return None

    def remove_lock(self) -> None:
        """Remove the lock file from the directory; a process that waits for the lock makes a new one."""
        remove_file(self.directory / _LOCK, is_empty)  # virtune never writes into it

    def image_for(self, disk: Disk, warden: shell.Warden, number: int = 0) -> Path:
        """Return a filled image in the disk's format, making it when there is no valid one. Several disks have images
        with different numbers. One with a filesystem has a file with what the plain image holds.
        """
        plain, stem = (_stem(self.span_bytes, number, one) + self._passing for one in (Disk(), disk))
        size = self.span_bytes
        raw = self._whole([_Part(f"{plain}.raw", lambda _, file: self._fill(file, warden), size, size)])
        if disk.filesystem != "none":
            size = image_bytes(disk, self.span_bytes)
            make = functools.partial(self._format, disk, raw, warden)
            raw = self._whole([_Part(f"{stem}.raw", make, size, size)])
        if disk.format == "raw":
            return raw
        image = self.directory / _qcow2_name(stem, disk)
        grows = size if disk.backing_depth else 0  # all of it, where all is written
        self._whole(self._parts_of(disk, image, raw, size, warden), grows=grows)
        if grows and has_clusters(image):  # what an arm wrote: each trial begins as after a snapshot
            self._qemu_img("emptying the scratch image", create_commands(disk, image, size)[-1], warden)
        if grows:
            self._require_room(grows)
        return image

    def overlay_for(self, disk: Disk, number: int) -> Path:
        """Return a file, made if needed, for what is above the disk's image for a while and may grow to its size. It
        is removed after the run.
        """
        name = f"{_stem(self.span_bytes, number, Disk())}{_PASSING}.qcow2"
        size = image_bytes(disk, self.span_bytes)
        return self._whole([_Part(name, lambda *_: None, size, 1)], grows=size)

    def _parts_of(self, disk: Disk, image: Path, raw: Path, size: int, warden: shell.Warden) -> Iterator[_Part]:
        """Yield the files of a qcow2 image, each after those that it stands on."""
        chain, data, key = chain_of(disk, image), data_file_of(disk, image), key_of(disk, image)
        for path, holds in contents(disk, image, size, self.span_bytes).items():
            make: _Make = functools.partial(self._convert, str(raw), disk, image, warden)
            if path in chain:
                make = functools.partial(self._layer, raw, disk, warden, number=chain.index(path) + 1)
            elif path == data:
                make = functools.partial(self._copied, raw)
            elif path == key:
                make = write_key
            elif chain or data is not None:
                make = functools.partial(self._create, disk, image, warden, size)
            yield _Part(path.name, make, size, holds, mode=0o600 if path == key else 0o644)

    def _whole(self, parts: Iterable[_Part], *, grows: int = 0) -> Path:
        """Make the files of an image where one is not valid, then all of them: they are of one time. Returns the
        last. There must be room for as many bytes more as it `grows`.
        """
        files = tuple(parts)
        if not all(_valid(self.directory / one.name, self.span_bytes, one) for one in files):
            for one in files if len(files) > 1 else ():
                remove(self.directory / one.name)
            for number, one in enumerate(files):
                self._make(one, sum(later.holds for later in files[number:]) + grows)
        return self.directory / files[-1].name

    def _make(self, part: _Part, needed: int) -> None:
        """Make a file of an image, in place of one that is not valid, where there is room for it and the others."""
        path, size = self.directory / part.name, part.size
        witness, partial = path.with_name(path.name + _WITNESS), path.with_name(path.name + PARTIAL)
        beside = partial.with_name(partial.name + _WITNESS)
        for one in (path, witness, partial, beside):
            if os.path.lexists(one) and not is_proven(one):
                _require_readable(one)
                hint = "move it, or `--scratch DIR` puts images elsewhere"
                raise PreconditionError(f"{one} is in the way; virtune did not create it", hint=hint)
        try:
            self._require_room(needed)
            with self._new(partial.name, part.mode) as file:
                with self._new(beside.name) as note:
                    said = {"format": _FORMAT, "made_by": "virtune", "span": self.span_bytes, **identity(file)}
                    os.write(note, f"{json.dumps({**said, 'self': identity(note)})}\n".encode())
                    os.fsync(note)  # the host may fail: no image on the disk without its witness
                part.make(partial, file)
                empty = never_written(partial, size) if path.suffix == ".raw" else 0
                if empty > size - self.span_bytes:
                    raise RigError(f"{format_bytes(empty)} of {partial} stayed unwritten after filling")
                # a rename keeps the inode: killed at any instant, there is no image without its witness
                remove(path)
                os.rename(beside.name, witness.name, src_dir_fd=self._place, dst_dir_fd=self._place)
            os.rename(partial.name, path.name, src_dir_fd=self._place, dst_dir_fd=self._place)
            self.made.add(path)
        except OSError as error:
            if error.errno == errno.EFBIG:
                hint = "`--span SIZE` makes the image smaller; `ulimit -f` says what the limit is"
                raise PreconditionError(
                    f"an image of {format_bytes(size)} is larger than a file may be here", hint=hint
                ) from None
            hint = "has somebody removed the directory, or is its disk full?"
            raise PreconditionError(f"cannot make {path}: {error.strerror or error}", hint=hint) from None
        finally:
            remove(partial)
            remove(beside)

    def _new(self, name: str, mode: int = 0o644) -> contextlib.AbstractContextManager[int]:
        """Yield the descriptor of a newly created file, never through a link."""
        return opened(name, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_RDWR, mode, within=self._place)

    def _require_room(self, size: int) -> None:
        _require_free(self.directory, shutil.disk_usage(self.directory).free, size)

    def _fill(self, file: int, warden: shell.Warden) -> None:
        """Write a new file in full."""
        with step(f"filling {format_bytes(self.span_bytes)} of scratch in {self.directory}", self._say) as come:
            os.ftruncate(file, self.span_bytes)  # fio then need not lay out the file, and never unlinks it
            try:
                write_in_full(
                    file, self.span_bytes, warden, lambda: come(os.fstat(file).st_blocks * 512, self.span_bytes)
                )
            except RigError as error:
                _require_no_lack(self.directory, warden.directory / _FILLED, error.hint or "")
                if shutil.disk_usage(self.directory).free < _SPARE_BYTES:
                    raise PreconditionError(f"{self.directory} became full", hint=_ELSEWHERE) from None
                raise

    def _format(self, disk: Disk, plain: Path, warden: shell.Warden, path: Path, file: int) -> None:
        what = f"making a filesystem ({disk.filesystem}) with a file of {format_bytes(self.span_bytes)}"
        with step(what, self._say), plain.open("rb") as source:
            os.ftruncate(file, image_bytes(disk, self.span_bytes))
            make_filesystem(disk.filesystem, path, source.fileno(), warden, self.span_bytes)

    def _convert(
        self, raw: str, disk: Disk, image: Path, warden: shell.Warden, path: Path, _: int, keep: tuple[int, ...] = ()
    ) -> None:
        words = ["qemu-img", "convert", *secret_words(disk, image), "-f", "raw", "-O", "qcow2", "-t", "writeback"]
        for key, value in (qcow2_options(disk) | luks_words(disk)).items():
            words += ["-o", f"{key}={value}"]
        what = f"converting the scratch image to {path.name.removesuffix(PARTIAL)}"
        with step(what, self._say):
            self._qemu_img(what, [*words, "-W", raw, str(path)], warden, keep)
            if read_qcow2(path) is None:
                raise RigError("`qemu-img` reported success and made no qcow2 image", hint=words[0])

    def _layer(self, raw: Path, disk: Disk, warden: shell.Warden, path: Path, file: int, *, number: int) -> None:
        """Make one of the images below an image: the base with all data, the others with every so many-th piece."""
        if number == disk.backing_depth:
            self._convert(str(raw), disk, path, warden, path, file)
            return
        # a file without a name, which is gone when it is closed
        with opened(".", os.O_TMPFILE | os.O_RDWR, 0o600, within=self._place) as pieces:
            copy_pieces(raw, path, pieces, first=number, of=disk.backing_depth or 1, piece=piece_bytes(disk))
            self._convert(f"/proc/self/fd/{pieces}", disk, path, warden, path, file, keep=(pieces,))
        below = path.name.removesuffix(PARTIAL).replace(f"-layer{number}.", f"-layer{number + 1}.")
        words = ("qemu-img", "rebase", "-u", "-f", "qcow2", "-F", "qcow2", "-b", below, str(path))
        self._qemu_img("chaining scratch images", words, warden)

    def _copied(self, raw: Path, path: Path, file: int) -> None:
        with step(f"copying the scratch image to {path.name.removesuffix(PARTIAL)}", self._say):
            copy_pieces(raw, path, file)

    def _create(self, disk: Disk, image: Path, warden: shell.Warden, size: int, path: Path, _: int) -> None:
        """Make the image above a chain, or the metadata of an external data file, with nothing of its own in it."""
        *words, _named, size_bytes = create_commands(disk, image, size)[-1]
        data, empty = data_file_of(disk, image), warden.directory / "empty.raw"
        if data is not None:  # qemu-img would empty that
            words = [word.replace(escaped(data), escaped(empty)) for word in words]
        self._qemu_img("making a scratch image", [*words, str(path), size_bytes], warden)
        if data is not None:
            amend = ("qemu-img", "amend", "-f", "qcow2", "-o", f"data_file={escaped(data)}", str(path))
            self._qemu_img("naming a data file", amend, warden)
            empty.unlink()

    def _qemu_img(self, what: str, command: Sequence[str], warden: shell.Warden, keep: tuple[int, ...] = ()) -> None:
        """Run qemu-img on scratch images; raises RigError where it fails, PreconditionError where room is lacking."""
        patience_seconds = patience_of(self.span_bytes)
        with warden.running([shell.find(command[0]), *command[1:]], name="convert", keep=keep) as child:
            status = child.wait(patience_seconds)
        if status is None:
            raise RigError(f"{what} did not end within {patience_seconds:.0f} s")
        if status == -signal.SIGXFSZ:
            raise OSError(errno.EFBIG, "File too large")
        if status:
            _require_no_lack(self.directory, child.log)
            raise RigError(f"{what} ended with status {status}", hint=child.last_words())


_FILLED = "fill.txt"


def write_in_full(file: int, size_bytes: int, warden: shell.Warden, heard: Callable[[], None]) -> None:
    """Write so much of an open file or device in full, from its begin; raises RigError with how fio failed.

    fio gets it by descriptor only: in `--filename` it takes `#`, `;` and `:` for ends of a name, and would remove and
    recreate the file with the shorter name.
    """
    # fallocate=none: preallocated blocks would count as unwritten until written, and hide a full disk
    command = [shell.find("fio"), "--name=fill", "--thread=1", f"--filename=/proc/self/fd/{file}", "--rw=write"]
    command += ["--bs=1M", f"--size={size_bytes}", "--refill_buffers=1", "--fallocate=none", "--end_fsync=1"]
    command += ["--allow_file_create=0", "--ioengine=psync", f"--direct={int(_takes_direct(file))}"]
    command += [f"--output={_FILLED}", "--eta=never"]
    with warden.running(command, name="fill", keep=(file,)) as fio:
        while (status := fio.wait(0.1)) is None:
            heard()
    if status:
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        hint = fio.last_words() or shell.last_line(_end_of(warden.directory / _FILLED))
        raise RigError(f"fio {how} while it filled the scratch disk", hint=hint)


def _require_no_lack(directory: Path, log: Path, words: str = "") -> None:
    """Raise PreconditionError where a program that made an image said that there is no room for it."""
    said = _end_of(log) + words
    if "No space left" in said:
        raise PreconditionError(f"{directory} became full while the scratch image was made", hint=_ELSEWHERE)
    if "quota exceeded" in said:
        what = f"the disk quota was used up while the scratch image was made in {directory}"
        raise PreconditionError(what, hint=_ELSEWHERE)


def _end_of(log: Path) -> str:
    with contextlib.suppress(OSError):
        return read_bounded(log, _OUTPUT_BYTES, from_end=True).decode(errors="replace")
    return ""


def _require_readable(path: Path) -> None:
    """Raise RigError where a disk fails, which proves nothing of what lies on it."""
    try:
        with opened(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW):
            pass
    except OSError as error:
        if error.errno == errno.EIO:
            hint = "the kernel's log (`dmesg`) says why its disk fails"
            raise RigError(f"cannot read {path}: {words_of(error)}", hint=hint) from None


def bytes_to_fill(directory: Path, images: Iterable[tuple[Disk, int]], *, span_bytes: int) -> int:
    """Return the bytes to write until these images (disk and number) are in a directory; creates and changes
    nothing.
    """
    place, holds = made_place(directory), dict[str, int]()
    for disk, number in images:
        stem = _stem(span_bytes, number, disk)
        # the others are made from the raw one
        holds |= {f"{_stem(span_bytes, number, Disk())}.raw": span_bytes, f"{stem}.raw": span_bytes}
        if disk.format != "raw":
            files = contents(disk, Path(_qcow2_name(stem, disk)), image_bytes(disk, span_bytes), span_bytes)
            holds |= {file.name: size for file, size in files.items()}
    return sum(size for name, size in holds.items() if place is None or not is_ours(place / name))


def require_place(directory: Path, images: Collection[tuple[Disk, int]], *, span_bytes: int) -> None:
    """Raise PreconditionError where a directory, which need not be there yet, has no room for what it lacks of these
    images (disk and number); what killed runs left there is removed before they are made. Changes nothing.
    """
    needed = bytes_to_fill(directory, images, span_bytes=span_bytes)
    there = next(one for one in (directory.absolute(), *directory.absolute().parents) if one.is_dir())
    try:
        place = made_place(directory)
        left = () if place is None else (one for one in scratch_files(place) if is_left_over(one))
        free = shutil.disk_usage(there).free + sum(one.lstat().st_blocks * 512 for one in left)
    except OSError as error:
        raise PreconditionError(f"cannot look into {there}: {words_of(error)}") from None
    if needed:
        _require_free(directory, free, needed, "image needs" if len(images) == 1 else "images need")


def scratch_files(directory: Path) -> Iterator[Path]:
    """Yield virtune's files in a directory: images with their witness, and incomplete ones of killed runs."""
    yield from (path for path in sorted(directory.iterdir()) if _OURS.fullmatch(path.name) and is_proven(path))


def look_alikes(directory: Path) -> list[str]:
    """Return what has the name of a file of virtune's in a directory, and was not proven to be one; in words."""
    found = [path for path in sorted(directory.iterdir()) if _OURS.fullmatch(path.name) and not is_proven(path)]
    return [f"{path}: no witness of virtune's names it" for path in found]


def remove(path: Path) -> bool:
    """Remove one of virtune's files in a scratch directory, if it is proven to be one; returns whether it is gone."""
    return remove_file(path, functools.partial(_proves, path))


def is_proven(path: Path) -> bool:
    """Whether virtune made a file of one of its names in a scratch directory: an image or half of one that a witness
    names, a witness that names itself or its image, or half an image into which nothing was written.
    """
    with contextlib.suppress(OSError), opened(path, os.O_PATH | os.O_NOFOLLOW) as found:
        return stat.S_ISREG(os.fstat(found).st_mode) and _proves(path, found)
    return False


def _proves(path: Path, found: int) -> bool:
    image = path.with_name(path.name.removesuffix(_WITNESS).removesuffix(PARTIAL))
    beside = path.with_name(path.name.removesuffix(_WITNESS) + _WITNESS)
    told = [_said(one) for one in (beside, image.with_name(image.name + _WITNESS))]
    if path == beside:
        own = told[0].get("self")
        named = isinstance(own, dict) and is_named(found, own)
        return named or is_ours(image) or (path.name.endswith(PARTIAL + _WITNESS) and is_empty(found))
    if path != image and is_empty(found):
        return True
    return any(is_named(found, one) for one in told)


def has_lock(directory: Path) -> bool:
    """Whether a virtune measured in a directory."""
    return (directory / _LOCK).is_file()


def is_left_over(path: Path) -> bool:
    """Whether a file of virtune's is useless after its run: an incomplete image, or one made for that run only."""
    return path.name.removesuffix(_WITNESS).endswith(PARTIAL) or _PASSING in path.name


def is_ours(path: Path) -> bool:
    """Whether virtune made this image: its witness names this very inode."""
    return not path.name.endswith(_WITNESS) and os.path.lexists(path) and is_proven(path)


def never_written(path: Path, length: int) -> int:
    """Return how many of a file's first bytes were never written; raises RigError if unknown."""
    try:
        extents = unwritten_bytes(path, length)
    except OSError as error:
        hint = "so nobody can say whether it was written in full"
        raise RigError(f"cannot read {path}: {words_of(error)}", hint=hint) from None
    if isinstance(extents, Unknown):
        raise RigError(f"cannot tell whether {path} was written in full: {extents.because}")
    return extents.never_written_bytes


def drop_cache(path: Path) -> None:
    """Drop one file from the page cache, so that every trial starts equally cold. Needs no root."""
    with contextlib.suppress(OSError), opened(path, os.O_RDONLY) as descriptor:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def _said(witness: Path) -> Mapping[str, Any]:
    """Return what a witness of ours says; empty where it is none."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        said = json.loads(read_bounded(witness, _WITNESS_BYTES))
        ours = isinstance(said, dict) and (said.get("format"), said.get("made_by")) == (_FORMAT, "virtune")
        if ours and witness.lstat().st_uid == os.geteuid():
            return dict(said)
    return {}


def _valid(path: Path, span: int, part: _Part) -> bool:
    if not is_ours(path):
        return False
    with contextlib.suppress(OSError):
        # what is written into a file with a second name is written into a file of that name, too
        if _said(path.with_name(path.name + _WITNESS)).get("span") != span or path.lstat().st_nlink > 1:
            return False
        if path.suffix == ".qcow2":
            # clusters freed by trim or zeroes are served without the disk, and the file shrinks with them
            return path.stat().st_blocks * 512 >= part.holds and read_qcow2(path) is not None
        if path.suffix == ".key":
            return path.stat().st_size > 0
        return path.stat().st_size == part.size and never_written(path, part.size) <= part.size - span
    return False


def _locked(descriptor: int) -> bool:
    """Lock a file against other processes; returns whether that worked within some seconds.

    A child forked by a killed virtune holds its lock until its exec, which on a busy machine may be after its
    parent's death.
    """
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)


def _stem(span: int, number: int, disk: Disk) -> str:
    kind = "" if disk.filesystem == "none" else f"-{disk.filesystem}"
    return f"virtune-{span}" + (f"-disk{number + 1}" if number else "") + kind


def _qcow2_name(stem: str, disk: Disk) -> str:
    several = {"backing_depth": disk.backing_depth, "data_file": disk.data_file, "encryption": disk.encryption}
    words = qcow2_options(disk) | {name: setting_text(one) for name, one in several.items() if one and one != "none"}
    label = "-".join(f"{name.replace('_', '')}{value}" for name, value in words.items())
    return f"{stem}-{label or 'default'}.qcow2"


def _takes_direct(file: int) -> bool:
    with contextlib.suppress(OSError), opened(f"/proc/self/fd/{file}", os.O_RDWR | os.O_DIRECT):
        return True
    return False


_COPY_SECONDS = 120.0


def loaded_images(stack: Stack, ground: DiskImageSpec) -> tuple[Path, ...]:
    """Return the images that the load of a stack was on: those of its disks, or of its guests that load."""
    further = ground.further[: stack.guests - 1] if stack.own_images else ground.further
    second = ground.second if stack.guests > 1 else None
    return tuple(dict.fromkeys(one for one in (ground.image, second, *further) if one is not None))


def readable_outside(stack: Stack) -> bool:
    """Whether an image tells the place of each block: where a guest's filesystem put its file is not known here, and
    what a guest drives itself is on no image.
    """
    own = stack.device.vfio_pci is not None
    return stack.disk.filesystem == "none" and stack.disk.backend == "file" and not own


def difference_outside(
    stack: Stack, images: Sequence[Path], regions: Sequence[Region], mark: str, directory: Path
) -> str | None:
    """Return where an image holds something else than the pattern, None where none does. qcow2 images are read
    through files in the directory. Raises RigError when an image cannot be read.
    """
    for image in images:
        for file in files_of(stack.disk, image):
            drop_cache(file)
        for region in (place for one in regions for place in one.each()):
            try:
                if stack.disk.format == "raw":
                    at = _differs(image, region, mark, begin=region.offset)
                else:
                    at = _in_qcow2(image, stack.disk, region, mark, directory / "outside.raw")
            except OSError as error:
                raise RigError(f"cannot read {image}: {error.strerror}") from None
            if at is not None:
                return f"byte {at} of {image}"
    return None


def _differs(path: Path, region: Region, mark: str, *, begin: int) -> int | None:
    with path.open("rb") as file:
        file.seek(begin)
        return next((offset for offset, block in region.blocks(mark) if file.read(len(block)) != block), None)


def _in_qcow2(image: Path, disk: Disk, region: Region, mark: str, read: Path) -> int | None:
    # `qemu-img dd` takes count= for the end of what it copies, not for its length
    node = image_node(disk, image)
    part = json.dumps({"driver": "raw", "offset": region.offset, "size": region.size, "file": node})
    try:
        secret = secret_words(disk, image)
        command = [shell.find("qemu-img"), "convert", *secret, "-O", "raw", f"json:{part}", str(read)]
        shell.run(command, timeout_seconds=_COPY_SECONDS)
        return _differs(read, region, mark, begin=0)
    except shell.CommandError as error:
        raise RigError(f"cannot read {image}: {error.message}", hint=error.hint) from None
    finally:
        read.unlink(missing_ok=True)
