# SPDX-License-Identifier: Apache-2.0
"""The process around a command line: streams, Ctrl-C, memory; each exception as one sentence with an exit code."""

import codecs
import contextlib
import errno
import io
import os
import re
import resource
import sys
import threading
from dataclasses import dataclass

import click

from virtune import interrupts
from virtune.model.errors import VirtuneError
from virtune.model.text import printable

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
    interrupts.take()
    if not debug:
        threading.excepthook = lambda _: None


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


_REPORT = "VIRTUNE_DEBUG=1 shows where it happened; please report it with that"

_LIMITS: dict[int, tuple[str, str | None]] = {
    errno.EMFILE: ("too many files are open", "`ulimit -n 1024` allows more"),
    errno.ENFILE: ("too many files are open on this host", None),
    errno.EAGAIN: ("no more processes or threads can be started", "`ulimit -u` shows how many you may have"),
    errno.ENOMEM: ("out of memory", "`ulimit -v` shows how much a process may have"),
    errno.ENOSPC: ("no space left on the device", "free some, or name another place"),
    errno.EDQUOT: ("the disk quota is used up", "free some, or name another place"),
    errno.EFBIG: ("a file would become larger than is allowed", "`ulimit -f` shows how large one may become"),
}
"""Errors that are not about a particular file."""

_OF_OUTPUT = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EPIPE})
"""Errors of an output stream, which carry no file name."""


_NO_MEMORY = re.compile(r"failed to map segment|[Cc]annot allocate memory|static TLS block")
"""The loader's messages when a library does not fit into memory."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The report to the user: a sentence, a hint if there is one, and the exit code."""

    message: str
    hint: str | None
    code: int
    details: tuple[str, ...] = ()


def failure_of(error: BaseException) -> Failure | None:
    """Return the report on an exception; None where the reader of a pipe (head, less) closed it."""
    match error:
        case BrokenPipeError():
            return None
        case VirtuneError():
            return Failure(error.message, error.hint, error.exit_code, error.details)
        case click.UsageError():
            command = error.ctx.command_path if error.ctx else "virtune"
            hint = getattr(error, "hint", None) or f"`{command} --help`"
            return Failure(_sentence(error.format_message()), hint, 2)
        case click.ClickException():
            return Failure(_sentence(error.format_message()), None, 1)
        case click.Abort() | KeyboardInterrupt():
            return Failure("interrupted", None, 130)
        case OSError():
            return _of_system(error)
        case MemoryError():
            return Failure(*_LIMITS[errno.ENOMEM], 1)
        case RuntimeError() if "start new thread" in str(error):
            return Failure(*_LIMITS[errno.EAGAIN], 1)
        case ImportError() if (reason := _not_loaded(error)) is not None:
            return reason
        case RecursionError():
            return Failure("the input is nested too deeply to be read", None, 1)
    if interrupts.came():  # as pydantic does, which raises it as an error of the schema that it builds
        return failure_of(KeyboardInterrupt())
    said = " ".join(str(error).split())
    return Failure(f"internal error: {type(error).__name__}{said and ': '}{printable(said)[:300]}", _REPORT, 1)


def _not_loaded(error: ImportError) -> Failure | None:
    """Report a module for which there was no memory, or a library that a small installation lacks."""
    from virtune.shell import missing_module

    if _NO_MEMORY.search(_with_causes(error)):
        return Failure(*_LIMITS[errno.ENOMEM], 1)
    missing = missing_module(error)
    return failure_of(missing) if missing else None


def _of_system(error: OSError) -> Failure:
    """Report the system's error and the file; without a file it is about our output or a limit."""
    text, hint = _LIMITS.get(error.errno or 0, (error.strerror or type(error).__name__, None))
    if error.filename is not None:
        return Failure(f"{printable(os.fsdecode(error.filename))}: {_small(text)}", hint, 1)
    if is_of_output(error):
        return Failure(f"cannot write the output: {_small(text)}", None, 1)
    return Failure(_small(text), hint, 1)


def is_of_output(error: BaseException) -> bool:
    """Whether an error is about the stream that is printed to."""
    return isinstance(error, OSError) and error.filename is None and error.errno in _OF_OUTPUT


def _with_causes(error: BaseException | None) -> str:
    """Return the message of an exception, and those of its causes."""
    said: list[str] = []
    while error is not None and len(said) < 10:
        said.append(str(error))
        error = error.__cause__ or error.__context__
    return "; ".join(said)


def debugging() -> bool:
    """Whether the user wants to see tracebacks."""
    return bool(os.environ.get("VIRTUNE_DEBUG"))


def let_go_of_output() -> None:
    """Discard buffered output, so that the interpreter does not try to print it again at exit."""
    with contextlib.suppress(OSError, ValueError):  # a stdout that is no file has nothing to let go of
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def say(failure: Failure) -> int:
    """Write a failure to stderr and return its exit code, also if stderr cannot be written to."""
    colour = False if os.environ.get("NO_COLOR") else None  # None: as the terminal is
    with contextlib.suppress(OSError):
        click.echo(click.style("error:", fg="red", bold=True) + f" {failure.message}", err=True, color=colour)
        for line in failure.details:
            click.echo(f"  {line}", err=True, color=colour)
        if failure.hint:
            click.echo(f"\n{click.style('hint:', fg='cyan')} {failure.hint}", err=True, color=colour)
    return failure.code


def say_removals() -> None:
    """Write to stderr what this call removed that other runs had left, whatever the verb was."""
    warden = sys.modules.get("virtune.warden")  # without it nothing was removed
    with contextlib.suppress(OSError):
        for words in warden.noted_removals() if warden else ():
            click.echo(f"note: a run that was killed left {printable(words)}; removed", err=True)


def _sentence(text: str) -> str:
    return _small(" ".join(text.split()).rstrip("."))


def _small(text: str) -> str:
    return text[:1].lower() + text[1:]
