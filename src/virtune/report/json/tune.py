# SPDX-License-Identifier: Apache-2.0
"""The result of a search as a JSON document."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict

from virtune.model.durability import Promise
from virtune.model.metric import BY_ID
from virtune.model.reason import OF_RECOMMENDATIONS, OF_VERDICTS, Reason
from virtune.model.result import Basis, RampFinding
from virtune.model.search import Factor, Phase, Removed, Search, SetApart
from virtune.model.study import Study
from virtune.model.tuning import (
    ArmAttempts,
    Contrast,
    LimitCheck,
    Place,
    Recommendation,
    Runner,
    Soak,
    Spelled,
    Tuning,
)
from virtune.model.verdict import Interval, Verdict
from virtune.model.workload import Job
from virtune.report.json import document as doc
from virtune.report.json.document import maker, part
from virtune.report.json.host import ProbeDocument
from virtune.report.json.parts import A_METRIC, CheckedPart, FirstReads
from virtune.report.reproduce import tune_again

_OF_PROGRAMS = {"propertyNames": {"enum": ["qemu", "qemu-img", "libvirt"]}}
"""In whose words a winner is written."""

_AsWritten = Annotated[str, "The value, as it was written."]
_Limit = Annotated[str, "A limit."]

_Attempts = Annotated[int, "Attempts at its trials in all phases, failed and invalid ones too.", doc.NOT_NEGATIVE]
_Failed = Annotated[int, "How many of them gave no measurement.", doc.NOT_NEGATIVE]
_Invalid = Annotated[
    Mapping[str, Annotated[int, "A number of attempts.", doc.AT_LEAST_ONE]],
    "How many of them were invalid, by the id of the remark that says why.",
    doc.Keys.CAUSES,
]


class _Job(TypedDict):
    """One job of a workload."""

    workload: Annotated[str, "The workload that it belongs to."]
    name: Annotated[str, "Its name."]
    options: Annotated[Mapping[str, _AsWritten], "fio's options."]


class SearchPart(TypedDict):
    """What was searched, and how."""

    id: Annotated[str, "By which `show` and `resume` find it."]
    kind: Annotated[str, "The verb that made it.", {"const": "tune"}]
    created: Annotated[doc.Moment, "When it was begun, in UTC."]
    mode: Annotated[Literal["quick", "certify"], "How the race is run."]
    metric: Annotated[str, "The metric that is improved.", A_METRIC]
    better: Annotated[Literal["higher", "lower"], "Which way is better."]
    limits: Annotated[list[_Limit], "What must be kept, as it was written."]
    durability: Annotated[Promise, "What every ranked configuration promises.", doc.At("promise")]
    ranked: Annotated[int, "How many configurations compete.", {"minimum": 2}]
    tries: Annotated[
        int | None, "At most so many of them race, as Optuna proposes them; null where all do.", doc.AT_LEAST_ONE
    ]
    spread_seconds: Annotated[float, "Blocks of the race begin at least so many seconds apart.", doc.NOT_NEGATIVE]
    baseline: Annotated[str, "The arm that is there now."]
    margin: Annotated[float, "A difference that is not worth more measuring (0.03 is 3 %).", doc.POSITIVE]
    ramp_seconds: Annotated[float, "Warm-up before each slice, not measured, in seconds.", doc.NOT_NEGATIVE]
    seed: Annotated[int, "Seed of the order of trials and of random offsets.", doc.NOT_NEGATIVE]
    span_bytes: Annotated[
        int, "Size of the scratch image, or how much of a target is used, in bytes.", doc.AT_LEAST_ONE
    ]
    target: Annotated[str | None, "The user's own file or device that was loaded; null for scratch images."]
    first_reads: FirstReads
    workloads: Annotated[list[doc.Name], "The names of the workloads.", doc.NOT_EMPTY]
    jobs: Annotated[list[_Job], "Their jobs, as fio is asked."]
    budget_seconds: Annotated[
        float | None, "The time that was given to all of it, in seconds; null is the mode's own.", doc.NOT_NEGATIVE
    ]
    factors: Annotated[Any, list[Factor], "The knobs that are varied."]
    removed: Annotated[Any, list[Removed], "What was left out."]
    apart: Annotated[Any, list[SetApart], "What is never ranked with the others."]
    finished: Annotated[bool, "Whether nothing is left to run."]
    phase: Annotated[Phase, "What is run, or was run last."]


class ConfirmationPart(TypedDict):
    """Winner against baseline on fresh data, started anew for each measurement."""

    pairs: Annotated[int, "Pairs of starts that gave values of both.", doc.NOT_NEGATIVE]
    winner: Annotated[float | None, "The metric of the winner: geometric mean over its starts."]
    baseline: Annotated[float | None, "The metric of the baseline: geometric mean over its starts."]
    ratio: Annotated[Any, Interval | None, "winner / baseline of the metric: Hodges-Lehmann over pairs of starts."]
    verdict: Annotated[Verdict, "Of the winner against the baseline."]
    why: Annotated[str, "The reason, in words.", doc.At("why.text")]
    reason: Annotated[Reason, doc.CODE, {"enum": [*OF_VERDICTS]}, doc.At("why.reason")]
    spread: Annotated[float | None, "Relative standard deviation over the winner's starts.", doc.NOT_NEGATIVE]
    baseline_spread: Annotated[float | None, "The same of the baseline.", doc.NOT_NEGATIVE]
    unstable: Annotated[bool, "Whether the winner's starts differ by more than a tenth."]
    breaks: Annotated[list[_Limit], "Limits that the winner's fresh data do not keep."]
    processes: Annotated[
        int | None,
        "In how many processes the winner was measured: where they are fewer than the pairs, a start was a guest's"
        " disk made anew in the machine that there was. Null where it was not written down.",
        doc.AT_LEAST_ONE,
    ]


class ContrastPart(TypedDict):
    """ln(arm / leader) in the direction of the goal: below 0 is worse than the leader."""

    mean: Annotated[float, "The difference itself."]
    low: Annotated[float | None, "The lower end of the interval, null where there is none."]
    high: Annotated[float | None, "The upper end of the interval, null where there is none."]
    blocks: Annotated[int, "Blocks that both ran.", doc.NOT_NEGATIVE]
    sd: Annotated[float | None, "Standard deviation of one block's difference (ln), as it went into the interval."]
    lag1: Annotated[float | None, "How alike neighbouring blocks were taken to be, 0 to 0.9.", doc.NOT_NEGATIVE]
    why: Annotated[str | None, "Why there is no interval."]
    reason: Annotated[Reason | None, doc.CODE, {"enum": [*OF_VERDICTS, None]}]


class RunnerPart(TypedDict):
    """One configuration."""

    name: Annotated[str, "Its name."]
    settings: Annotated[Mapping[str, _AsWritten], "Its settings by knob."]
    place: Annotated[Place, "Where it stands."]
    blocks: Annotated[int, "Blocks that gave a value.", doc.NOT_NEGATIVE]
    out_after: Annotated[int | None, "Blocks after which it was eliminated.", doc.AT_LEAST_ONE]
    value: Annotated[float | None, "The goal's metric, in its base unit, of the first workload."]
    against_leader: ContrastPart | None
    attempts: _Attempts
    failed: _Failed
    invalid: _Invalid


class _Broken(TypedDict):
    """One of them."""

    arm: Annotated[str, "Its name."]
    after_blocks: Annotated[int, "Blocks after which that was known.", doc.AT_LEAST_ONE]
    attempts: _Attempts
    failed: _Failed
    invalid: _Invalid


class CostPart(TypedDict):
    """What the search cost, and what going on would."""

    blocks: Annotated[int, "Blocks of the race.", doc.NOT_NEGATIVE]
    slices: Annotated[int, "Slices of the race.", doc.NOT_NEGATIVE]
    slices_max: Annotated[int | None, "After how many the race stops as it is; null for never.", doc.NOT_NEGATIVE]
    slices_left: Annotated[
        int | None, "Forecast of the slices to a certificate; null where none is.", doc.NOT_NEGATIVE
    ]
    slice_seconds: Annotated[float, "Measured time of a slice, in seconds.", doc.POSITIVE]
    noise: Annotated[
        float | None,
        "Standard deviation (ln) of neighbouring slices of the baseline.",
        doc.NOT_NEGATIVE,
        doc.At("sd"),
    ]
    certificate_seconds: Annotated[
        float | None,
        "What a certificate takes at most by the probe, were all nearly as good as the best; null where that cannot"
        " be said.",
        doc.NOT_NEGATIVE,
    ]
    measured_seconds: Annotated[float, "Seconds of load, ramps included.", doc.NOT_NEGATIVE]
    elapsed_seconds: Annotated[
        float, "Seconds from the beginning to the last trial, pauses left out.", doc.NOT_NEGATIVE
    ]
    grid_seconds: Annotated[float, "What five runs of a minute for each configuration measure.", doc.NOT_NEGATIVE]


class _Basis(TypedDict):
    """The evidence behind the verdicts."""

    unit: Annotated[Literal["block"], "What the race counts as one observation."]
    confirmation_unit: Annotated[Literal["start"], "What the confirmation counts as one: both made anew."]
    checked: CheckedPart
    workloads: Annotated[Any, list[Basis], "By workload; none while the race runs."]
    command: Annotated[str, "The command line that searches the same again, with the same seed."]


class TuneDocument(TypedDict):
    """What `virtune tune`, and `resume` and `show` of a search, write with `--json`. Base units throughout: ns,
    bytes, 1/s, CPU seconds per I/O.
    """

    schema: Annotated[str, doc.IDENTITY, {"const": "virtune/tune/1"}]
    virtune: doc.ProgramVersion
    study: SearchPart
    facts: Annotated[ProbeDocument | None, "The host as it was when the search began."]
    recommendation: Annotated[Recommendation, "What to do."]
    why: Annotated[str, "The reason, in words.", doc.At("why.text")]
    reason: Annotated[Reason, doc.CODE, {"enum": [*OF_RECOMMENDATIONS]}, doc.At("why.reason")]
    winner: Annotated[
        str | None,
        "The arm that is ahead; to change to it or to keep it is the recommendation. Null while nobody leads.",
    ]
    leader: Annotated[
        str | None,
        "The arm that leads the race; another than the winner where it may break a limit.",
        doc.At("standing.leader"),
    ]
    distance: Annotated[
        float | None, "The winner is at most this share below the best of the ranked (0.03 is 3 %).", doc.NOT_NEGATIVE
    ]
    error: Annotated[float, "The probability that anything said of the race is not so, 0 to 1.", doc.NOT_NEGATIVE]
    certified: Annotated[
        bool, "Whether the leader is certainly within the margin of the best.", doc.At("standing.certified")
    ]
    rivals: Annotated[
        list[doc.Name],
        "Arms that may be better than the leader by more than the margin: while there are any, which one is the best"
        " is undecided.",
    ]
    tied: Annotated[list[doc.Name], "Arms that are certainly as good as the leader within the margin."]
    confirmation: ConfirmationPart | None
    soaks: Annotated[Any, list[Soak], "Arms that were loaded for minutes."]
    limits: Annotated[Any, list[LimitCheck], "Every arm against every limit.", doc.At("checks")]
    arms: Annotated[list[RunnerPart], "The arms that compete and break no limit."]
    tried: Annotated[int, "How many configurations were raced.", doc.NOT_NEGATIVE]
    broken: Annotated[list[_Broken], "Arms that certainly break a limit."]
    cost: CostPart
    repeated: Annotated[int, "Attempts that failed or were disturbed, and ran again.", doc.NOT_NEGATIVE]
    basis: _Basis
    ramps: Annotated[Any, list[RampFinding], "Ramps that were found too short, in the order of time."]
    notes: Annotated[
        list[doc.Sentence], "Warnings: disturbances that repeated attempts did not remove, and limits of the result."
    ]
    spelled: Annotated[
        Mapping[str, Annotated[str, "The text."]],
        "The winner, as other programs configure it; empty while none is recommended.",
        _OF_PROGRAMS,
    ]
    spelled_notes: Annotated[
        Mapping[str, Annotated[list[doc.Sentence], "In words."]],
        "Notes on these texts, or why there are none.",
        _OF_PROGRAMS,
    ]


def tuning_document(known: Tuning, facts: str, spelled: Sequence[Spelled] = ()) -> TuneDocument:
    """Return the whole result of a search; `facts` are those of the host, as JSON, and `spelled` is the winner."""
    study, standing = known.study, known.standing
    tried = {one.arm: one for one in known.attempts}
    none = ArmAttempts(arm="", attempts=0)
    return part(
        TuneDocument,
        known,
        study=_search(known, study, known.search),
        facts=json.loads(facts) if facts else None,
        error=known.search.error,
        arms=[_arm(known, runner, tried.get(runner.arm, none)) for runner in standing.runners],
        tried=len(standing.runners) + len(known.broken),
        broken=[_broken(tried.get(arm, none), arm, after) for arm, after in known.broken],
        cost=part(
            CostPart,
            known,
            standing,
            known.probed,
            slices=standing.slices,
            grid_seconds=known.search.grid_seconds,
        ),
        basis=part(_Basis, study, workloads=known.basis, command=tune_again(study)),
        spelled={one.program: one.text for one in spelled if one.text},
        spelled_notes={one.program: one.notes for one in spelled if one.notes},
    )


def _broken(tried: ArmAttempts, arm: str, after_blocks: int) -> _Broken:
    return part(_Broken, tried, arm=arm, after_blocks=after_blocks)


def _search(known: Tuning, study: Study, search: Search) -> SearchPart:
    return part(
        SearchPart,
        known,
        study,
        search,
        better=BY_ID[study.metric].better,
        limits=[limit.text for limit in search.goal.limits],
        ranked=len(search.ranked),
        workloads=[workload.name for workload in study.workloads],
        jobs=[_job(job, workload.name) for workload in study.workloads for job in workload],
        budget_seconds=search.budget_seconds,
    )


def _job(job: Job, workload: str) -> _Job:
    return part(_Job, job, workload=workload)


def _arm(known: Tuning, runner: Runner, tried: ArmAttempts) -> RunnerPart:
    arm = known.study.arm(runner.arm)
    return part(RunnerPart, arm, runner, tried, value=dict(known.values).get(arm.name))


@maker
def _contrast(found: Contrast) -> ContrastPart:
    """ln(arm / leader) in the goal's direction: below 0 is worse; the ends are None where there is no interval."""
    bounded = found.why is None
    return part(
        ContrastPart,
        found,
        mean=-found.mean,
        low=-found.high if bounded else None,
        high=-found.low if bounded else None,
        lag1=None if found.sd is None else found.lag1,
        why=None if found.why is None else found.why.text,
        reason=None if found.why is None else found.why.reason,
    )
