# SPDX-License-Identifier: Apache-2.0
"""Prepare the process environment: standard streams, Ctrl-C, threads."""

import codecs
import io
import os
import resource
import signal
import sys
import threading
from types import FrameType

_ASCII = {
    "\u2026": ">",
    "\u00b5": "u",
    "\u00d7": "x",
    "\u2013": "-",
    "\u2014": "-",
    "\u2265": ">=",
    "\u2264": "<=",
    "\u2502": ":",
    "\u2500": "-",
    "\u251c": "|",
    "\u2524": "|",
    "\u25cf": "o",
    "\u25c0": "<",
    "\u25b6": ">",
    "\u2501": "-",
    "\u2578": "-",
    "\u257a": "-",
}
"""What stands for a character that a terminal cannot show."""

_PATIENCE = 3
"""The third Ctrl-C ends virtune at once, and the guard cleans up; the second one only says so."""


_MEMORY_BYTES, _DATA_BYTES = 256 * 1024**2, 160 * 1024**2
"""Address space and data of a process that has loaded all that the verbs need: measured, 215 and 113 MiB."""


def prepare(*, debug: bool) -> None:
    """Make streams, Ctrl-C and threads ready for a command line that runs to its end."""
    _open_streams()
    # its threads would each need memory, and CPUs that are being measured; there are no large matrices
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    codecs.register_error("virtune", _nearest)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="virtune")
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # otherwise our parent has it ignored
        signal.signal(signal.SIGINT, _Interrupts())
    if not debug:
        threading.excepthook = lambda _: None
        sys.unraisablehook = lambda _: None


def missing_memory() -> str | None:
    """Name the limit that leaves too little memory, None if there is enough.

    Without memory NumPy's OpenBLAS raises no error: it prints a message and exits, or hangs.
    """
    for limit, word, needed in ((resource.RLIMIT_AS, "v", _MEMORY_BYTES), (resource.RLIMIT_DATA, "d", _DATA_BYTES)):
        allowed, _ = resource.getrlimit(limit)
        if allowed != resource.RLIM_INFINITY and allowed < needed:
            return (
                f"`ulimit -{word}` allows {allowed // 1024**2} MiB of memory, and virtune needs {needed // 1024**2}"
            )
    return None


def _open_streams() -> None:
    """Open what is closed of the three streams, or the next file opened would be printed into.

    A closed stdout is opened so that writing to it fails, and output is not lost silently.
    """
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            found = os.open(os.devnull, mode)
            if found != number:
                os.dup2(found, number)
                os.close(found)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0)
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.FileIO(os.dup(1), "w", closefd=False), line_buffering=True)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w")


class _Interrupts:
    """The first Ctrl-C stops what is done; those that come while it is taken down do not stop that."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - what Python hands over
        self._count += 1
        if self._count == 1:
            raise KeyboardInterrupt
        if self._count >= _PATIENCE:
            os._exit(130)
        os.write(2, b"stopping and cleaning up; Ctrl-C once more stops at once\n")


def _nearest(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that the terminal's character set lacks by similar ones, so that output works in every
    locale.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return in_ascii(error.object[error.start : error.end]), error.end


def in_ascii(text: str) -> str:
    """Return text for a terminal that shows nothing else, as near as can be."""
    return "".join(one if one.isascii() else _ASCII.get(one, "?") for one in text)
