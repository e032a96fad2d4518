# SPDX-License-Identifier: Apache-2.0
"""A block job that is at work on a guest's disk while that is loaded: a backup, or a mirror, onto a scratch image.

The job copies the whole disk. One that has copied all of it before the load ends is begun anew, so that the whole
measured time is spent beside it: a backup when it is over, a mirror when both are alike. Writes that the guest makes
meanwhile are what they are with any such job: a backup first copies what they replace, a mirror copies them later.

The copy is opened as the disk is (aio, cache), so that what is seen of the disk's engine stays true, and it is
written in full beforehand, so that each pass finds the same blocks allocated. It is looked at 50 times a second,
which takes 2 % of a CPU, of which half is QEMU's.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from virtune.dialects.qemu.qmp import COPY_NODE, copy_command
from virtune.model.errors import LoadError, RigError
from virtune.model.evidence import UNDER_LOAD, Check
from virtune.model.stack import Disk, During
from virtune.model.text import format_bytes

IMAGE = 9
"""The number of the scratch image that is the copy: no disk of a guest has it, nor a neighbour."""

_JOB = "during0"
_GONE_SECONDS = 10.0
"""A job that is cancelled ends with the requests that it has in flight."""

_TICK_SECONDS = 0.002

Ask = Callable[[str, Mapping[str, Any]], Any]
"""Executes a QMP command with its arguments; raises RigError with QEMU's message."""


class BlockJob:
    """A job of one kind that copies the node `source` to the image `copy`. `run` begins and ends it, `tend` keeps it
    at work, `mark` is called when the measured time begins and when it ends.
    """

    def __init__(self, kind: During, ask: Ask, *, source: str, copy: Path, disk: Disk) -> None:
        self._kind, self._ask, self._source, self._copy, self._disk = kind, ask, source, copy, disk
        self._passes = self._before = self._copied = 0
        self._cancelled = False
        self._marks: list[int] = []

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        """Have the job at work while the block runs, and then neither the job nor its node. Raises RigError where
        QEMU refuses it.
        """
        opened = copy_command(self._disk, str(self._copy))
        self._ask(opened.execute, opened.arguments)
        try:
            self._begin()
            yield
        except BaseException:
            with contextlib.suppress(RigError):  # the guest may be what failed
                self._end()
            raise
        self._end()

    def tend(self) -> None:
        """Look how far the job is, and begin it anew where it is done. Raises LoadError when it failed."""
        job = self._seen()
        if job is None:
            raise LoadError(f"the {self._kind} of the disk is gone, and nobody ended it")
        self._copied = self._before + job["current-progress"]
        if job["status"] == "ready":
            self._cancel()
        if job["status"] != "concluded":
            return
        if "error" in job and not self._cancelled:
            raise LoadError(f"the {self._kind} of the disk failed: {job['error']}", hint=f"it wrote to {self._copy}")
        self._ask("job-dismiss", {"id": _JOB})
        self._before = self._copied
        self._begin()

    def mark(self) -> None:
        """Note how much is copied by now."""
        self.tend()
        self._marks.append(self._copied)

    def check(self) -> Check:
        """Check that the job made progress within the measured time, or until the end of a load that ended before."""
        begin, end, *_ = (*self._marks, self._copied) if self._marks else (0, self._copied)
        copied = end - begin
        none = "none" if len(self._marks) > 1 else None
        again = f", begun {self._passes} times" if self._passes > 1 else ""
        proof = f"QMP query-jobs: {format_bytes(copied)} copied {UNDER_LOAD} by {self._kind}{again}"
        return Check("disk.during", self._kind, self._kind if copied > 0 else none, proof)

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

    def _seen(self) -> Mapping[str, Any] | None:
        return next((one for one in self._ask("query-jobs", {}) if one["id"] == _JOB), None)
