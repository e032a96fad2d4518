# SPDX-License-Identifier: Apache-2.0
"""Reports into files that a user names. An older report is replaced; a file that is not text, such as the store,
never is.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from virtune.model.errors import PreconditionError

_HEAD_BYTES = 4096
_PAGE = (".html", ".htm")


def is_page(path: Path) -> bool:
    """Whether a report is written as a page with pictures, by its name."""
    return path.suffix.lower() in _PAGE


def require_report(path: Path | None) -> None:
    """Raise before a run where its report could not be written: its file, or what draws its pictures."""
    if path is None:
        return
    require_writable(path)
    if is_page(path):
        from virtune.flows.reports.report import require_libraries

        require_libraries()


def require_writable(path: Path) -> None:
    """Check before a run that a file can be written; raises PreconditionError with the reason."""
    if path.exists() and not path.is_file() and not path.is_dir():
        _require_stream(path)  # to open a FIFO would wait for its reader
        return
    with _opened(path):
        pass


def write_text(path: Path, text: str) -> None:
    """Write a file, or replace the text in it; raises PreconditionError with the reason when that cannot be."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            _require_stream(path)
            path.write_text(text, encoding="utf-8")
            return
        with _opened(path) as descriptor, os.fdopen(os.dup(descriptor), "w", encoding="utf-8") as file:
            os.ftruncate(descriptor, 0)
            file.write(text)
    except OSError as error:
        raise PreconditionError(f"cannot write {path}: {error.strerror}") from None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Yield a file that may be replaced, open and as it is."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise PreconditionError(f"cannot write {path}: {error.strerror}") from None
    try:
        if not os.fstat(descriptor).st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
            # the kernel lets root write to it
            raise PreconditionError(f"cannot write {path}: it is read-only", hint=f"`chmod u+w {path}` permits it")
        if b"\0" in os.pread(descriptor, _HEAD_BYTES, 0):
            hint = "name another file, or remove this one first"
            raise PreconditionError(f"{path} is not a text file, so virtune does not replace it", hint=hint)
        yield descriptor
    finally:
        os.close(descriptor)


def _require_stream(path: Path) -> None:
    if path.is_block_device():
        raise PreconditionError(f"{path} is a block device, and a report is not written to one")
