# SPDX-License-Identifier: Apache-2.0
"""Latency at equal offered load: derive the loads at which all arms are compared; and the loads of a sweep: the
closed loop first, then shares of its rate, then further loads where the curve needs them.

At saturation latency depends on the queue length and not on the stack. So the baseline's saturation is measured
first, with the workload as requested; then every arm is offered the same shares of it, and one I/O at a time as well.
I/Os are offered at even intervals, with a queue so deep that the generator never has to wait.

Like VMFleet's sweep (baseline, unconstrained, bracket, infill), loads are added between known ones around the knee or
limit until neighbours are close enough. The next load depends only on the stored trials, so a killed sweep resumes
unchanged.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from virtune.fio.options import SYNCHRONOUS
from virtune.model.errors import LoadError, PlanError
from virtune.model.evidence import StudyRecord
from virtune.model.measurement import Measurement
from virtune.model.remark import label_of
from virtune.model.result import LoadSweep
from virtune.model.search import SWEEP_LOADS_MAX, SweepPlan
from virtune.model.study import Study, StudyKind, Trial
from virtune.model.text import format_count
from virtune.model.workload import Job, Workload, job, name_at_load
from virtune.plan.trials import trials

PROBE_ROUNDS = 3
"""Rounds in which the baseline's saturation is measured: enough, since a load at 70 % of it may as well be at 68 or
72 %.
"""

DEPTH = 256
"""The queue depth: at 10,000 I/Os a second it fills only when their mean latency exceeds 25 ms."""

RATE_MAX = 10**8

LIKELY_SATURATION = 1e4
"""A placeholder rate while saturation is unknown, to check whether a load can be offered at all."""

SHARE_MAX = 400
"""Per cent of the baseline's saturation that are offered at most: an arm that carries several times as much as the
baseline is met, and far beyond every arm's saturation nothing changes but the queue.
"""

LOADS_MAX = 16

_SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,3})?)\s*%", re.ASCII)
_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(k?)\s*iops", re.ASCII | re.IGNORECASE)


def read_loads(texts: tuple[str, ...], *, most: int = LOADS_MAX) -> tuple[str, ...]:
    """Read the values of `--at-load`, with or without commas, and return each load once: `50%`, `5000iops`; raises
    PlanError.
    """
    words = [word.strip() for text in texts for word in text.split(",")]
    for word in words:
        rate_of(word, 1.0)
    found = tuple(dict.fromkeys(word.replace(" ", "").lower() for word in words))
    if len(found) > most:
        raise PlanError(f"{len(found)} loads are more than {most}")
    return found


def with_loads(study: Study, *, restart: bool = False) -> Study:
    """Return the first part of a study at offered loads: the baseline alone, at saturation.

    Raises PlanError for a workload that cannot be offered at a rate.
    """
    for workload in study.workloads:
        at_loads(study, workload, LIKELY_SATURATION)
    probes = tuple(replace(workload, probe=True) for workload in study.workloads)
    rounds = min(PROBE_ROUNDS, study.rounds)
    order = trials([study.baseline], [one.name for one in probes], rounds=rounds, seed=study.seed, restart=restart)
    return replace(study, workloads=probes, trials=order)


def settled(record: StudyRecord) -> Study:
    """Return the study with the workloads and trials that follow from its probes' measurements.

    Saturation is the geometric mean of the baseline's IOPS over the probe's valid rounds, or over all
    rounds where none is valid (`disturbed_probes` warns of that). Raises LoadError without any.
    """
    study = record.study
    compared: dict[str, Workload] = {}
    for probe in study.workloads:
        compared |= {one.name: one for one in at_loads(study, probe, saturation_iops(record, probe.name))}
    arms, restart = [arm.name for arm in study.arms], any(trial.restart for trial in study.trials)
    # of a sequential study only the first rounds, numbered like those of the probe; the rest are proposed later
    rounds = min(PROBE_ROUNDS, study.rounds) if study.sequential else study.rounds
    order = trials(arms, list(compared), rounds=rounds, seed=study.seed, restart=restart)
    begun = len(study.trials)
    return replace(
        study,
        workloads=(*study.workloads, *compared.values()),
        trials=(*study.trials, *(replace(trial, number=trial.number + begun) for trial in order)),
    )


def require_own_depth(study: Study) -> None:
    """Raise PlanError where an arm has a depth of its own and I/Os are offered at a rate, which decides the depth."""
    if any(arm.stack.load_depth is not None for arm in study.arms):
        raise PlanError(
            "workload.iodepth is set, and a load that is offered at a rate is as deep as that rate needs",
            hint="write iodepth= into the workload in its place: the saturation is measured with that",
        )


def at_loads(study: Study, probe: Workload, saturation: float) -> tuple[Workload, ...]:
    """Return the workloads to compare for a known saturation (IOPS): one I/O at a time, then every load.

    Raises PlanError for what cannot be offered at a rate.
    """
    require_own_depth(study)
    # one I/O at a time cannot be shared among guests
    alone = () if any(arm.stack.guests > 1 for arm in study.arms) else (_one_at_a_time(probe),)
    return (*alone, *(offered_workload(probe, load, rate_of(load, saturation)) for load in study.at_load))


def disturbed_probes(record: StudyRecord) -> Iterator[str]:
    """Yield a warning for each probe whose trials were all disturbed: its saturation may be too low."""
    for probe in (workload for workload in record.study.workloads if workload.probe):
        measured = _measured(record, probe.name)
        if measured and all(one.causes for one in measured):
            causes = ", ".join(dict.fromkeys(label_of(cause) for one in measured for cause in one.causes))
            yield (
                f"every trial of the baseline's saturation under {probe.name} was disturbed ({causes}), so the"
                " offered loads are shares of what it did all the same"
            )


def _measured(record: StudyRecord, workload: str) -> list[Measurement]:
    return [t.measurement for t in record.trials if t.trial.workload == workload and t.measurement is not None]


def saturation_iops(record: StudyRecord, workload: str) -> float:
    """Return a probe's IOPS: the geometric mean over its rounds. Raises LoadError without any."""
    measured = _measured(record, workload)
    counted = [one for one in measured if not one.causes] or measured
    rates = [rate for one in counted if (rate := one.get("iops"))]
    if not rates:
        raise LoadError(f"the baseline's saturation under {workload} could not be measured")
    return math.exp(math.fsum(math.log(rate) for rate in rates) / len(rates))


def rate_of(load: str, saturation: float) -> float:
    """Return operations a second for `50%` of a saturation, or for `5000iops`; raises PlanError for other words."""
    share, rate = _SHARE.fullmatch(load), _RATE.fullmatch(load)
    if share is not None and 0 < float(share[1]) <= SHARE_MAX:
        return saturation * float(share[1]) / 100
    if rate is not None and 1 <= (found := float(rate[1]) * (1000 if rate[2] else 1)) <= RATE_MAX:
        return found
    hint = (
        f"a share of the baseline's saturation such as 50%, at most {SHARE_MAX}%, or a rate such as 5000iops; several"
        " with commas"
    )
    raise PlanError(f"{load[:40]!r} is not an offered load", hint=hint)


def _one_at_a_time(workload: Workload) -> Workload:
    options = {**_only_job(workload).as_dict(), "iodepth": "1"}
    options.pop("numjobs", None)
    options.pop("iodepth_batch", None)
    return replace(
        workload,
        name=f"{workload.name[:60]}-qd1",
        meaning=f"{workload.name}, one at a time",
        jobs=(job(workload.jobs[0].name, options),),
        probe=False,
    )


def offered_workload(workload: Workload, load: str, iops: float) -> Workload:
    """Return the workload as an open loop with its I/Os offered at a rate; `load` is the load as requested.

    Raises PlanError for a workload that cannot be offered at a rate.
    """
    asked = _only_job(workload)
    options = asked.as_dict()
    clones = int(options.get("numjobs", "1"))
    each = max(1, round(iops / clones))
    reads = 100 if not asked.writes else int(options.get("rwmixread", "50")) if asked.reads else 0
    if "rwmixwrite" in options and asked.reads and asked.writes:
        reads = 100 - int(options["rwmixwrite"])
    mixed = 0 < reads < 100
    parts = [max(1, round(each * reads / 100)), max(1, round(each * (100 - reads) / 100))] if mixed else [each]
    options["iodepth"] = str(max(DEPTH, int(options.get("iodepth", "1"))))
    options["rate_iops"] = ",".join(str(part) for part in parts)
    offered = float(sum(parts) * clones)
    of = f" ({load.removesuffix('%')} % of the baseline's saturation)" if load.endswith("%") else ""
    return replace(
        workload,
        name=name_at_load(workload.name, load),
        meaning=f"{workload.name}, offered at {format_count(offered)} a second{of}",
        jobs=(job(asked.name, options),),
        offered_iops=offered,
        probe=False,
    )


def _only_job(workload: Workload) -> Job:
    """Return the only job of a workload; raises PlanError where its I/Os cannot be offered at a rate: a job file,
    several jobs, a pace of its own, or a synchronous engine.
    """
    where = f"workload {workload.name}"
    if workload.verbatim is not None or len(workload.jobs) != 1:
        hint = "write it in fio's words: rw=randread,bs=4k,iodepth=32"
        raise PlanError(f"{where} cannot be offered at a rate: it must have one job, and be no job file", hint=hint)
    options = workload.jobs[0].as_dict()
    own = next((name for name in options if name.startswith(("rate", "thinktime"))), None)
    if own is not None or "number_ios" in options:
        raise PlanError(f"{where} has a pace of its own ({own or 'number_ios'}), so it cannot be offered at a rate")
    if options.get("ioengine") in SYNCHRONOUS:
        raise PlanError(
            f"{where} cannot be offered at a rate: ioengine={options['ioengine']} waits for each I/O",
            hint="leave ioengine out, or take io_uring or libaio",
        )
    return workload.jobs[0]


ASKED_MAX = 100
"""The most loads of a readable curve."""

FIRST_SHARES = (0.2, 0.5, 0.8, 1.0, 1.25)
"""Shares of the closed loop's rate: enough to see the bend of the curve, and one load beyond it."""


def sweep_study(study: Study, plan: SweepPlan) -> Study:
    """Return a measurement of one stack as a sweep that begins with its closed loop.

    Raises PlanError for more than one workload, for one that cannot be offered at a rate, and for invalid loads or
    limits.
    """
    if len(study.workloads) != 1:
        raise PlanError("a sweep has one workload", hint="one sweep for each")
    (workload,) = study.workloads
    offered_workload(workload, "any", LIKELY_SATURATION)
    require_own_depth(study)
    limit = plan.limit
    if limit is not None and (limit.sense != "<=" or ("latency" not in limit.metric and "clat" not in limit.metric)):
        raise PlanError(
            f"{limit.text}: a sweep finds the greatest load for a limit on a latency", hint="'latency.p99<=1ms'"
        )
    plan = replace(plan, loads=read_loads(plan.loads, most=ASKED_MAX))
    probe = replace(workload, probe=True)
    return _with(
        replace(study, kind=StudyKind.SWEEP, sweep=plan, workloads=(probe,), rounds=plan.rounds, trials=()),
        [probe.name],
    )


def next_step(known: LoadSweep, record: StudyRecord) -> Study | None:
    """Return the study with the next loads, None if the curve needs no more.

    Raises LoadError if the closed loop gave no measurement.
    """
    study, plan = known.study, known.study.sweep
    assert plan is not None  # noqa: S101 - only sweeps are asked
    if not study.compared:
        full = saturation_iops(record, study.workloads[0].name)
        asked = [one.value for one in study.conditions if one.value is not None and one.value < full]
        loads = [rate_of(load, full) for load in plan.loads] or [*(full * share for share in FIRST_SHARES), *asked]
    else:
        loads = [one for one in (known.above, known.below) if one is not None]
        loads += [math.sqrt(low * high) for low, high in known.gaps]
    have = {round(one.offered_iops or 0) for one in study.compared}
    added = [
        offered_workload(study.workloads[0], f"{load:.0f}iops", load)
        for load in sorted(loads)
        if 1 <= load <= RATE_MAX
    ]
    new = {round(one.offered_iops or 0): one for one in added if round(one.offered_iops or 0) not in have}
    room = len(plan.loads) + SWEEP_LOADS_MAX - len(study.compared)
    workloads = list(new.values())[:room]
    if not workloads:
        return None
    return _with(replace(study, workloads=(*study.workloads, *workloads)), [one.name for one in workloads])


def _with(study: Study, workloads: Sequence[str]) -> Study:
    """Return the study with one more block of trials: each of these workloads in every round, in random order."""
    plan = study.sweep
    assert plan is not None  # noqa: S101 - only sweeps have blocks
    begun = study.rounds_begun
    chance = Random(f"{study.seed} {begun}")  # noqa: S311 - a fair order, not a secret
    order = [
        (begun + block, name)
        for block in range(1, plan.rounds + 1)
        for name in chance.sample(list(workloads), len(workloads))
    ]
    first, arm = len(study.trials) + 1, study.arms[0].name
    trials = (
        Trial(number=number, round=block, arm=arm, workload=name) for number, (block, name) in enumerate(order, first)
    )
    return replace(study, trials=(*study.trials, *trials))
