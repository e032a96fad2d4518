# SPDX-License-Identifier: Apache-2.0
"""What the tables of a study show, in a sentence each: the same below them in every output."""

from collections.abc import Iterator

from virtune.model.study import Study
from virtune.model.units import format_share
from virtune.report.text.study.answer import has_interval
from virtune.report.text.words import names_text
from virtune.report.view import ViewRow, WorkloadView

TYPICAL = "typical round"
"""The head of a table whose values differ between arms as their changes say."""

TOGETHER = "all rounds together"
"""The head of the percentiles of all I/Os of an arm."""


def level_words(study: Study) -> str:
    """Say which values are means of an arm's own rounds, and which the baseline's times a change."""
    base, robust = study.baseline, " (extreme ones count less)" if study.sequential else ""
    return f"for {base} the mean of its own rounds{robust}, for every other arm {base}'s value times its change"


def values_words(view: WorkloadView, study: Study) -> Iterator[str]:
    """Yield what the values are, where they are of a typical round, and whose CPU time is meant."""
    if view.typical:
        yield f"{TYPICAL}: {level_words(study)}"
    shown = {row.metric.id for row in view.rows}
    if view.typical and shown & {"cpu.load.usr", "cpu.rig", "device.util"}:
        yield "CPU and device use in %: for each arm the median of its own rounds"
    stacks = (arm.stack for arm in study.arms)
    fronts = {one.export if one.kind.front == "export" else one.kind.front for one in stacks}
    if "slat.mean" in shown and fronts >= {"file", "vhost-user-blk"}:
        yield "slat: the time to submit an I/O: a system call, or an entry written into a virtio queue"
    if shown & {"cpu.load.usr", "cpu.rig"}:
        both = "; CPU per I/O: of both together, in each round" if "cpu_per_io" in shown else ""
        yield f"load CPU: of the program that does the I/O, QEMU CPU: of QEMU; 100 % is one CPU{both}"
        guests = [arm.name for arm in study.arms if arm.stack.kind.in_guest]
        if guests:
            names = names_text(guests, 3)
            yield f"load CPU of {names}: the load runs on the VM's vCPUs, whose time is in CPU per I/O only"
        polling = [arm.name for arm in study.arms if arm.stack.kind.in_guest and arm.stack.machine.is_bare]
        waits = all(job.get("hipri", "1") == "0" for job in view.workload.jobs)
        if polling and "cpu_per_io" in shown and not waits:
            names = names_text(polling, 3)
            yield f"CPU per I/O of {names}: its vCPU looks for completions all the time, also when there are none"
    if "device.util" in shown:
        yield (
            "device busy: the share of time in which this host's disk had a request; near 100 % it was never idle,"
            " which is a limit only where a disk serves one request at a time"
        )


def together_words(view: WorkloadView) -> Iterator[str]:
    """Yield what the percentiles of all rounds are, and the marks before them."""
    if not view.together:
        return
    yield f"{TOGETHER}: of all I/Os of an arm; a few bad rounds can decide the highest percentiles"
    yield from marks_words(view.together)


def marks_words(rows: tuple[ViewRow, ...]) -> Iterator[str]:
    """Yield what `>=` and `~` before percentiles say, where they are shown."""
    values = [cell.value for row in rows for cell in row.cells if cell.value is not None]
    if any(one.low is not None and one.high is None for one in values):
        yield (
            ">=: with 95 % confidence the percentile is this or more; how much more is not known: what delays I/Os so"
            " much is rare and comes in bursts, and it takes ten minutes of measurement to see enough of it"
        )
    if any(not one.resolved and (one.low is None or one.high is not None) for one in values):
        yield "~: uncertain, as fewer than 100 I/Os were slower"


def changes_words(view: WorkloadView, study: Study) -> Iterator[str]:
    """Yield with which confidence the intervals of changes hold, where any are shown: those of verdicts together, all
    others each.
    """
    changes = ((row, [cell.change for cell in row.cells if cell.change is not None]) for row in view.rows)
    shown = [row for row, found in changes if any(map(has_interval, found))]
    if not shown:
        return
    judged = " and ".join(row.label for row in shown if row.judged)
    each = "in other rows each by itself" if judged else "each holds by itself"
    told = [f"for {judged} all of them hold together"] if judged else []
    told += [each] if any(not row.judged for row in shown) else []
    looks = "; all allow for a check after every round, and are wider for it" if study.sequential else ""
    yield f"[low, high] is a {format_share(study.confidence)} confidence interval: {', '.join(told)}{looks}"
