# SPDX-License-Identifier: Apache-2.0
"""The options for CI: conditions with an exit code, Markdown, JUnit."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virtune.cli.common.options import study_option
from virtune.cli.common.writing import require_writable, write_text
from virtune.model.errors import UsageError

if TYPE_CHECKING:
    from virtune.model.condition import Threshold, ThresholdResult
    from virtune.model.evidence import StudyRecord
    from virtune.model.result import Result

BREACHED, UNDECIDED = 4, 5
"""Exit codes; see docs/reference/exit-codes.md."""

STDOUT = "-"
MARKDOWN_HELP = "Write the result as Markdown, e.g. for a pull request."


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The conditions of one call, and the files for their results."""

    conditions: "tuple[Threshold, ...]" = ()
    markdown: str | None = None
    junit: Path | None = None

    @classmethod
    def read(cls, words: dict[str, Any]) -> "Thresholds":
        """Take its own out of what click parsed; looks at once whether its files can be written."""
        from virtune.plan.thresholds import parse_conditions

        thresholds = cls(
            conditions=parse_conditions(_written_out(words.pop("fail_if"))),
            markdown=words.pop("markdown"),
            junit=words.pop("junit"),
        )
        if thresholds.junit is not None and not thresholds.conditions:
            raise UsageError("--junit needs at least one --fail-if", hint="`--fail-if 'latency.p99 > +5%'`")
        require_outputs(thresholds.junit, thresholds.markdown, as_json=bool(words.get("as_json")))
        return thresholds

    def rulings(self, record: "StudyRecord") -> "tuple[ThresholdResult, ...]":
        """Judge the conditions by the measurements."""
        if not self.conditions:
            return ()
        from virtune.analyse.study.thresholds import rule

        return rule(record, self.conditions)

    def write(self, result: "Result", rulings: "tuple[ThresholdResult, ...]", facts: str) -> None:
        """Write the files that were asked for; `facts` are those of the host, as JSON."""
        if self.markdown is not None:
            from virtune.report.markdown import markdown

            write_markdown(self.markdown, markdown(result, rulings, facts))
        if self.junit is not None:
            from virtune.report.junit import junit

            write_text(self.junit, junit(result, rulings, facts))


def _written_out(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return conditions with those of published service levels in the place of their names."""
    if not words:
        return ()
    from virtune.flows.reports.published import conditions_of

    return conditions_of(words)


def require_outputs(path: Path | None, markdown: str | None, *, as_json: bool) -> None:
    """Raise where a file cannot be written, or where two things are to be written to stdout."""
    if markdown == STDOUT and as_json:
        raise UsageError("--json and --markdown - both write to stdout", hint="`--markdown FILE`")
    for one in (path, None if markdown in (None, STDOUT) else Path(str(markdown))):
        if one is not None:
            require_writable(one)


def write_markdown(target: str, text: str) -> None:
    """Write Markdown to a file, or to stdout for `-`."""
    if target == STDOUT:
        click.echo(text, nl=False)
    else:
        write_text(Path(target), text)


def exit_code(rulings: "tuple[ThresholdResult, ...]") -> int:
    """Return the exit code: a breach takes precedence over an undecided condition."""
    from virtune.model.condition import Outcome

    outcomes = {ruling.outcome for ruling in rulings}
    if Outcome.BREACHED in outcomes:
        return BREACHED
    return UNDECIDED if Outcome.UNDECIDED in outcomes else 0


def threshold_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --fail-if, --markdown and --junit."""
    options = (
        study_option("fail_if", "compare"),
        click.option("--markdown", metavar="FILE|-", help=MARKDOWN_HELP),
        click.option("--junit", type=click.Path(path_type=Path, dir_okay=False),
                     help="Write JUnit XML: one test for each condition, workload and arm."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command
