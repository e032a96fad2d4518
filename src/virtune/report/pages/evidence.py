# SPDX-License-Identifier: Apache-2.0
"""The evidence behind verdicts in words: rounds, noise, time, what disturbed trials, how to read the figures."""

import math
import re
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from virtune.model.durability import durability_of
from virtune.model.metric import BY_ID
from virtune.model.reason import Reason
from virtune.model.remark import GATE_BY_ID, Weight, label_of
from virtune.model.result import ArmRemark, ArmSummary, Basis, Drift, Result, Stopped
from virtune.model.study import RunOrder, Study
from virtune.model.study_options import Provenance, Takes, value_text
from virtune.model.text import format_bytes, format_seconds, format_share
from virtune.model.verdict import ROUNDS_MIN, SIBLINGS_MIN, Comparison, RunDrift, Verdict
from virtune.model.workload import Workload
from virtune.report.render.terminal import WEIGHT_STYLE, section
from virtune.report.words import (
    TOO_FEW,
    change_words,
    count_text,
    cut_text,
    difference_text,
    estimate_text,
    names_text,
    percent_text,
    share_text,
)

NOISY_SECONDS = 3600.0
"""If deciding the rest would take longer than this, it is said how much the rounds vary, and no time."""

DRIFT_TOLD = 1.0
"""A drift with a wider interval than this (100 % a minute) only shows that the rounds are too few."""

DRIFT_WARNED = 0.1
"""If a study's metric rose or fell by more than this while it ran, that is a warning: the arms' own values then are
those of no one moment.
"""

_DRIFTS_TOLD = 3
"""The most pairs of arms of which a drift from run to run is told."""

STARTS_TOLD = 3
"""Fewer starts tell nothing of how much starts differ."""

_GROUPS_TOLD, _NAMES_TOLD = 3, 5
"""The most groups of arms whose starts are told apart, and the most names of each."""

FEWEST_TOLD = 1.5
"""An effective sample size below this is not shown."""


def stopped_text(result: Result) -> str:
    if result.stopped is None:
        return ""
    if result.stopped is Stopped.DECIDED and any(one.verdict is Verdict.UNDECIDED for one in result.verdicts):
        return "stopped: more rounds alone would decide nothing more"
    if result.stopped is Stopped.DECIDED:
        pairs = "every pair of arms" if result.study.pairs == "all" else f"every arm against {result.study.baseline}"
        # one whose percentile has too few I/Os stays undecided however many rounds there are
        others = ", and every --fail-if condition that more rounds can decide" if result.study.conditions else ""
        return f"stopped: {pairs} is decided{others}"
    if result.stopped is Stopped.ROUNDS:
        return "stopped: --rounds reached"
    room = result.study.budget_seconds
    why = "" if room is None else f" (another round and its repeats may exceed {format_seconds(room)})"
    return f"stopped: time budget reached{why}"


def resting_on(result: Result, workload: Workload) -> Iterator[str]:
    """Yield the lines on the evidence behind one workload's verdicts."""
    found = [one for one in result.verdicts if one.workload == workload.name]
    if found and workload == result.study.compared[0]:
        share = result.study.margin
        margin = format_share(share, 0 if share * 100 == round(share * 100) else 1)
        yield (
            "better, worse: the whole interval is on that side of 0; same: it lies within the margin of"
            f" {margin} (--margin); undecided: neither"
        )
    if decided := [one for one in found if one.verdict is not Verdict.UNDECIDED]:
        right = "all verdicts together are right" if len(found) > 1 else "this verdict is right"
        few = [one.starts for one in result.basis if one.workload == workload.name and 0 < one.starts < STARTS_TOLD]
        start = f" for {'this start' if few == [1] else 'these starts'} of QEMU" if few else ""
        sure = f"with {format_share(result.study.confidence)} confidence"
        if result.study.imported:  # runs from elsewhere were not in turn: no interval knows what changed between them
            yield f"if nothing but the change differed between the runs, {right} {sure}"
        else:
            yield f"{sure} {right}{start}"
            # a verdict of few rounds says it itself
            if rounds := [one.rounds for one in decided if one.reason is not Reason.FEW_ROUNDS]:
                yield (
                    f"no interval shows what an arm does more rarely than once in {min(rounds)} rounds, or a level"
                    " that it keeps for longer than these"
                )
            for one in (one for one in found if one.unsure):
                yield f"{one.candidate} against {one.baseline}, {one.measured.label}: {one.why}"
    for basis in (one for one in result.basis if one.workload == workload.name):
        yield _noise(basis, result.study, [one.rounds for one in found])
        yield from steadiness(basis, result.study, drift=not _drifts(result, basis))
        if not result.study.imported:
            yield checked_text(result.study)
        yield from what_deciding_takes(result, basis)


def _noise(basis: Basis, study: Study, used: Sequence[int]) -> str:
    """Say on how many rounds verdicts rest, and how much their ratios vary; pairs differ in the rounds that count."""
    least, most, ran = min(used), max(used), study.rounds_begun or study.rounds
    several = f"{least} to {most}" if least < most else f"{most}"
    told = (
        f"{count_text(ran, 'round')}, in each of which every arm ran"
        if least == most == ran
        else f"each verdict rests on {several} of {count_text(ran, 'round')}: those in which both of its arms"
        " gave a result that was not disturbed"
    )
    if basis.noise is None:
        return told
    return f"{told}; differences vary from round to round by {share_text(basis.noise)} (standard deviation)"


def steadiness(basis: Basis, study: Study, *, drift: bool = True) -> Iterator[str]:
    """Yield how stationary the host was, a line for each thing; `drift` is left out where a warning says it."""
    few = basis.effective is not None and basis.lag1 is not None and basis.effective < FEWEST_TOLD
    if few:
        yield f"effective sample size: {TOO_FEW}"
    elif basis.effective is not None and basis.lag1:
        yield (
            f"effective sample size: {basis.effective:.0f} of {count_text(basis.rounds, 'round')}: they may resemble"
            f" their neighbours (lag-1 autocorrelation up to {basis.lag1:.2f}); the intervals are wider for it"
        )
    if drift and basis.drift is not None:
        yield drift_text(basis.drift, BY_ID[study.metric].label)
    if 0 < basis.starts < STARTS_TOLD:
        # an existing VM is never restarted, and a search decides by itself what it starts anew
        offered = study.search is None and not all(arm.stack.kind.users_guest for arm in study.arms)
        includes = " (--restart starts it for each trial)" if offered else ""
        told = f"what another start would change is not in the intervals{includes}"
        yield f"QEMU was started {_starts_text(basis)}; {told}"
    elif basis.start_spread is not None:
        varied = f"standard deviation {share_text(basis.start_spread)}" if basis.start_spread else "none detected"
        yield f"QEMU was started {_starts_text(basis)}; variation between these starts, over all arms: {varied}"


def _starts_text(basis: Basis) -> str:
    """Say how often QEMU was started, and for which arms, where these did not share one process."""
    if not 1 < len(basis.started) <= _GROUPS_TOLD:
        return _times(basis.starts)
    return " and ".join(f"{_times(count)} for {names_text(arms, _NAMES_TOLD)}" for arms, count in basis.started)


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def drift_text(drift: Drift, what: str = "IOPS") -> str:
    """Say whether and how much the host became faster or slower; that the rounds are too few, where they are."""
    if drift.high - drift.low > DRIFT_TOLD:
        return f"drift: {TOO_FEW}"
    if drift.low <= 0 <= drift.high:
        none = max(-drift.low, drift.high) <= DRIFT_WARNED
        ends = f"between {change_words(1 + drift.low)} and {change_words(1 + drift.high)} a minute"
        return f"no drift detected: {what} {ends}" if none else f"drift: {what} {ends} (too short to tell)"
    moved, low, high = (percent_text(1 + one) for one in (drift.per_minute, drift.low, drift.high))
    return f"{what} changed by {moved} % [{low}, {high}] a minute (compounded) while this was measured"


def drift_warnings(result: Result) -> Iterator[str]:
    """Yield a warning for each workload under which the host clearly became faster or slower, and what it means."""
    study, seconds = result.study, result.elapsed_seconds
    for basis in result.basis:
        if basis.drift is None or seconds is None or not _drifts(result, basis):
            continue
        told = drift_text(basis.drift, f"{BY_ID[study.metric].label} of all arms")
        of_load = f" under {basis.workload}" if len(study.compared) > 1 else ""
        each = format_seconds(seconds / max(1, study.rounds_begun or basis.rounds))
        yield (
            f"{told}{of_load}. Arms are compared within rounds of {each}, in random order: no arm gains from it, and"
            " what it adds to the noise is in the intervals"
        )
    drifting = [(one, one.drift) for one in result.verdicts if one.drift is not None]
    yield from (_run_drift(one, drift, study) for one, drift in drifting[:_DRIFTS_TOLD])
    if (more := len(drifting) - _DRIFTS_TOLD) > 0:
        yield f"drift: {count_text(more, 'more pair')} of arms changed so from run to run"


def _run_drift(found: Comparison, drift: RunDrift, study: Study) -> str:
    each, low, high = (percent_text(1 + value) for value in (drift.per_run, drift.low, drift.high))
    of_load = f" under {found.workload}" if len(study.compared) > 1 else ""
    told = (
        f"drift: {found.measured.label} within {found.baseline} and within {found.candidate}{of_load} changed by"
        f" {each} % [{low}, {high}] a run, in order of time"
    )
    if not drift.apart:
        return f"{told}; that is taken out of their difference"
    whole = "" if found.change is None else f" of the {change_words(found.change)}"
    return (
        f"{told}; carried on, that alone makes {change_words(drift.carried)}{whole} between them, and leaves"
        f" {difference_text(drift.rest)}. Runs taken in turn have it in both arms alike"
    )


def _drifts(result: Result, basis: Basis) -> bool:
    """Whether a host clearly became so much faster or slower while a study ran that it is a warning."""
    drift, seconds = basis.drift, result.elapsed_seconds
    if drift is None or seconds is None or drift.high - drift.low > DRIFT_TOLD or drift.low <= 0 <= drift.high:
        return False
    return abs(math.log1p(drift.per_minute)) * seconds / 60 > math.log1p(DRIFT_WARNED)


def correlation_text(basis: Basis) -> str:
    """Say for how long a trial's values resemble one another; empty where that is unknown."""
    if basis.correlation_seconds is None:
        return ""
    least = "at least " if basis.correlation_open else ""
    return (
        f"Values closer than {least}{format_seconds(basis.correlation_seconds)} resemble one another"
        f" (autocorrelation time, {basis.workload}), so a trial counts as one observation."
    )


def checked_text(study: Study) -> str:
    found = study.checked
    if found is None:
        return "is this host fit? `virtune host check` tells (not run here in the last 24 h)"
    ends = ""
    if found.low is not None and found.high is not None:
        ends = f" [{change_words(found.low)}, {change_words(found.high)}]"
    told = f"`virtune host check` ({found.study}) compared one arm with itself"
    if found.verdict in (Verdict.SAME, Verdict.UNDECIDED):
        return f"{told}: no false difference{ends}"
    return f"{told}: a false difference{ends}, so distrust all verdicts"


def what_deciding_takes(result: Result, basis: Basis) -> Iterator[str]:
    """Say what deciding the rest would take; a study whose rounds were fixed cannot go on."""
    if not result.study.sequential or basis.seconds_left == 0 or basis.noise is None:
        return
    open_ones = (one for one in result.verdicts if one.verdict is Verdict.UNDECIDED)
    reasons = {one.reason for one in open_ones if one.workload == basis.workload}
    if basis.seconds_left is None:
        few = "too few rounds count: a longer --budget, or a quieter host, decides"
        yield few if reasons == {Reason.TOO_FEW} else "more rounds will not decide the rest at this noise"
    elif basis.seconds_left > NOISY_SECONDS:
        host = " (is it the host? `virtune host check`)"
        if (check := result.study.checked) is not None:  # it has a load of its own, and may call the host fit
            host = f" (`virtune host check` {check.study} tells of its own load, and not of this one)"
        vary = f"differences of {basis.workload} vary by {share_text(basis.noise)} from round to round"
        yield f"{vary}: deciding the rest would take more than an hour{host}"
    else:  # its error is spent, so a longer plan needs a new study
        whole = value_text(Takes.TIME, math.ceil(basis.seconds_left + (result.elapsed_seconds or 0.0)))
        # which option of the command would bound its rounds beside a budget
        typed = {one.name: one.value for one in result.study.options if one.source is Provenance.FLAG}
        bound = "--quick" if typed.get("quick") == "yes" else "--rounds" if "rounds" in typed else ""
        yield f"run again with --budget {whole}{bound and ', not '}{bound}: 90 % likely to decide the rest"


def loaded_by(result: Result) -> Iterator[str]:
    """Say which arms on this host were loaded by which program, if they differ."""
    ways: dict[str, dict[str, None]] = {}
    for summary in result.arms:
        stack = result.study.arm(summary.arm).stack
        way = {"file": "metal", "export": stack.export}.get(stack.kind.front)
        if way is not None and summary.rounds:  # in a guest its own program loads the disk
            for program in programs_of([summary]) or {"fio"}:
                ways.setdefault(program, {})[way] = None
    if len(ways) > 1:
        told = "; ".join(f"{', '.join(found)} by {program}" for program, found in ways.items())
        # measured on one file in alternation: see benchmarks/loadgen.md
        yield f"loaded by different programs: {told}; on one file the two agree to about 3 %"


def programs_of(arms: Sequence[ArmSummary]) -> set[str]:
    """Return the programs that loaded these arms, as far as the trials noted them."""
    return {one.found for arm in arms for one in arm.in_force if one.setting == "load.program" and one.found}


_SHOWN_MAX = 60


def imported_headline(result: Result) -> Text:
    study, total = result.study, len(result.study.trials)
    runs = "one run" if study.rounds == 1 else f"up to {study.rounds} runs"
    own = " and ".join(dict.fromkeys(study.sources))
    whence = f"of {own}" if own else "measured elsewhere and imported"
    return Text.assemble(
        (f"{study.kind} {study.id}" if study.id else "comparison (not stored)", "bold"),
        (f"  {result.trials_done} of {total} results", "" if result.trials_done == total else "yellow"),
        f"\n{study.words}" if study.words else "",
        f"\n{runs} of each arm and workload, {whence}",
    )


def imported_limits(study: Study) -> str:
    """Say in a line what limits results that were not measured in turn: of those of virtune's own studies what else
    is not the same, the versions and settings first.
    """
    if not study.sources:
        paired = " and paired by their times" if study.paired else ""
        turn = f", {_order_words(study)}{paired}" if len(study.arms) > 1 else ""
        return f"measured elsewhere{turn}; no setting was verified"
    if study.differing is None:
        return "not measured in turn, and what changed on the host between them is not known"
    if not study.differing:
        return "not measured in turn; no fact of the host differs between them"
    first = [one for one in study.differing if "absent" not in one[1] and one[0].endswith(_TELLING)]
    first += [one for one in study.differing if one[0].startswith(_SETTING) and one not in first]
    if not first:
        return f"not measured in turn; {count_text(len(study.differing), 'fact')} of the host changed (-v)"
    shown = first[:_DIFFERING_MAX]
    told = [_differs(" ".join(name.removeprefix(_SETTING).split(".")[-2:]), values) for name, values in shown]
    more = len(study.differing) - len(shown)
    rest = f" and {count_text(more, 'more fact')} (-v)" if more else ""
    return f"not measured in turn, and not alike: {'; '.join(told)}{rest}"


_SETTING, _TELLING, _DIFFERING_MAX = "setting.", ("version", "release", "model", "scheduler", "governor"), 3


def _differs(name: str, values: Sequence[str]) -> str:
    return f"{name} {' -> '.join(cut_text(one, _SHOWN_MAX) for one in values)}"


def imported_notes(study: Study) -> Iterator[str]:
    """Return the notes on figures that were not measured in turn, or not by virtune itself."""
    if len(study.arms) > 1:
        yield _taken(study)
        yield from other_options(study)
    if study.differing:
        told = (_differs(name, values) for name, values in study.differing)
        yield f"what is not the same in {' and '.join(study.arm_names)}: {'; '.join(told)}"
    if study.told_by:
        yield f"what such runs usually vary by is told by {', '.join(study.told_by)}"
    if not study.sources:
        yield "virtune did not verify the settings of these runs, nor what else used the host meanwhile"


def _taken(study: Study) -> str:
    """Say in which order the arms ran, and what that leaves in the differences."""
    if study.order is RunOrder.IN_TURN:
        so = "the next one of each arm are a round" if study.paired else f"{ROUNDS_MIN} of each arm would be paired"
        return f"by the times in their files the runs were taken in turn: {so}"
    so = "the differences include other changes on their hosts between the runs"
    if study.sources:
        knows = "of which the intervals know no more than what such runs usually vary by"
        return f"the arms did not run in turn: {so}, {knows}"
    return f"by the times in their files, {_order_words(study)}: {so}, and the intervals do not"


def _order_words(study: Study) -> str:
    return (study.order or RunOrder.UNKNOWN).replace("-", " ")


def other_options(study: Study) -> Iterator[str]:
    """Name the options in which arms that were not measured in turn differ, besides those of their workloads."""
    if different := _different(study, shape=False):
        yield f"the arms differ in other options: {'; '.join(different)}"


def imported_warnings(study: Study) -> Iterator[str]:
    if different := _different(study, shape=True):
        yield f"the jobs differ, so a difference may be theirs and not the arms': {'; '.join(different)}"


def imported_method(study: Study) -> Iterator[str]:
    if study.sources:
        yield "The results are those of studies that were measured one after the other."
    else:
        yield "The results were measured elsewhere; their raw files are stored unchanged. Figures are derived from"
        yield "fio's output by the same rules as virtune's own."
    if study.paired:
        yield "The runs were taken in turn, by the times in their files, so the next one of each arm are a round. A"
        yield "difference is a mean of the logarithms of the ratios within rounds. 'same' means: the whole interval"
        yield f"lies within a factor of {1 + study.margin:g}."
        return
    yield "Runs of one arm are repeats; no run of one arm belongs to a run"
    yield "of another. A difference is that of the means of logarithms; its interval is Welch's, which lets the arms"
    yield "spread differently, and a rank test (Mann-Whitney) must agree. Neither knows what changed on the hosts"
    yield f"between the arms' runs. 'same' means: the whole interval lies within a factor of {1 + study.margin:g}."
    if study.sources:
        yield "The interval is no narrower than what studies of the baseline's question in this store differ by among"
        yield f"themselves, those that are compared with it aside; with fewer than {SIBLINGS_MIN} there is none."
        yield "Where three lead up to the baseline none after it counts, nor a calm one far from those before it."


_OF_THE_LOAD = frozenset({
    "size", "filesize", "nrfiles", "offset", "io_size", "number_ios", "direct", "buffered", "latency_target",
})  # fmt: skip
"""Options of a whole arm that say what is loaded, and how hard: two such jobs are two loads."""


def _different(study: Study, *, shape: bool) -> list[str]:
    """Name each option in which the arms' jobs differ, with the value of each arm: those that belong to a workload
    (`randread: iodepth`), its shape, and those of what is loaded, or the others. Seeds differ by nature.
    """
    said, found = {arm.name: dict(arm.options) for arm in study.arms if arm.options}, []
    two_programs = any("program" in options for options in said.values())
    for name in dict.fromkeys(key for options in said.values() for key in options if key != "randseed"):
        values = {arm: options.get(name, "not shown") for arm, options in said.items()}
        # what only one of two programs tells of its load is no known difference
        untold = two_programs and {"not shown", "not known"} & {*values.values()}
        of_load = name in _OF_THE_LOAD and not untold
        if len(set(values.values())) > 1 and (": " in name or of_load) == shape:
            shown = (f"{arm}: {cut_text(value, _SHOWN_MAX)}" for arm, value in values.items())
            found.append(f"{name} ({', '.join(shown)})")
    return found


WORD = {Weight.INVALID: "disturbed", Weight.WARNING: "warning"}
"""The label of each weight; a trial with the first is repeated."""

_MEDIAN_OF = 3
"""Of fewer trials than this a median says nothing."""


def notes(result: Result) -> list[RenderableType]:
    styles = {word: WEIGHT_STYLE[weight] for weight, word in WORD.items()} | {"failed": "red"}
    said = [(word, styles.get(word, "yellow"), text, "") for word, text in warning_lines(result)]
    said += [("note", "dim", text, "dim") for text in note_lines(result)]
    lines = (Text.assemble((f"{word}: ", style), (text, quiet)) for word, style, text, quiet in said)
    return section("warnings and notes", lines)


def warning_lines(result: Result) -> Iterator[tuple[str, str]]:
    """Yield every warning of a result with the word before it, the worst first: the same in every output."""
    for weight in (Weight.INVALID, Weight.WARNING):
        yield from ((WORD[weight], text) for text in warnings(result, weight))
    yield from (("warning", text) for text in (*result.caveats, *drift_warnings(result)))
    yield from (("trials", text) for text in rejections(result))
    for summary in result.arms:
        yield from (("failed", f"{summary.arm}, {summary.workload}: {reason}") for reason in summary.failures)
    if result.study.imported:
        yield from (("warning", text) for text in imported_warnings(result.study))


def note_lines(result: Result) -> Iterator[str]:
    yield from result.study.likeness
    yield from result.patterns
    for workload in dict.fromkeys(one.workload for one in result.knees):
        told = (f"{one.arm} {estimate_text(one.knee)}" for one in result.knees if one.workload == workload)
        yield f"knee of {workload}, beyond which more load adds more latency than throughput: {'; '.join(told)}"
    yield from reading_notes(result.study)
    yield from loaded_by(result)


def count_words(result: Result) -> str:
    """Count what stands below a result, by its label; notes on how to read it are not counted."""
    found = [len(list(warnings(result, weight))) for weight in (Weight.INVALID, Weight.WARNING)]
    found[1] += len(result.caveats) + len(list(drift_warnings(result)))
    words = [count_text(count, word) for count, word in zip(found, ("disturbance", "warning"), strict=True) if count]
    return " and ".join(words)


def warnings(result: Result, weight: Weight) -> Iterator[str]:
    out = ", left out of the comparison" if weight is Weight.INVALID and len(result.study.arms) > 1 else ""
    for same in by_kind(result, weight).values():
        yield _worst(same, _whose(result, same) + out)


def _whose(result: Result, same: Sequence[tuple[ArmSummary, ArmRemark]]) -> str:
    """Say in how many rounds of each arm a remark was made; of each workload where there are several."""
    several = len(result.study.workloads) > 1
    counts: dict[str, list[tuple[str, str]]] = {}
    for summary, remark in same:
        count = f"{remark.rounds} of {count_text(summary.rounds, 'round')}"
        counts.setdefault(summary.arm, []).append((summary.workload, count))
    every = {count for found in counts.values() for _, count in found}
    if len(counts) == len(result.study.arms) > 1 and not several and len(every) == 1:
        return f"every arm in {every.pop()}"
    words = []
    for arm, found in counts.items():
        alike = len(found) == len(result.study.workloads) and len({count for _, count in found}) == 1
        if several and alike:
            words.append(f"{arm} in {found[0][1]} of each workload")
        else:
            words += [f"{arm} in {count}{f' of {name}' if several else ''}" for name, count in found]
    return ", ".join(words)


_FIGURE = re.compile(r"(?<![\w=])\d")


def _worst(same: Sequence[tuple[ArmSummary, ArmRemark]], whose: str) -> str:
    """Return the remark of the worst trial, and behind it whose it is; of several trials whether it is the worst of
    them, and their median.
    """
    rounds = sum(one.rounds for _, one in same)
    summary, worst = max(same, key=lambda pair: pair[1].worst if pair[1].worst is not None else float("-inf"))
    if rounds < 2 or not _FIGURE.search(worst.remark.text):
        return f"{worst.remark.text} ({whose})"
    if worst.worst is None or worst.median is None:
        return f"{worst.remark.text} ({whose}; the figures are of {summary.arm})"
    gate = GATE_BY_ID.get(worst.remark.id)
    told = gate is not None and gate.unit == "share" and rounds >= _MEDIAN_OF
    middle = f", the median {share_text(worst.median)}" if told else ""
    return f"{worst.remark.text} ({whose}; this is the worst{middle})"


def rejections(result: Result) -> Iterator[str]:
    for workload in result.study.workloads:
        told, here = [], [one for one in result.arms if one.workload == workload.name]
        for summary in (one for one in here if one.invalid):
            causes = ", ".join(f"{label_of(cause)} in {count}" for cause, count in summary.invalid)
            number = max(count for _, count in summary.invalid)
            sure = len(summary.invalid) == 1 or number == summary.attempts
            of = count_text(summary.attempts, "trial")
            told.append(f"{summary.arm} {'' if sure else 'at least '}{number} of {of} ({causes})")
        if told:
            of_load = f" under {workload.name}" if len(result.study.workloads) > 1 else ""
            ran, again = sum(one.attempts for one in here), sum(map(repeats_of, here))
            used = sum(value.rounds for one in here if (value := one.get(result.study.metric)) is not None)
            repeats = f", {again} of them to repeat a disturbed or failed one" if again else ""
            yield f"{ran} ran{of_load}{repeats}; used: {used}; disturbed: {'; '.join(told)}"
    yield from (pardon.text for pardon in result.pardons)
    yield from (finding.text for finding in result.ramps)


def repeats_of(summary: ArmSummary) -> int:
    """Return how many trials of an arm were run again, because they were disturbed or failed."""
    return max(0, summary.attempts - summary.rounds - len(summary.failures))


def reading_notes(study: Study) -> Iterator[str]:
    """Yield the notes on the set-up that are needed to read the figures correctly."""
    if study.imported:
        yield from imported_notes(study)
        return
    yield from _export_notes(study)
    stacks = [arm.stack for arm in study.arms]
    if domains := dict.fromkeys(one.domain for one in stacks if one.domain and one.kind.users_guest):
        yield (
            f"measured in {', '.join(domains)} while it runs: its other work is part of the figures; each trial "
            "attached a scratch disk, and the VM's own disks were not touched"
        )
    if any(one.disk.cache in ("writeback", "writethrough", "unsafe") for one in stacks):
        yield (
            "arms with cache=writeback, writethrough or unsafe use the host's page cache; it is dropped before each "
            f"trial, but a span of {format_bytes(study.span_bytes)} fits into it, so it fills during the trial"
        )
    if study.at_load:
        yield (
            "at an offered load virtune-load counts latency from when an I/O was due, fio from when it was"
            " submitted; "
            "an arm that does less than 99 % of the load is saturated: its IOPS are what it carries, and its latency"
            " is that of a queue which fio keeps at its greatest depth and in which by virtune-load each I/O waits"
            " longer than the one before"
        )
    if any(job.get("fsync", "0") != "0" for workload in study.workloads for job in workload):
        yield "latencies are those of reads and writes; the time of a flush is extra, see `sync mean`"
    yield from _durability_notes(study)
    if any(arm.stack.disk.cache == "unsafe" for arm in study.arms):
        yield "cache=unsafe ignores flushes: it loses data when the host crashes, whatever its speed"


def _durability_notes(study: Study) -> Iterator[str]:
    """Warn where arms differ in the durability of a guest's writes: one of them then does less work."""
    found = [(arm.name, durability_of(arm.stack)) for arm in study.arms]
    if len({durability.promise for _, durability in found}) < 2:
        return
    words = dict.fromkeys(durability.words for _, durability in found)
    told = (f"{', '.join(name for name, one in found if one.words == said)}: {said}" for said in words)
    yield f"the arms differ in durability, so a faster one may only do less work: {'; '.join(told)}"


def _export_notes(study: Study) -> Iterator[str]:
    """Say what the export adds to the disk's figures."""
    metal = any(arm.stack.kind.front == "file" for arm in study.arms)
    exports = {arm.stack.export for arm in study.arms if arm.stack.kind.front == "export"}
    others = exports - {"vhost-user-blk"}
    if metal and others:
        way = "/".join(sorted(others)).upper()
        yield (
            f"arms over {way} include the cost of {way}, which a guest's virtio disk does not have, so against metal "
            "they look slower; with one another they compare fairly"
        )
    if len(exports) > 1:
        yield "arms with different exports differ by the cost of the exports too, not only by the disk's settings"


def by_kind(result: Result, weight: Weight) -> dict[str, list[tuple[ArmSummary, ArmRemark]]]:
    """Group the remarks of that weight by their kind, the arm with the most rounds first."""
    found: dict[str, list[tuple[ArmSummary, ArmRemark]]] = {}
    for summary in result.arms:
        for one in summary.remarks:
            if one.remark.weight is weight:
                found.setdefault(one.remark.id, []).append((summary, one))
    return {kind: sorted(same, key=lambda pair: -pair[1].rounds) for kind, same in found.items()}
