# SPDX-License-Identifier: Apache-2.0
"""The results of studies and of sweeps as JSON documents, in base units."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict

from virtune.model.durability import Promise, durability_of
from virtune.model.evidence import StudyRecord, TrialRecord, Waiver
from virtune.model.knobs import KNOBS
from virtune.model.metric import A_METRIC_NAME, BY_ID, METRICS, MeasuredAs
from virtune.model.reason import OF_SWEEPS, OF_VERDICTS, Reason
from virtune.model.result import (
    ArmKnee,
    ArmRemark,
    ArmSummary,
    Basis,
    LoadEstimate,
    LoadPoint,
    LoadRuling,
    LoadSweep,
    RampFinding,
    Result,
    Stopped,
    Value,
)
from virtune.model.stack import Stack
from virtune.model.study import Arm, RunOrder, Study, StudyKind
from virtune.model.verdict import Interval, Outcome, RunDrift, ThresholdResult, Verdict
from virtune.report.json import document as doc
from virtune.report.json import parts
from virtune.report.json.document import maker, part
from virtune.report.json.host import ProbeDocument
from virtune.report.pages.brief import beside
from virtune.report.reproduce import command_again, question_of, sweep_again

_ALL_METRICS = {"propertyNames": {"enum": [one.id for one in METRICS]}}
_SETTINGS = {"propertyNames": {"enum": ["rig", *(knob.id for knob in KNOBS if knob.place)]}}

KINDS = tuple(kind for kind in StudyKind if kind not in (StudyKind.TUNE, StudyKind.SWEEP))
"""The kinds of studies that a result is of: a search and a sweep have documents of their own."""

_IMPORTED = "; null for imported results."

_OF_RATIO = "of candidate / baseline, or of candidate / value; null where there is no interval."


class _Job(TypedDict):
    """One fio job."""

    name: Annotated[str, "Its name."]
    options: Annotated[Mapping[str, Annotated[str, "The value, as text."]], "Its options in fio's words."]


class WorkloadPart(TypedDict):
    """What is asked of the disk."""

    name: Annotated[str, "Its name."]
    meaning: Annotated[str, "What it stands for, in words."]
    offered_iops: Annotated[
        float | None, "I/Os offered a second; null where one waits for another.", doc.NOT_NEGATIVE
    ]
    probe: Annotated[bool, "True where only the baseline ran it, to find its saturation."]
    jobs: Annotated[list[_Job], "The jobs, which run together.", doc.NOT_EMPTY]


class LookPart(TypedDict):
    """A look."""

    round: Annotated[int, "The round after which it was.", doc.AT_LEAST_ONE]
    share: Annotated[float, "The share of the plan that was done then.", doc.SHARE]


class StudyPart(TypedDict):
    """What was to be found out, and how."""

    id: Annotated[str, "By which `show`, `resume` and `explain` find it."]
    kind: Annotated[StudyKind, "The verb that made it.", {"enum": [*KINDS]}]
    created: Annotated[doc.Moment, "When it was begun, in UTC."]
    builtin: Annotated[str | None, "Which study that ships with virtune it is; null for any other.", doc.OR_NULL]
    finished: Annotated[bool, "Whether every trial gave a measurement."]
    trials: Annotated[int, "Trials that it consists of, at most while it is not finished.", doc.AT_LEAST_ONE]
    trials_done: Annotated[int, "Trials that gave a measurement.", doc.NOT_NEGATIVE]
    measured_seconds: Annotated[
        float | None, f"Measured time of these together, in seconds{_IMPORTED}", doc.NOT_NEGATIVE
    ]
    elapsed_seconds: Annotated[
        float | None,
        "What its trials took with all that they need, interruptions left out, in seconds; null where nothing shows"
        " it.",
        doc.NOT_NEGATIVE,
    ]
    stopped: Annotated[Stopped | None, "Why a sequential study has ended; null while it has not, and for any other."]
    baseline: Annotated[str, "The arm to compare the others with."]
    metric: Annotated[str, "The metric of the verdicts.", A_METRIC_NAME]
    rounds: Annotated[int, "Rounds: each tries every arm under every workload once.", doc.AT_LEAST_ONE]
    seconds: Annotated[float | None, f"Measured time of one trial, in seconds{_IMPORTED}", doc.POSITIVE]
    ramp_seconds: Annotated[float | None, f"Warm-up before it, not measured, in seconds{_IMPORTED}", doc.NOT_NEGATIVE]
    seed: Annotated[int | None, f"Seed of the order of trials and of random offsets{_IMPORTED}", doc.NOT_NEGATIVE]
    at_load: Annotated[list[Annotated[str, "A load."]], "Offered loads as asked for: `50%`, `5000iops`."]
    judged: Annotated[list[Annotated[str, "A metric."]], "The metrics that got verdicts, the main one first."]
    margin: Annotated[float, "The smallest relative difference worth knowing (0.03 is 3 %).", doc.POSITIVE]
    confidence: Annotated[
        float, "Of all `comparisons` together, 0 to 1.", {"exclusiveMinimum": 0, "exclusiveMaximum": 1}
    ]
    span_bytes: Annotated[int | None, f"Bytes of the scratch image, or used of a target{_IMPORTED}", doc.AT_LEAST_ONE]
    scratch: Annotated[str | None, f"The directory of the scratch images{_IMPORTED}"]
    target: Annotated[str | None, "The user's own file or device that was loaded; null for scratch images."]
    first_reads: parts.FirstReads
    preconditioned: parts.Preconditionings
    steadied: parts.Steadyings
    paired: Annotated[
        bool,
        "Whether arms ran in turn and are compared within rounds; imported results only where the times in their"
        " files show it, of six runs of each or more.",
    ]
    order: Annotated[
        RunOrder | None, "Of imported results: the order that the times in their files show; null for virtune's own."
    ]
    sequential: Annotated[
        bool,
        "Whether it was looked at after every round and stopped when every pair and condition was decided;"
        " `rounds` and `budget_seconds` are then the most that it takes.",
    ]
    pairs: Annotated[Literal["all", "baseline"], "Which pairs of arms get verdicts: those with the baseline, or all."]
    looks: Annotated[
        list[LookPart] | None,
        "The looks of a comparison whose end is planned; null for results that are judged otherwise.",
    ]
    budget_seconds: Annotated[
        float | None, "The most time of running trials, in seconds; null is no limit.", doc.POSITIVE
    ]
    workloads: Annotated[list[WorkloadPart], "The workloads, in the order they were given.", doc.NOT_EMPTY]
    sources: Annotated[
        list[Annotated[str, "A study's id."]],
        "Where studies of virtune's own are compared: the study of each arm, in the order of `arms`; else empty.",
    ]
    differing: Annotated[
        Mapping[str, list[Annotated[str, "The value of one of them; `absent` where it has none."]]] | None,
        "What is not the same in `sources`, of hosts and of settings as they were read back: by name the value of"
        " each arm. Null where there are none, or a host was not probed.",
    ]


class ResultBasisPart(TypedDict):
    """What is to be known beside the verdicts to weigh them."""

    question: Annotated[str, "What was asked, in a sentence."]
    unit: Annotated[Literal["round", "run"], "What is analysed as one observation; never an I/O."]
    error: Annotated[
        float,
        "The chance that any of `comparisons` says what is not so, all of them together and however often they were"
        " looked at.",
        doc.SHARE,
    ]
    pairs: Annotated[int, "How many comparisons share that error.", doc.NOT_NEGATIVE]
    checked: parts.CheckedPart
    workloads: Annotated[Any, list[Basis], "By workload; none for a single arm and for runs that are not paired."]
    command: Annotated[
        str | None,
        "The command line that asks it again, with its seed, behind those that write its job files; null for imported"
        " results.",
    ]


class _Pair(TypedDict):
    """Two arms, one workload, one metric, paired by round."""

    workload: Annotated[str, "The workload's name."]
    metric: Annotated[str, "The metric.", A_METRIC_NAME]
    baseline: Annotated[str, "The baseline of the comparison."]
    candidate: Annotated[str, "The arm that is judged."]
    rounds: Annotated[int, "Rounds that both arms have a usable value in.", doc.NOT_NEGATIVE]
    ratio: Annotated[Any, Interval | None, "candidate / baseline; null where there were too few rounds."]
    plain: Annotated[
        Any,
        Interval | None,
        "The ratio of the arms' arithmetic means, with a t interval of its own: no round counts less in it. `ratio`"
        " is robust; where the two disagree, extreme rounds matter. null where there is no other mean.",
    ]
    change: Annotated[float | None, "Of arms that are not paired: the ratio of their geometric means, else null."]
    noise: Annotated[
        float | None,
        "Standard deviation of one round's difference (ln), as it went into the interval; null where the rounds were"
        " fixed beforehand, or bear none.",
        doc.NOT_NEGATIVE,
    ]
    lag1: Annotated[
        float | None, "How alike neighbouring rounds were taken to be, 0 to 0.9; null as `noise`.", doc.NOT_NEGATIVE
    ]
    rounds_left: Annotated[
        int | None,
        "A forecast for an undecided pair: so many more rounds would decide it if the noise stays; null where that"
        " cannot be said.",
        doc.AT_LEAST_ONE,
    ]
    measured_as: MeasuredAs
    drift: Annotated[
        Any,
        RunDrift | None,
        "How runs from elsewhere changed from one to the next within both arms, in order of time; null where that is"
        " not known, or no drift was found. What it makes of a difference is taken out of runs in turn; of others"
        " `ratio` includes what is left without it.",
    ]
    why: Annotated[str, "The reason of the verdict, in words."]
    reason: Annotated[Reason, doc.CODE, {"enum": [*OF_VERDICTS]}]


class ComparisonPart(_Pair):
    """Two arms, one workload, one metric, paired by round."""

    verdict: Annotated[Verdict, "What may be said of the candidate. `undecided` is an answer."]


class DifferencePart(_Pair):
    """Two arms, one workload, one metric, paired by round."""

    difference: Annotated[Verdict, "What may be said of the candidate. `undecided` is an answer.", doc.At("verdict")]


class ConditionPart(TypedDict):
    """The result of one condition for one comparison. All of them together hold at the study's confidence."""

    condition: Annotated[str, "The condition.", doc.At("condition.text")]
    metric: Annotated[str, "The metric.", A_METRIC_NAME, doc.At("condition.metric")]
    limit: Annotated[
        float | None,
        "The ratio candidate / baseline that is the limit (1.05 is +5 %); null for a limit on a value.",
        doc.NOT_NEGATIVE,
    ]
    value: Annotated[
        float | None,
        "The value that is the limit, in the metric's base unit; null for a change.",
        doc.At("condition.value"),
    ]
    workload: Annotated[str, "The workload's name.", doc.At("comparison.workload")]
    baseline: Annotated[str | None, "The baseline; null for a limit on a value."]
    candidate: Annotated[str, "The arm that is judged.", doc.At("comparison.candidate")]
    low: Annotated[float | None, f"The lower end of the interval {_OF_RATIO}"]
    high: Annotated[float | None, f"The upper end of the interval {_OF_RATIO}"]
    measured_as: Annotated[MeasuredAs, doc.At("comparison.measured_as")]
    confidence: Annotated[float | None, "The confidence of this interval, 0 to 1."]
    outcome: Annotated[
        Outcome,
        "`breached`: the whole interval lies beyond the limit; `held`: on the near side of it; `undecided`: it"
        " straddles the limit, or nothing can be concluded.",
    ]
    why: Annotated[str, "The reason, in words."]
    reason: Annotated[Reason, doc.CODE, {"enum": [*OF_VERDICTS]}]


class MetricPart(TypedDict):
    """A metric."""

    label: Annotated[str, "Its name in tables."]
    unit: Annotated[
        str,
        f"Its unit: {', '.join(f'{unit} {words}' for unit, words in parts.IN_WORDS.items())}.",
        {"enum": [*parts.IN_WORDS]},
    ]
    better: Annotated[Literal["higher", "lower"], "Which way is better."]


class CheckPart(TypedDict):
    """One setting: as asked, and as found on the running process."""

    setting: Annotated[
        str,
        "The knob, or what shows it (O_DIRECT, load.direct); `data`, `durability` for the --check-... of that name.",
    ]
    asked: Annotated[str, "The value that was asked for."]
    found: Annotated[str | None, "The value that runs; null where the running system gives no way to see it."]
    agrees: Annotated[bool | None, "Whether both are the same; null where it could not be seen."]
    proof: Annotated[str, "How it was seen."]


class _RepeatedRemark(parts.RemarkPart):
    """One thing that a good reader notices."""

    rounds: Annotated[int, "In how many rounds it was made; the text is the first's.", doc.AT_LEAST_ONE]


class SummaryPart(TypedDict):
    """One workload over all rounds."""

    workload: Annotated[str, "Its name."]
    rounds: Annotated[int, "Rounds that gave a measurement.", doc.NOT_NEGATIVE]
    values: Annotated[
        Mapping[str, Annotated[Any, Value]], "By metric. One that is missing was not measured.", doc.Keys.METRICS
    ]
    remarks: Annotated[list[_RepeatedRemark], "Warnings and notes."]
    failures: Annotated[list[Annotated[str, "A reason."]], "Why trials failed."]
    attempts: Annotated[int, "Attempts at its trials, failed and invalid ones too.", doc.NOT_NEGATIVE]
    invalid: Annotated[
        Mapping[str, Annotated[int, "A number of attempts.", doc.AT_LEAST_ONE]],
        "How many of them were invalid, by the id of the remark that says why.",
        doc.Keys.CAUSES,
    ]
    layers: parts.LayersPart | None


class ChangeoverPart(TypedDict):
    """How the arm came to run after the one before it; null where no process of ours carries it."""

    swapped: Annotated[str | None, "What was exchanged in a process that ran; null for a new process."]
    seconds: Annotated[float, "What taking down the one before and bringing this one up took.", doc.NOT_NEGATIVE]
    process: Annotated[int, "The id of the process.", doc.AT_LEAST_ONE]
    carried: Annotated[int, "How many arms the process had carried before.", doc.NOT_NEGATIVE]
    why: Annotated[str, "Why a new process was needed; empty where none was."]
    text: Annotated[str, "The same in words."]


class MeasurementPart(TypedDict):
    """What was measured."""

    method: Annotated[int, "The number of the way in which it was derived from the evidence.", doc.AT_LEAST_ONE]
    values: Annotated[Mapping[str, float], "By metric. One that is missing was not measured.", doc.Keys.METRICS]
    remarks: Annotated[list[parts.RemarkPart], "Warnings and notes."]
    gates: Annotated[Mapping[str, float], "What the gates read.", doc.Keys.GATES]


class TrialPart(TypedDict):
    """The arm under one workload, once."""

    round: Annotated[int, "The round, from 1.", doc.AT_LEAST_ONE]
    number: Annotated[int, "Its place in the order of running, from 1; `show --trial` takes it.", doc.AT_LEAST_ONE]
    workload: Annotated[str, "The workload's name."]
    ended: Annotated[str | None, "When it ended, in UTC; null where an imported result does not say.", doc.A_MOMENT]
    attempt: Annotated[int, "The attempt that counts, from 1.", doc.AT_LEAST_ONE]
    changeover: ChangeoverPart | None
    failure: Annotated[str | None, "Why it failed; null when it did not."]
    measurement: MeasurementPart | None


class DurabilityPart(TypedDict):
    """What it promises of a guest's writes; null for an imported arm."""

    promise: Annotated[Promise, "The class: who promises less is not simply faster."]
    why: Annotated[str, "What a write survives there, and why.", doc.At("words")]


class GuestsPart(TypedDict):
    """The guests of virtune's own that share an arm's load; null where there are none."""

    count: Annotated[int, "How many they are.", doc.AT_LEAST_ONE, doc.At("guests")]
    vcpus: Annotated[int, "Their vCPUs together.", doc.AT_LEAST_ONE]
    memory_bytes: Annotated[int, "Their memory together.", doc.AT_LEAST_ONE, doc.At("memory")]


class ArmPart(TypedDict):
    """One stack under comparison."""

    name: Annotated[str, "Its name."]
    stack: Annotated[Any, Stack | None, "All of the stack; null for an imported arm."]
    durability: DurabilityPart | None
    guests: GuestsPart | None
    settings: Annotated[
        Mapping[str, Annotated[str, "The value as it was written."]], "What was asked for, by knob.", _SETTINGS
    ]
    options: Annotated[
        Mapping[str, Annotated[str, "The value."]], "Of an imported arm: what its jobs say beside their workloads."
    ]
    in_force: Annotated[list[CheckPart], "What was found on the running processes."]
    workloads: Annotated[list[SummaryPart], "What it did, by workload.", doc.NOT_EMPTY]
    rounds: Annotated[list[TrialPart], "Its trials so far, by number."]


class ResultDocument(TypedDict):
    """What `virtune compare`, `measure`, `resume` and `show` write with `--json`. Base units throughout: ns, bytes,
    1/s, CPU seconds per I/O; only shares of a CPU and of time are in %.
    """

    schema: Annotated[str, doc.IDENTITY, {"const": "virtune/result/2"}]
    virtune: doc.ProgramVersion
    study: StudyPart
    facts: Annotated[ProbeDocument | None, "The host as it was when the study began."]
    metrics: Annotated[Mapping[str, MetricPart], "All that there are.", _ALL_METRICS]
    arms: Annotated[list[ArmPart], "The stacks under comparison, in the order they were given.", doc.NOT_EMPTY]
    comparisons: Annotated[
        list[ComparisonPart],
        "Every arm against the baseline (`pairs` all: every pair) on the study's metrics, for each workload; their"
        " errors are bounded together.",
    ]
    differences: Annotated[
        list[DifferencePart],
        "Every metric of every arm against the baseline. Those of a metric with verdicts are the verdicts; the others"
        " stand each for itself: with many of them, some are chance.",
    ]
    conditions: Annotated[list[ConditionPart], "What became of each `--fail-if`, for each workload and arm."]
    pardons: Annotated[Any, list[Waiver], "Causes of invalidity for which trials count nevertheless, and why."]
    ramps: Annotated[Any, list[RampFinding], "Ramps that were found too short, in the order of time."]
    patterns: Annotated[
        list[doc.Sentence], "What the figures show beside the verdicts: a tail that all arms share, say."
    ]
    knees: Annotated[Any, list[ArmKnee], "Of arms at offered loads, where greater loads are shown to be beyond it."]
    basis: ResultBasisPart


@maker
def _condition(ruling: ThresholdResult) -> ConditionPart:
    on_value, ratio = ruling.condition.value is not None, ruling.comparison.ratio
    return part(
        ConditionPart,
        ruling,
        limit=None if on_value else ruling.condition.limit,
        baseline=None if on_value else ruling.comparison.baseline,
        low=None if ratio is None else ratio.low,
        high=None if ratio is None else ratio.high,
        confidence=None if ratio is None else ratio.confidence,
    )


@maker
def _repeated(found: ArmRemark) -> _RepeatedRemark:
    return part(_RepeatedRemark, found.remark, found)


@maker
def _summary(found: ArmSummary) -> SummaryPart:
    return part(SummaryPart, found, values={one.metric: one for one in found.values})


@maker
def _trial(found: TrialRecord) -> TrialPart:
    return part(TrialPart, found, found.trial, found.in_force)


def result_document(result: Result, record: StudyRecord, rulings: Sequence[ThresholdResult] = ()) -> ResultDocument:
    study = result.study
    document = part(
        ResultDocument,
        result,
        study=_study(study, result),
        facts=json.loads(record.facts) if record.facts else None,
        metrics=BY_ID,
        arms=[_arm(arm, result, record) for arm in study.arms],
        comparisons=result.verdicts,
        conditions=rulings,
        patterns=[*map(str, beside(result)), *study.likeness, *result.caveats, *result.patterns],
        basis=_basis(study, result),
    )
    return _without_unknowns(document) if study.imported else document


def _study(study: Study, result: Result) -> StudyPart:
    looks = [part(LookPart, round=one, share=share) for one, share in study.looks]
    trials = study.most_trials(finished=result.finished) or len(study.trials)
    return part(StudyPart, study, result, trials=trials, looks=looks if study.sequential else None)


def _basis(study: Study, result: Result) -> ResultBasisPart:
    return part(
        ResultBasisPart,
        study,
        question=question_of(study),
        unit="round" if study.paired else "run",
        error=round(1 - study.confidence, 12),
        pairs=len(result.verdicts),
        workloads=result.basis,
        command=command_again(study) or None,
    )


def _arm(arm: Arm, result: Result, record: StudyRecord) -> ArmPart:
    summaries = [summary for summary in result.arms if summary.arm == arm.name]
    checks = {(one.setting, one.asked, one.found): one for summary in summaries for one in summary.in_force}
    return part(
        ArmPart,
        arm,
        durability=durability_of(arm.stack),
        guests=_guests(arm.stack),
        in_force=checks.values(),
        workloads=summaries,
        rounds=[trial for trial in record.trials if trial.trial.arm == arm.name],
    )


def _guests(stack: Stack) -> GuestsPart | None:
    if stack.vcpus is None or stack.memory is None:
        return None
    return part(GuestsPart, count=stack.guests, vcpus=stack.vcpus, memory_bytes=stack.memory)


def _without_unknowns(document: ResultDocument) -> ResultDocument:
    """Return the same with null for what is unknown of an imported study, which virtune did not see run."""
    study: StudyPart = {
        **document["study"],
        "seconds": None,
        "ramp_seconds": None,
        "seed": None,
        "span_bytes": None,
        "scratch": None,
        "measured_seconds": None,
    }
    return {**document, "study": study, "arms": [_imported(arm) for arm in document["arms"]]}


def _imported(arm: ArmPart) -> ArmPart:
    rounds: list[TrialPart] = [{**one, "ended": one["ended"] or None} for one in arm["rounds"]]
    return {**arm, "stack": None, "durability": None, "rounds": rounds}


class _SweepStudy(TypedDict):
    """What was asked."""

    id: Annotated[str, "By which `show` and `resume` find it."]
    created: Annotated[doc.Moment, "When it was begun, in UTC."]
    simulated: Annotated[bool, "Whether its figures are invented (rig=simulated)."]
    finished: Annotated[bool, "Whether the curve needed no more loads."]
    arm: Annotated[str, "The name of the stack."]
    settings: Annotated[Mapping[str, str], "Its settings as they were asked for, by knob."]
    workload: Annotated[str, "The workload that was offered at each load."]
    limit: Annotated[str | None, "The limit that the greatest load was looked for under; null without one."]
    rounds: Annotated[int, "How often each load ran.", doc.AT_LEAST_ONE]
    seconds: Annotated[float, "Measured time of a trial, in seconds."]
    ramp_seconds: Annotated[float, "Warm-up before it, in seconds."]
    seed: Annotated[int, "Of the random order and offsets."]
    trials: Annotated[int, "Trials so far.", doc.AT_LEAST_ONE]
    first_reads: parts.FirstReads


class _Point(TypedDict):
    """One offered load."""

    workload: Annotated[str, "Its name in the store."]
    offered_iops: Annotated[float, "Operations a second that were offered.", doc.At("offered")]
    achieved_iops: Annotated[float, "Operations a second that were done, the mean of the rounds.", doc.At("iops")]
    met: Annotated[
        bool, "Whether achieved_iops is what was offered: 99 % of it at least, less 10 ms at the end of a trial."
    ]
    rounds: Annotated[int, "Rounds that gave a measurement.", doc.AT_LEAST_ONE]
    values: Annotated[
        Mapping[str, float],
        "Its metrics by id, in base units (ns, B/s, 1/s, %), of all rounds together: rates and shares are means of"
        " the time (`iops` is achieved_iops), latencies and what an I/O costs those of all I/Os.",
    ]


class SweepDocument(TypedDict):
    """What `virtune sweep --json` writes."""

    schema: Annotated[str, doc.IDENTITY, {"const": "virtune/sweep/2"}]
    virtune: doc.ProgramVersion
    study: _SweepStudy
    facts: Annotated[Any, "The facts of the host: a document `virtune/probe/1`; null without them."]
    saturation: Annotated[
        Any,
        LoadEstimate | None,
        "The most that was carried, no less than any load that was met; null where it was not reached, and where"
        " loads contradict one another or the closed loop.",
    ]
    closed_loop: Annotated[
        Any, LoadEstimate | None, "What it did without an offered rate; its interval is that of its rounds."
    ]
    knee: Annotated[
        Any,
        LoadEstimate | None,
        "The load of the greatest IOPS by mean latency; null for fewer than three loads, and where none was met.",
    ]
    most: Annotated[Any, LoadEstimate | None, "The greatest load at which the limit holds; null without one."]
    why: Annotated[list[Annotated[str, "One sentence."]], "What was not found, and why."]
    reasons: Annotated[
        list[Annotated[Reason, {"enum": [*OF_SWEEPS]}]],
        "The same as codes, in the same order; they stay the same whatever the words are.",
    ]
    conditions: Annotated[Any, list[LoadRuling], "What its --fail-if come to; empty without one.", doc.At("rulings")]
    points: Annotated[list[_Point], "The loads, the least first."]
    command: Annotated[str, "The command line that does it again."]


def sweep_document(known: LoadSweep, result: Result, *, facts: str) -> SweepDocument:
    """Return the whole result of a sweep, as plain JSON values in base units; `facts` are the host's, as JSON."""
    study, plan = known.study, known.study.sweep
    return part(
        SweepDocument,
        known,
        study=part(
            _SweepStudy,
            study,
            finished=known.finished,
            arm=study.arms[0].name,
            settings=study.arms[0].settings,
            workload=study.workloads[0].name,
            limit=None if plan is None or plan.limit is None else plan.limit.text,
            rounds=0 if plan is None else plan.rounds,
            trials=len(study.trials),
        ),
        facts=json.loads(facts) if facts else None,
        why=[one.text for one in known.why],
        reasons=[one.reason for one in known.why],
        points=[_point(known, result, one) for one in known.points],
        command=sweep_again(study),
    )


def _point(known: LoadSweep, result: Result, point: LoadPoint) -> _Point:
    summary = result.summary(known.study.arms[0].name, point.workload)
    return part(
        _Point,
        point,
        rounds=len(point.achieved),
        values={} if summary is None else {one.metric: one.value for one in summary.values},
    )
