# SPDX-License-Identifier: Apache-2.0
"""The plain report: a result with everything that is known of it."""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from rich.console import Group, RenderableType
from rich.text import Text

from virtune.model.durability import durability_of
from virtune.model.evidence import StudyRecord
from virtune.model.metric import BY_ID
from virtune.model.published import PublishedStudy
from virtune.model.result import Result
from virtune.model.study import Study
from virtune.model.text import format_ns, format_seconds, format_share
from virtune.model.tuning import Spelled, Tuning
from virtune.model.workload import Workload
from virtune.report.pages import evidence, tune
from virtune.report.pages import result as results
from virtune.report.pages.builtin import ending
from virtune.report.pages.study import all_checks, host_text, option_lines, time_words
from virtune.report.render import terminal
from virtune.report.words import methods_text, quantity

REFERENCE = "The result ends here. What follows is its evidence, to look things up and to check them."
"""What stands between what a reader of a report needs, and what proves it."""

_HOST_TITLE = "host: what virtune found on it before the study, as JSON"
_OPTIONS_TITLE = "options: their values, and where each came from"


def plain_report(result: Result, record: StudyRecord, published: PublishedStudy | None = None) -> RenderableType:
    study = result.study
    stacks = [arm.stack for arm in study.arms if arm.stack.kind.made_here]
    promises = dict.fromkeys(durability_of(stack).promise for stack in stacks)
    meanings = [Text(f"durability {promise}: {promise.words}") for promise in promises]
    correlations = filter(None, map(evidence.correlation_text, result.basis))
    return Group(
        results.render(result, record.facts, first=ending(result, published, record.facts)),
        Text(f"\n{REFERENCE}"),
        *_section("single rounds", _rounds(result, record)),
        *_section("verified settings, check by check", all_checks(result)),
        *_section("how it was measured", _joined(_method(result, record), correlations)),
        *_section(_OPTIONS_TITLE, _joined(option_lines(study))),
        *_section("arms: what was asked of each", Group(_arms_asked(study), *meanings)),
        *_section("workloads: their fio jobs", _joined(*map(_jobs, study.workloads))),
        *_section(_HOST_TITLE, Text(host_text(record.facts))),
    )


def plain_search(known: Tuning, facts: str, written: Sequence[Spelled]) -> RenderableType:
    """Return the whole report of a search; `written` is its winner."""
    parts: list[RenderableType] = [tune.render(known, facts)]
    for one in written:
        lines = "\n".join([one.text, *(f"note: {note}" for note in one.notes)]).strip()
        parts += _section(one.title, Text(lines, no_wrap=True, overflow="ignore"))
    options = _section(_OPTIONS_TITLE, _joined(option_lines(known.study)))
    return Group(*parts, *options, *_section(_HOST_TITLE, Text(host_text(facts))))


def _joined(*lines: Iterable[str]) -> Text:
    return Text("\n".join(itertools.chain(*lines)))


def _section(title: str, body: RenderableType) -> tuple[RenderableType, RenderableType]:
    return Text(f"\n{title}\n{'-' * len(title)}"), body


def _rounds(result: Result, record: StudyRecord) -> terminal.Table:
    study = result.study
    measured_as = (value.measured for one in result.arms for value in one.values if value.metric == study.metric)
    metric = next(measured_as, BY_ID[study.metric])
    table = terminal.Table([f"{metric.label}: workload", *terminal.right("round", *(arm.name for arm in study.arms))])
    found = {(t.trial.workload, t.trial.round, t.trial.arm): t for t in record.trials}
    for workload in study.workloads:
        for number in range(1, (study.rounds_begun or study.rounds) + 1):
            cells = []
            for arm in study.arms:
                trial = found.get((workload.name, number, arm.name))
                measured = None if trial is None or trial.measurement is None else trial.measurement.get(metric.id)
                cells.append("-" if measured is None else quantity(metric, measured))
            table.add_row(workload.name, str(number), *cells)
    return table


def _method(result: Result, record: StudyRecord) -> Iterator[str]:
    study = result.study
    if study.imported:
        yield from evidence.imported_method(study)
        return
    trials = study.trials_text(result.trials_done, finished=result.finished)
    yield f"virtune's {methods_text(record.methods)}; {trials} trials, each of"
    yield f"{time_words(study)} after {format_seconds(study.ramp_seconds)} of warm-up."
    yield "Every round runs every arm under every workload once, in a new random order (the seed is above);"
    yield "each trial starts and stops its stack, and begins with the image dropped from the page cache."
    yield from _changeovers(record)
    yield "A difference is a mean of the logarithms of the ratios within rounds, never computed from the number of"
    yield f"I/Os. 'same' means: the whole interval lies within a factor of {1 + study.margin:g}, up or down."
    if len(study.arms) > 1:
        yield from _decided(study)
    if result.typical:
        yield f"The table's values are of a typical round: {results.level_words(study)}."
        yield "A plain mean over all rounds would differ from the verdicts where some rounds were disturbed."
    yield "Percentiles of all rounds together come from the load's histograms, added over rounds, never from a mean;"
    yield "~ marks one with fewer than 100 I/Os beyond it."


def _decided(study: Study) -> Iterator[str]:
    """Say how its verdicts come about; docs/method.md has it at length."""
    shared = "Bonferroni over all pairs" if study.pairs == "all" else f"Dunnett: every arm against {study.baseline}"
    metrics = ", ".join(BY_ID[metric].label for metric in study.judged)
    yield f"Verdicts on {metrics} hold together at {format_share(study.confidence)} ({shared},"
    yield "and Bonferroni over workloads and metrics), and a sign test must agree; the intervals of all other metrics"
    yield f"hold at {format_share(study.confidence)} each."
    if not study.sequential:
        yield "The number of rounds was fixed beforehand, so the intervals are Student's t."
        return
    first = study.fewest_rounds
    yield f"The verdicts were looked at after every round from round {first} on, and the allowed error is spread"
    yield "over these looks up to the planned end (Lan and DeMets), so that all together keep it. Intervals are"
    yield "robust against single dips (Huber's weights), take the noise of each arm from all pairs, and are wider"
    yield "where consecutive rounds are correlated. docs/method.md has the sources."


def _changeovers(record: StudyRecord) -> Iterator[str]:
    ways = [trial.in_force.changeover for trial in record.trials if trial.in_force.changeover is not None]
    swaps = [way for way in ways if way.swapped is not None]
    if swaps:
        took = f"{format_ns(median(way.seconds for way in swaps) * 1e9)} (median)"
        yield f"{len(swaps)} of {len(ways)} trials were switched within a running process, in {took}."
    for why, count in Counter(way.why for way in ways if way.swapped is None).items():
        yield f"New processes: {count} ({why})."


def _arms_asked(study: Study) -> terminal.Table:
    table = terminal.Table(["", *terminal.wide(""), ""])
    for arm in study.arms:
        known, settings, silent = "", arm.options, "its files do not say"
        if arm.stack.kind.made_here:
            known = f"durability: {durability_of(arm.stack).promise.value}"
            settings, silent = (*arm.settings, *arm.options), f"rig={arm.stack.rig}, everything else default"
        told = ", ".join(f"{name}={value}" for name, value in settings)
        table.add_row(Text(arm.name, style="bold"), told or silent, known)
    return table


def _jobs(workload: Workload) -> Iterator[str]:
    yield f"{workload.name}: {workload.meaning}"
    for job in workload:
        yield f"  [{job.name}] " + " ".join(f"{name}={value}" for name, value in job.options)
