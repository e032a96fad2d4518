# SPDX-License-Identifier: Apache-2.0
"""What QEMU does to a guest's disk while that is loaded: a backup, or a mirror, onto a scratch image, or snapshots.

A job copies the whole disk. One that has copied all of it before the load ends is begun anew, so that the whole
measured time is spent beside it: a backup when it is over, a mirror when both are alike. Writes that the guest makes
meanwhile are what they are with any such job: a backup first copies what they replace, a mirror copies them later.

The copy is opened as the disk is (aio, cache), so that what is seen of the disk's engine stays true, and it is
written in full beforehand, so that each pass finds the same blocks allocated. It is looked at 50 times a second,
which takes 2 % of a CPU, of which half is QEMU's.

A snapshot puts an empty overlay above the disk, opened likewise, into which the guest then writes. After half a
second a commit merges it back and it is removed, and a new one is taken, as a backup by snapshots does once. A merge
under many writes may last until they end: QEMU ends it at a moment at which nothing is left to merge.

After a failure nothing is merged or cancelled here: the VM ends, and a scratch image holds what it holds.
"""

import abc
import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from virtune.dialects.qemu.qmp import COPY_NODE, copy_command, overlay_commands
from virtune.model.errors import LoadError, RigError
from virtune.model.evidence import UNDER_LOAD, Check
from virtune.model.stack import Disk, During
from virtune.model.text import format_bytes

IMAGE = 9
"""The number of the scratch image that is the copy or the overlay: no disk of a guest has it, nor a neighbour."""

_JOB = "during0"
_GONE_SECONDS = 10.0
"""A job that is cancelled ends with the requests that it has in flight."""

_STANDS_SECONDS = 0.5
"""How long a snapshot stands until it is merged; what the guest writes in that time is what there is to merge."""

_MERGED_SECONDS = 60.0
"""A merge after the load writes at most what the guest did in some seconds, and nothing comes in between."""

_TICK_SECONDS = 0.002

Ask = Callable[[str, Mapping[str, Any]], Any]
"""Executes a QMP command with its arguments; raises RigError with QEMU's message."""


class DuringLoad(abc.ABC):
    """What one kind of job does to a disk, or to its VM. `run` begins and ends it, `tend` keeps it at work,
    `mark` is called when the measured time begins and when it ends.
    """

    shown_by = "QMP query-jobs"

    def __init__(self, kind: During) -> None:
        self._kind = kind
        self._passes = self._before = self._copied = 0
        self._marks: list[tuple[int, ...]] = []

    @abc.abstractmethod
    def run(self) -> AbstractContextManager[None]:
        """Have the job at work while the block runs, and nothing of it afterwards. Raises RigError where it is
        refused.
        """

    @abc.abstractmethod
    def tend(self) -> None:
        """Look how far the job is, and begin it anew where it is done. Raises LoadError when it failed."""

    def mark(self) -> None:
        """Note how much is done by now."""
        self.tend()
        self._marks.append(self._counts())

    def check(self) -> Check:
        """Check that the job made progress within the measured time, or until the end of a load that ended before."""
        at_work, proof = self._progress()
        none = "none" if len(self._marks) > 1 else None
        return Check("disk.during", self._kind, self._kind if at_work else none, f"{self.shown_by}: {proof}")

    def _progress(self) -> tuple[bool, str]:
        """Say whether there was any, and which."""
        (copied,) = self._done()
        again = f", begun {self._passes} times" if self._passes > 1 else ""
        return copied > 0, f"{format_bytes(copied)} copied {UNDER_LOAD} by {self._kind}{again}"

    def _counts(self) -> tuple[int, ...]:
        return (self._copied,)

    def _done(self) -> tuple[int, ...]:
        """Return how much of each was done within the measured time, or until a load ended before."""
        begin, end, *_ = [*([] if self._marks else [(0,) * len(self._counts())]), *self._marks, self._counts()]
        return tuple(now - before for before, now in zip(begin, end, strict=True))


class BlockJob(DuringLoad):
    """A job of QEMU's that copies the node `source` to the image `copy`."""

    def __init__(self, kind: During, ask: Ask, *, source: str, copy: Path, disk: Disk) -> None:
        super().__init__(kind)
        self._ask, self._source, self._copy, self._disk = ask, source, copy, disk
        self._cancelled = False

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        self._open()
        self._begin()
        yield
        self._end()

    def tend(self) -> None:
        job = self._seen()
        if job is None:
            raise LoadError(f"the {self._kind} of the disk is gone, and nobody ended it")
        self._copied = self._before + job["current-progress"]
        if job["status"] == "ready":
            self._cancel()
        if job["status"] != "concluded":
            return
        if not self._cancelled:
            self._require_well(job)
        self._ask("job-dismiss", {"id": _JOB})
        self._before = self._copied
        self._begin()

    def _open(self) -> None:
        opened = copy_command(self._disk, str(self._copy))
        self._ask(opened.execute, opened.arguments)

    def _begin(self) -> None:
        words = {"job-id": _JOB, "device": self._source, "target": COPY_NODE, "sync": "full", "auto-dismiss": False}
        self._ask(f"blockdev-{self._kind}", words)
        self._passes, self._cancelled = self._passes + 1, False

    def _end(self) -> None:
        deadline = time.monotonic() + _GONE_SECONDS
        while (job := self._seen()) is not None:
            if job["status"] == "concluded":
                self._ask("job-dismiss", {"id": _JOB})
            else:
                self._cancel()
            if time.monotonic() > deadline:
                raise RigError(f"the {self._kind} of the disk did not end within {_GONE_SECONDS:g} s")
            time.sleep(_TICK_SECONDS)
        self._ask("blockdev-del", {"node-name": COPY_NODE})

    def _cancel(self) -> None:
        """Cancel the job once; one that has just ended by itself refuses it."""
        if not self._cancelled:
            with contextlib.suppress(RigError):
                self._ask("job-cancel", {"id": _JOB})
                self._cancelled = True

    def _require_well(self, job: Mapping[str, Any]) -> None:
        if "error" in job:
            raise LoadError(f"the {self._kind} of the disk failed: {job['error']}", hint=f"it wrote to {self._copy}")

    def _seen(self) -> Mapping[str, Any] | None:
        return next((one for one in self._ask("query-jobs", {}) if one["id"] == _JOB), None)


class SnapshotsInTurn(DuringLoad):
    """Snapshots that are taken and merged one after the other, each in the file `copy`."""

    tick_seconds = _TICK_SECONDS
    _taken = _merged = 0
    _until = 0.0

    def _progress(self) -> tuple[bool, str]:
        """Say whether snapshots were taken, or merged, or one was on its way to be."""
        taken, merged, copied = self._done()
        proof = f"{taken} snapshots taken and {merged} merged {UNDER_LOAD}"
        return any((taken, merged, copied)), f"{proof}, {format_bytes(copied)} written back by merges"

    @abc.abstractmethod
    def _begin(self) -> None:
        """Take a snapshot, and count it where it is seen above the disk."""

    @abc.abstractmethod
    def _merge(self) -> bool:
        """Go on with the merge of the snapshot, when its time has come; returns whether it is merged and gone."""

    def _look(self) -> None:
        if self._merge():
            self._begin()

    def _counts(self) -> tuple[int, ...]:
        return self._taken, self._merged, self._copied

    def _end(self) -> None:
        self._until, deadline = 0.0, time.monotonic() + _MERGED_SECONDS
        while not self._merge():
            if time.monotonic() > deadline:
                raise RigError(f"the snapshot of the disk was not merged within {_MERGED_SECONDS:g} s")
            time.sleep(self.tick_seconds)

    def _stands(self, *, taken: bool) -> None:
        """Let the snapshot stand from now on, and count it where it was seen to be `taken`."""
        self._until = time.monotonic() + _STANDS_SECONDS
        self._taken += taken


class Snapshots(SnapshotsInTurn, BlockJob):
    """Snapshots of the node `source`, by QEMU."""

    shown_by = "QMP query-named-block-nodes, query-jobs"
    _completes = False

    def tend(self) -> None:
        self._look()

    def _open(self) -> None:
        """Each snapshot opens a file of its own."""

    def _begin(self) -> None:
        """That it stands is seen by what the overlay has below it."""
        os.truncate(self._copy, 0)
        size = self._node(self._source)["image"]["virtual-size"]
        create, opened = overlay_commands(self._disk, str(self._copy), size, job=_JOB)
        self._ask(create.execute, create.arguments)
        while (job := self._seen()) is not None and job["status"] != "concluded":
            time.sleep(_TICK_SECONDS)
        self._require_well(job or {})
        self._ask("job-dismiss", {"id": _JOB})
        self._ask(opened.execute, opened.arguments)
        self._ask("blockdev-snapshot", {"node": self._source, "overlay": COPY_NODE})
        self._stands(taken=self._node(COPY_NODE)["backing_file_depth"] > 0)

    def _merge(self) -> bool:
        job = self._seen()
        if job is None:
            if time.monotonic() >= self._until:
                self._before, self._completes = self._copied, False
                words = {"job-id": _JOB, "device": COPY_NODE, "base-node": self._source, "auto-dismiss": False}
                self._ask("block-commit", words)
            return False
        self._require_well(job)
        self._copied = self._before + job["current-progress"]
        if job["status"] == "ready" and not self._completes:
            self._ask("job-complete", {"id": _JOB})
            self._completes = True
        if job["status"] != "concluded":
            return False
        self._ask("job-dismiss", {"id": _JOB})
        self._ask("blockdev-del", {"node-name": COPY_NODE})  # refused while anything stands on it
        self._merged += 1
        return True

    def _node(self, name: str) -> Mapping[str, Any]:
        return next(one for one in self._ask("query-named-block-nodes", {}) if one["node-name"] == name)
