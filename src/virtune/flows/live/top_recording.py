# SPDX-License-Identifier: Apache-2.0
"""Recordings of `virtune top` in files: written sample by sample, and read again at any place."""

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, overload

from virtune.analyse.layers.recording import (
    VMS,
    RunningVms,
    header_line,
    read_header,
    read_sample,
    read_vms,
    sample_line,
    vms_line,
)
from virtune.model.errors import PreconditionError, StoreError
from virtune.model.live import LiveSample

_LINE_MAX = 64 * 1024**2
"""A sample of a thousand disks takes less than a megabyte."""


class Recorder:
    """Writes samples to a new file. Use as a context manager; what is written is complete after every sample."""

    def __init__(self, path: Path, header: bytes) -> None:
        """Raises PreconditionError when it exists or cannot be written. `header` is of the kernel's counters."""
        self._path = path
        try:
            self._file = path.open("xb", buffering=0)
        except FileExistsError:
            hint = "a recording replaces nothing: name another file"
            raise PreconditionError(f"{path} exists", hint=hint) from None
        except OSError as error:
            raise PreconditionError(f"cannot write {path}: {error.strerror}") from None
        self._running: RunningVms | None = None
        self._write(header_line(header))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, sample: LiveSample) -> None:
        """Append a sample; raises PreconditionError when it cannot be written."""
        running = RunningVms(vms=sample.vms, missing=sample.missing)
        if running != self._running:
            self._write(vms_line(sample))
            self._running = running
        self._write(sample_line(sample))

    def _write(self, line: bytes) -> None:
        try:
            left = memoryview(line)
            while left:
                left = left[self._file.write(left) or 0 :]
        except OSError as error:
            raise PreconditionError(f"cannot write {self._path}: {error.strerror}") from None


class Recording(Sequence[LiveSample]):
    """The samples of a recording, read when they are asked for. A last line without an end is left out: the recording
    was killed. Use as a context manager.
    """

    def __init__(self, path: Path) -> None:
        """Raises PreconditionError when the file cannot be read, StoreError when it is no recording."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise OSError(errno.EINVAL, "not a regular file")  # noqa: TRY301 - one sentence for both
        except OSError as error:
            raise PreconditionError(f"cannot read {path}: {error.strerror}") from None
        self._file = os.fdopen(descriptor, "rb")
        try:
            self._header = read_header(self._line())
            self._places = list(self._index())
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> LiveSample: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[LiveSample]: ...

    def __getitem__(self, index: int | slice) -> LiveSample | Sequence[LiveSample]:
        """Return a sample, or several; raises StoreError when its line is damaged."""
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        place, number, running = self._places[index]
        self._file.seek(place)
        return read_sample(self._header, self._line(), number, running)

    def _index(self) -> "list[tuple[int, int, RunningVms]]":
        """Return the place and number of each sample's line, and the VMs that ran."""
        found: list[tuple[int, int, RunningVms]] = []
        running, number = RunningVms(vms=()), 1
        while True:
            place, number = self._file.tell(), number + 1
            line = self._line()
            if not line.endswith(b"\n"):
                return found
            if line.startswith(VMS):
                running = read_vms(line, number)
            else:
                found.append((place, number, running))

    def _line(self) -> bytes:
        line = self._file.readline(_LINE_MAX)
        if len(line) == _LINE_MAX:
            raise StoreError("this is no recording of `virtune top`: it has a line without end")
        return line
