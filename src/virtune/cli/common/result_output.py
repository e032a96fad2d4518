# SPDX-License-Identifier: Apache-2.0
"""Where the result of a call goes, and the options for CI: conditions with an exit code, Markdown, JUnit.

A user names the files. An older report is replaced; a file that is not text, such as the store, never is.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virtune.cli.common.options import adding, study_option
from virtune.model.errors import PreconditionError, UsageError

if TYPE_CHECKING:
    from virtune.model.evidence import StudyRecord
    from virtune.model.verdict import Outcome, Threshold, ThresholdResult
    from virtune.report.html.page import ReportPage


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
    made = not os.path.lexists(path)
    with _opened(path):
        pass
    if made:
        path.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a file, or replace the text in it; raises PreconditionError with the reason when that cannot be."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            _require_stream(path)
            path.write_text(text, encoding="utf-8")
            return
        made = not os.path.lexists(path)
        with _opened(path) as descriptor:
            fill(descriptor, text.encode(), path, made=made)
    except OSError as error:
        raise not_written(path, error) from None


def fill(descriptor: int, content: bytes, path: Path, *, made: bool) -> None:
    """Replace what an opened file holds. Where the new content does not fit, the file stays as it was, and one that
    was `made` for it is removed; then this raises PreconditionError.
    """
    before = os.fstat(descriptor).st_size
    try:
        _reserve(descriptor, len(content))
        with os.fdopen(os.dup(descriptor), "r+b") as file:
            file.seek(0)
            file.write(content)
        os.ftruncate(descriptor, len(content))
    except OSError as error:
        os.ftruncate(descriptor, before)
        if made:
            path.unlink(missing_ok=True)
        raise not_written(path, error) from None


def _reserve(descriptor: int, size: int) -> None:
    """Have the space before anything is replaced, on a filesystem that can promise it."""
    try:
        os.posix_fallocate(descriptor, 0, max(1, size))
    except OSError as error:
        if error.errno in _FULL:
            raise


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def not_written(path: Path, error: OSError) -> PreconditionError:
    """Return the error about a file that could not be written."""
    hint = "free some space, or name another place" if error.errno in _FULL else None
    return PreconditionError(f"cannot write {path}: {error.strerror}", hint=hint)


def write_page(path: Path, page: "ReportPage") -> None:
    """Write a page with its pictures as one HTML file, and say where it is."""
    from virtune.flows.reports.report import page_html

    write_text(path, page_html(page))
    click.echo(f"page: {path}", err=True)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Yield a file that may be replaced, open and as it is."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise not_written(path, error) from None
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


BREACHED, UNDECIDED = 4, 5
"""Exit codes; see docs/reference/exit-codes.md."""

STDOUT = "-"
MARKDOWN_HELP = "Write the result as Markdown, e.g. for a pull request."


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultOutput:
    """What one call wants of its result: the conditions it is judged by, where it is written, and how much is said.

    `wait_quiet`: for how many seconds it may wait for a quiet host.
    `quiet` says nothing of its progress; `verbose` says more of it, and shows the whole result after a run.
    """

    conditions: "tuple[Threshold, ...]" = ()
    as_json: bool = False
    report: Path | None = None
    markdown: str | None = None
    junit: Path | None = None
    wait_quiet: float | None = None
    quiet: bool = False
    verbose: bool = False

    @classmethod
    def read(cls, words: dict[str, Any]) -> "ResultOutput":
        """Read it from what click parsed, and take the conditions out of that; raises where a file cannot be
        written.
        """
        from virtune.plan.goal import parse_conditions

        if conditions := words.pop("fail_if", ()):
            from virtune.flows.reports.report import conditions_of

            conditions = conditions_of(conditions)  # published service levels written out
        said = {one.name: words[one.name] for one in fields(cls) if words.get(one.name) is not None}
        out = cls(conditions=parse_conditions(conditions), **said)
        if out.junit is not None and not out.conditions:
            raise UsageError("--junit needs at least one --fail-if", hint="`--fail-if 'latency.p99 > +5%'`")
        if out.markdown == STDOUT and out.as_json:
            raise UsageError("--json and --markdown - both write to stdout", hint="`--markdown FILE`")
        require_report(out.report)
        for one in (out.junit, None if out.markdown in (None, STDOUT) else Path(str(out.markdown))):
            if one is not None:
                require_writable(one)
        return out

    @property
    def stdout_alone(self) -> bool:
        """Whether the result goes to stdout only, and nothing is asked of it."""
        return not self.conditions and self.report is None and self.markdown is None and self.junit is None

    def rulings(self, record: "StudyRecord") -> "tuple[ThresholdResult, ...]":
        """Judge the conditions by the measurements."""
        if not self.conditions:
            return ()
        from virtune.analyse.study.thresholds import rule

        return rule(record, self.conditions)


def write_markdown(target: str, text: str) -> None:
    """Write Markdown to a file, or to stdout for `-`."""
    if target == STDOUT:
        click.echo(text, nl=False)
    else:
        write_text(Path(target), text)


def exit_code(outcomes: "Collection[Outcome]") -> int:
    """Return the exit code: a breach takes precedence over an undecided condition."""
    from virtune.model.verdict import Outcome

    if Outcome.BREACHED in outcomes:
        return BREACHED
    return UNDECIDED if Outcome.UNDECIDED in outcomes else 0


threshold_options = adding(
    study_option("fail_if", "compare"),
    click.option("--markdown", metavar="FILE|-", help=MARKDOWN_HELP),
    click.option("--junit", type=click.Path(path_type=Path, dir_okay=False),
                 help="Write JUnit XML: one test for each condition, workload and arm."),
)  # fmt: skip
"""--fail-if, --markdown and --junit."""
