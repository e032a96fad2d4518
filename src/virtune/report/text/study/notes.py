# SPDX-License-Identifier: Apache-2.0
"""Warnings and notes below a result: what disturbed its trials, what failed, and how to read the figures."""

import re
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from virtune.model.durability import durability_of
from virtune.model.gate import GATE_BY_ID, label_of
from virtune.model.remark import Weight
from virtune.model.result import ArmRemark, ArmSummary, Result
from virtune.model.study import Study
from virtune.model.units import format_bytes
from virtune.report.text.layout import Paragraph
from virtune.report.text.study import imported
from virtune.report.text.study.basis import drift_warnings
from virtune.report.text.study.clients import loaded_by
from virtune.report.text.words import count_text, estimate_text, names_text, share_text

WORD = {Weight.INVALID: "disturbed", Weight.WARNING: "warning"}
"""The label of each weight; a trial with the first is repeated."""

WARNING_STYLE = {Weight.INVALID: "red", Weight.WARNING: "yellow"}

_MEDIAN_OF = 3
"""Of fewer trials than this a median says nothing."""


def notes(result: Result) -> list[RenderableType]:
    """Lay out the warnings and notes of a result: remarks of its rounds, failures, and how to read the figures."""
    styles = {WORD[weight]: style for weight, style in WARNING_STYLE.items()} | {"failed": "red"}
    lines = [_bullet(text, styles.get(word, "yellow"), word) for word, text in warning_lines(result)]
    lines += [_bullet(text, "dim", "note") for text in note_lines(result)]
    return [Text("\nwarnings and notes", style="bold"), *(_item(line) for line in lines)] if lines else []


def warning_lines(result: Result) -> Iterator[tuple[str, str]]:
    """Yield every warning of a result with the word before it, the worst first: the same in every output."""
    for weight in (Weight.INVALID, Weight.WARNING):
        yield from ((WORD[weight], text) for text in warnings(result, weight))
    yield from (("warning", text) for text in (*result.study.unequal_guests, *drift_warnings(result)))
    yield from (("trials", text) for text in rejections(result))
    for summary in result.arms:
        yield from (("failed", f"{summary.arm}, {summary.workload}: {reason}") for reason in summary.failures)
    if result.study.imported:
        yield from (("warning", text) for text in imported.warnings(result.study))


def note_lines(result: Result) -> Iterator[str]:
    """Yield what must be known to read the figures: what they show together, the set-up, which program loaded the
    disks.
    """
    yield from result.patterns
    yield from knee_notes(result)
    yield from reading_notes(result.study)
    yield from loaded_by(result)


def count_words(result: Result) -> str:
    """Say how many disturbances and warnings stand below a result, by their labels; notes on how to read it are not
    counted.
    """
    found = [len(list(warnings(result, weight))) for weight in (Weight.INVALID, Weight.WARNING)]
    found[1] += len(result.study.unequal_guests) + len(list(drift_warnings(result)))
    words = [count_text(count, word) for count, word in zip(found, ("disturbance", "warning"), strict=True) if count]
    return " and ".join(words)


def warnings(result: Result, weight: Weight) -> Iterator[str]:
    """Yield each kind of remark of that weight once: the worst of it, its median, and who it was said of how
    often.
    """
    for same in _by_kind(result, weight).values():
        yield _worst(same, _whose(result, same) + _left_out(result, weight))


def short_warnings(result: Result, weight: Weight) -> Iterator[str]:
    """Yield the same with one count: the worst of each kind, and a few of the arms that it was said of."""
    for same in _by_kind(result, weight).values():
        arms = dict.fromkeys(summary.arm for summary, _ in same)
        every = sum(one.rounds for one in result.arms if one.arm in arms)
        trials = f"{sum(one.rounds for _, one in same)} of {count_text(every, 'trial')}"
        whose = "all arms" if len(arms) == len(result.study.arms) > 1 else names_text([*arms], 3)
        yield _worst(same, f"{trials} of {whose}{_left_out(result, weight)}")


def _left_out(result: Result, weight: Weight) -> str:
    return ", left out of the comparison" if weight is Weight.INVALID and len(result.study.arms) > 1 else ""


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


def knee_notes(result: Result) -> Iterator[str]:
    """Yield where each arm's curve of offered loads bends: beyond it more load adds more latency than throughput."""
    for workload in dict.fromkeys(one.workload for one in result.knees):
        told = (f"{one.arm} {estimate_text(one.knee)}" for one in result.knees if one.workload == workload)
        yield f"knee of {workload}, beyond which more load adds more latency than throughput: {'; '.join(told)}"


def rejections(result: Result) -> Iterator[str]:
    """Say how many trials ran, were repeated and are used, how many of each arm were disturbed and why, which count
    nevertheless, and how the warm-up grew.
    """
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
        yield from imported.notes(study)
        return
    yield from _export_notes(study)
    domains = dict.fromkeys(arm.stack.domain for arm in study.arms if arm.stack.domain and arm.stack.kind.users_guest)
    if domains:
        yield (
            f"measured in {', '.join(domains)} while it runs: its other work is part of the figures; each trial "
            "attached a scratch disk, and the VM's own disks were not touched"
        )
    if any(arm.stack.disk.cache in ("writeback", "writethrough", "unsafe") for arm in study.arms):
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
    classes = {durability.promise: durability for _, durability in found}
    if len(classes) < 2:
        return
    told = (
        f"{', '.join(name for name, one in found if one.promise is promise)}: {durability.words}"
        for promise, durability in classes.items()
    )
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


def _by_kind(result: Result, weight: Weight) -> dict[str, list[tuple[ArmSummary, ArmRemark]]]:
    """Group the remarks of that weight by their kind, the arm with the most rounds first."""
    found: dict[str, list[tuple[ArmSummary, ArmRemark]]] = {}
    for summary in result.arms:
        for one in summary.remarks:
            if one.remark.weight is weight:
                found.setdefault(one.remark.id, []).append((summary, one))
    return {kind: sorted(same, key=lambda pair: -pair[1].rounds) for kind, same in found.items()}


def _item(line: Text) -> Paragraph:
    return Paragraph(line, indent=2, hanging=2)


def _bullet(text: str, style: str, word: str) -> Text:
    line = Text()
    line.append(f"{word}: ", style=style)
    line.append(text, style="dim" if word == "note" else "")
    return line
