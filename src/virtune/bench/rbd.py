# SPDX-License-Identifier: Apache-2.0
"""Images in a Ceph cluster, for arms whose disk is QEMU's own rbd driver: made from the scratch image, removed after
the run. Nothing else in the pool is read or written.

An image stays in its pool when virtune is killed, and when this host restarts. So there is a small file for each in
the user's data directory: it is on the disk before the image is made, locked while the run lives, and removed with
the image. The image's name ends with a random number that stands nowhere else, so nobody else's image has it.
"""

import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virtune import shell, warden
from virtune.bench.scratch import Scratch, patience_of
from virtune.model.errors import PreconditionError, VirtuneError
from virtune.model.event import Noticed, Say, step
from virtune.model.stack import Disk, RbdPlace, Stack, rbd_place
from virtune.shell import Warden

PROGRAM = "rbd"

_SUFFIX = ".json"
_OURS = re.compile(r"virtune-run-[a-z0-9-]+-[0-9a-f]{16}", re.ASCII)
"""The names of virtune's images; no other image is ever removed."""

_RANDOM_BYTES = 8

_ANSWER_SECONDS = 20.0
"""A cluster that is there tells of an image within a second; one that is not lets its clients wait for minutes."""

_NONE = ("error opening image", "error opening pool", "does not exist")
"""What `rbd info` says (Ceph 16) of an image, a pool, a namespace that is not there; its status 2 may mean more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedImage:
    """The record of an image that is made, or is about to be."""

    record: Path
    place: RbdPlace
    size_bytes: int

    @property
    def name(self) -> str:
        return self.record.stem

    @property
    def path(self) -> str:
        """The image as Ceph's programs name it."""
        return f"{self.place.path}/{self.name}"

    def remove(self) -> bool:
        """Remove the image, and then its record; returns whether there was an image.

        Raises VirtuneError with Ceph's words when the image may still be there; the record then stays.
        """
        found = _rbd(self.place, "info", self.path, seconds=_ANSWER_SECONDS, ok=(0, 2))
        there = found.status == 0
        if there:
            _rbd(self.place, "rm", "--no-progress", self.path, seconds=patience_of(self.size_bytes))
        elif not any(words in found.stderr for words in _NONE):
            raise PreconditionError(f"Ceph does not tell of {self.path}: {shell.last_line(found.stderr)}")
        warden.remove_record(self.record)
        return there


def records() -> Path:
    """Return the directory with the records of this user's images."""
    return shell.data_directory() / "ceph"


@contextlib.contextmanager
def rbd_images(stacks: Iterable[Stack], scratch: Scratch, run: Warden, say: Say) -> Iterator[Mapping[str, str]]:
    """Yield the image in each pool that the stacks ask for, by the text that names the pool, filled with what the
    scratch image holds.

    Images that killed runs left in these pools are removed first. Raises PreconditionError with Ceph's words when one
    cannot be made.
    """
    texts = dict.fromkeys(one.disk.rbd for one in stacks if one.disk.backend == "rbd" and one.disk.rbd is not None)
    for left in abandoned() if texts else ():
        if left.place.text in texts:
            with contextlib.suppress(VirtuneError):  # its record stays
                left.remove()
    names: dict[str, str] = {}
    with contextlib.ExitStack() as ends:
        for text in texts:
            plain = scratch.image_for(Disk(), run)
            name = f"{run.directory.name}-{secrets.token_hex(_RANDOM_BYTES)}"
            image = ends.enter_context(_noted(rbd_place(text), name, scratch.span_bytes))
            ends.callback(_remove_at_end, image, say)
            with step(f"making the image {image.path} in Ceph", say):
                _make(image, plain, run)
            names[text] = image.name
        yield names


def abandoned() -> Iterator[NotedImage]:
    """Yield the images that dead runs left, each locked against a second virtune while it is looked at."""
    wrong = (OSError, ValueError, KeyError, TypeError, ArithmeticError, VirtuneError)
    for record in filter(said, sorted(records().glob(f"virtune-*{_SUFFIX}"))):
        with contextlib.suppress(*wrong), record.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # while its run lives this is refused
            if found := said(record):
                yield NotedImage(record=record, place=rbd_place(found["place"]), size_bytes=int(found["size_bytes"]))


def said(record: Path) -> Mapping[str, Any]:
    """Return what a record says; empty where it is not the very file that virtune wrote."""
    return warden.record_at(record) if _OURS.fullmatch(record.stem) else {}


@contextlib.contextmanager
def _noted(place: RbdPlace, name: str, size_bytes: int) -> Iterator[NotedImage]:
    """Record an image before it is made, and hold the record's lock while the block runs; on the disk when this
    begins. Raises PreconditionError where nothing can be recorded.
    """
    home = records()
    record = home / f"{name}{_SUFFIX}"
    with contextlib.ExitStack() as ends:
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            ends.callback(os.close, warden.write_record(record, {"place": place.text, "size_bytes": size_bytes}))
        except OSError as error:
            hint = "without the record a killed run would leave its image in the pool for good"
            raise PreconditionError(f"cannot write {record}: {error.strerror}", hint=hint) from None
        yield NotedImage(record=record, place=place, size_bytes=size_bytes)


def _make(image: NotedImage, plain: Path, run: Warden) -> None:
    """Make an image with what a file holds. A killed virtune ends this too, since it may take minutes."""
    command = _command(image.place, "import", "--no-progress", str(plain), image.path)
    with run.running(command, name=PROGRAM) as child:
        status = child.wait(patience_of(image.size_bytes))
    if status != 0:
        how = "did not end in time" if status is None else f"ended with status {status}"
        raise PreconditionError(
            f"`rbd import` of {image.path} {how}",
            hint=child.last_words() or "`rbd ls POOL` must work for the user who runs virtune",
        )


def _remove_at_end(image: NotedImage, say: Say) -> None:
    """Remove an image after its run; one that cannot be removed now is not worth the result."""
    try:
        image.remove()
    except VirtuneError as error:
        say(Noticed(text=f"the image {image.path} is left to `virtune host clean`: {error.message}"))


def _rbd(place: RbdPlace, verb: str, *words: str, seconds: float, ok: tuple[int, ...] = (0,)) -> shell.Output:
    try:
        return shell.run(_command(place, verb, *words), timeout_seconds=seconds, ok=ok)
    except shell.CommandError as error:
        message = f"Ceph does not do `rbd {verb}` in {place.path}: {error.message}"
        raise PreconditionError(message, hint=error.hint) from None


def _command(place: RbdPlace, verb: str, *words: str) -> list[str]:
    who = [] if place.user is None else ["--id", place.user]
    where = [] if place.conf is None else ["--conf", place.conf]
    return [shell.find(PROGRAM), *where, *who, verb, *words]
