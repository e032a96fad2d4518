# SPDX-License-Identifier: Apache-2.0
"""Where the result of a call goes, and the options for CI: conditions with an exit code, Markdown, JUnit."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virtune.cli.common.options import study_option
from virtune.cli.common.writing import require_report, require_writable, write_text
from virtune.model.errors import UsageError

if TYPE_CHECKING:
    from virtune.model.evidence import StudyRecord
    from virtune.model.result import Result
    from virtune.model.verdict import Threshold, ThresholdResult

BREACHED, UNDECIDED = 4, 5
"""Exit codes; see docs/reference/exit-codes.md."""

STDOUT = "-"
MARKDOWN_HELP = "Write the result as Markdown, e.g. for a pull request."


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultOutput:
    """What one call wants of its result: the conditions it is judged by, where it is written, and how much is said.

    `quiet` says nothing of its progress; `verbose` says more of it, and shows the whole result after a run.
    """

    conditions: "tuple[Threshold, ...]" = ()
    as_json: bool = False
    report: Path | None = None
    markdown: str | None = None
    junit: Path | None = None
    quiet: bool = False
    verbose: bool = False

    @classmethod
    def read(cls, words: dict[str, Any]) -> "ResultOutput":
        """Read it from what click parsed, and take the conditions out of that; raises where a file cannot be
        written.
        """
        from virtune.plan.goal import parse_conditions

        out = cls(
            conditions=parse_conditions(_written_out(words.pop("fail_if", ()))),
            as_json=bool(words.get("as_json")),
            report=words.get("report"),
            markdown=words.get("markdown"),
            junit=words.get("junit"),
            quiet=bool(words.get("quiet")),
            verbose=bool(words.get("verbose")),
        )
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

    @property
    def silent(self) -> bool:
        """Whether nothing is to be said beside the result."""
        return self.as_json or self.verbose or self.quiet

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
    from virtune.flows.reports.report import conditions_of

    return conditions_of(words)


def write_markdown(target: str, text: str) -> None:
    """Write Markdown to a file, or to stdout for `-`."""
    if target == STDOUT:
        click.echo(text, nl=False)
    else:
        write_text(Path(target), text)


def exit_code(rulings: "tuple[ThresholdResult, ...]") -> int:
    """Return the exit code: a breach takes precedence over an undecided condition."""
    from virtune.model.verdict import Outcome

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
