# SPDX-License-Identifier: Apache-2.0
"""Diagnoses as one JSON document with a published schema."""

from collections.abc import Sequence
from typing import Annotated, TypedDict

from virtune import __version__
from virtune.model.bottleneck import CAUSE_WORDS, Cause, Diagnosis
from virtune.model.guideline import Walk
from virtune.model.proof import Proof, ProofOutcome, ProofReason
from virtune.model.threads import THREAD_ROLES, ThreadCost
from virtune.model.verdict import Interval
from virtune.report.json.document import (
    AT_LEAST_ONE,
    IDENTITY,
    NOT_EMPTY,
    NOT_NEGATIVE,
    POSITIVE,
    ProgramVersion,
    Sentence,
)
from virtune.report.json.layers import LayersPart, OperationPart, layers_document, operations_document

SCHEMA = "virtune/diagnose/6"


class _Thread(TypedDict):
    """A thread that carries I/O."""

    tid: Annotated[int, "Its id.", NOT_NEGATIVE]
    name: Annotated[str, "Its name."]
    role: Annotated[str, "What it does.", {"enum": [*THREAD_ROLES, "load"]}]
    cpu_seconds: Annotated[float, "CPU time in the window, in seconds.", NOT_NEGATIVE]
    user_seconds: Annotated[float, "User time, by clock ticks of 10 ms.", NOT_NEGATIVE]
    system_seconds: Annotated[float, "Kernel time, by clock ticks of 10 ms.", NOT_NEGATIVE]
    wait_seconds: Annotated[float | None, "Time in which it could have run and had no CPU.", NOT_NEGATIVE]
    sleeps: Annotated[int | None, "How often it went to sleep; null if unknown.", NOT_NEGATIVE]
    preempted: Annotated[int | None, "How often it was taken off its CPU; null if unknown.", NOT_NEGATIVE]
    cpu_per_io_seconds: Annotated[
        float | None, "CPU time for each I/O of the disks that the thread serves; null without I/Os.", NOT_NEGATIVE
    ]


class _Bottleneck(TypedDict):
    """What limits the disk."""

    cause: Annotated[Cause, "The cause; `undecidable` where nothing stands out."]
    text: Annotated[str, "The cause in words."]
    evidence: Annotated[list[Sentence], "By what it was seen."]
    experiment: Annotated[str, "What to try next."]
    rounds: Annotated[int, "Rounds that say so.", AT_LEAST_ONE]
    of: Annotated[int, "Rounds in all.", AT_LEAST_ONE]


class _Step(TypedDict):
    """A question."""

    question: Annotated[str, "The question."]
    yes: Annotated[bool, "The answer."]
    evidence: Annotated[str, "By what it was answered."]
    assumed: Annotated[bool, "Whether the answer is unknown, and no was taken."]


class _Guideline(TypedDict):
    """The way through the published tuning guideline; null where it does not apply."""

    id: Annotated[str, "Which guideline."]
    source: Annotated[str, "Where it comes from."]
    steps: Annotated[list[_Step], "The questions that were asked.", NOT_EMPTY]
    leaf: Annotated[str, "The id of what it ends in."]
    text: Annotated[str, "What it ends in."]
    limit: Annotated[bool, "Whether nothing is left to gain."]
    ours: Annotated[bool, "Whether the study has no such leaf."]


class _Change(TypedDict):
    """A ratio to the stack as it is; null where the rounds allow none."""

    ratio: Annotated[float, "The estimate.", POSITIVE]
    low: Annotated[float, "The lower end of its interval.", NOT_NEGATIVE]
    high: Annotated[float, "The upper end.", NOT_NEGATIVE]
    confidence: Annotated[float, "The confidence of the interval.", NOT_NEGATIVE]


class _Expected(TypedDict):
    """What the accusation promises; null where nothing was measured."""

    ratio: Annotated[float, "The ratio that the change must reach.", POSITIVE]
    falls: Annotated[bool, "Whether the load gets slower."]
    share: Annotated[float | None, "The layer's share of an I/O's time; null where the diagnosis gives no size."]


class _Proof(TypedDict):
    """The verdict of a comparison in which the accused layer was replaced; null without --prove."""

    outcome: Annotated[ProofOutcome, "What became of the accusation; `untested` where nothing was measured."]
    reason: Annotated[ProofReason, "Why, as a code."]
    why: Annotated[str, "Why, in words."]
    replaced_by: Annotated[str, "What took the place of the layer; empty where nothing was measured."]
    arm: Annotated[str, "The arm with the replacement."]
    study: Annotated[str, "The id of the comparison."]
    metric: Annotated[str | None, "What was compared."]
    change: _Change | None
    expected: _Expected | None
    stand_in_change: _Change | None
    rounds: Annotated[int, "Rounds of the comparison.", NOT_NEGATIVE]
    by_hand: Annotated[str, "What to try by hand, where nothing could be replaced."]
    notes: Annotated[list[Sentence], "What else matters."]


class _HostQueue(TypedDict):
    """The time of a request at the host's disk; null where the kernel does not tell."""

    queue_ns: Annotated[float, "Waiting in the block layer's queue, in ns.", NOT_NEGATIVE]
    device_ns: Annotated[float, "With the driver and the device, in ns.", NOT_NEGATIVE]


class _Disk(TypedDict):
    """A disk under a load."""

    disk: Annotated[str, "The disk: VM and target, or the arm of a study."]
    workload: Annotated[str, "The load: its name, or what was seen of it in fio's words."]
    rate: Annotated[str, "Of a live disk the rate of its I/Os, in fio's words; empty for a stored study."]
    sequential_share: Annotated[
        float | None,
        "Of a live disk the share of requests that follow those before them on it; null if unknown.",
        NOT_NEGATIVE,
    ]
    seconds: Annotated[
        float,
        "How long it was looked at; of a stored study the round that the figures and threads are of.",
        POSITIVE,
    ]
    iops: Annotated[float, "I/Os a second.", NOT_NEGATIVE]
    bandwidth_bps: Annotated[float, "Bytes a second.", NOT_NEGATIVE]
    operations: Annotated[
        list[OperationPart], "Its requests by what they ask for; of a live disk, without discards where unknown."
    ]
    failed_per_second: Annotated[float | None, "Requests that failed; null where they are not counted.", NOT_NEGATIVE]
    in_flight: Annotated[
        float | None,
        "Requests under way at a time, on average; where none was completed, how many wait; null if unseen.",
        NOT_NEGATIVE,
    ]
    waiting_seconds: Annotated[
        float | None,
        "How long at least none had been completed by the end while some were in flight; null where that is unseen.",
        NOT_NEGATIVE,
    ]
    bottleneck: _Bottleneck
    layers: LayersPart | None
    threads: Annotated[list[_Thread], "Threads of QEMU and of a load on this host."]
    host_queue: _HostQueue | None
    exits_per_io: Annotated[float | None, "How often KVM left the guest for each I/O; null if unknown.", NOT_NEGATIVE]
    guideline: _Guideline | None
    no_guideline: Annotated[str, "Why the guideline does not apply; empty where it does, or QEMU serves no guest."]
    emulated: Annotated[bool, "Whether the guest runs without KVM (TCG), so that its figures are the emulator's."]
    missing: Annotated[list[Sentence], "What could not be seen, and what it would add."]
    proof: _Proof | None


class DiagnoseDocument(TypedDict):
    """What limits disks under their load."""

    schema: Annotated[str, IDENTITY, {"const": SCHEMA}]
    virtune: ProgramVersion
    disks: Annotated[list[_Disk], "The disks."]


def diagnose_document(found: Sequence[Diagnosis]) -> DiagnoseDocument:
    """Return the diagnosis of each disk, in base units."""
    return {"schema": SCHEMA, "virtune": __version__, "disks": [_disk(one) for one in found]}


def _disk(one: Diagnosis) -> _Disk:
    path = one.path
    return {
        "disk": one.disk,
        "workload": one.workload,
        "rate": one.rate,
        "sequential_share": one.sequential,
        "seconds": one.seconds,
        "iops": path.iops,
        "bandwidth_bps": path.bandwidth,
        "operations": operations_document(path.operations),
        "failed_per_second": path.failed,
        "in_flight": path.held if path.layers is None else path.layers.in_flight,
        "waiting_seconds": None if path.held is None else path.held_seconds,
        "bottleneck": {
            "cause": one.found.cause,
            "text": CAUSE_WORDS[one.found.cause],
            "evidence": list(one.found.evidence),
            "experiment": one.found.experiment,
            "rounds": one.found.rounds,
            "of": one.found.of,
        },
        "layers": layers_document(one.layers),
        "threads": [_thread(thread, path.iops_of(thread)) for thread in path.threads],
        "host_queue": None
        if one.queue is None
        else {"queue_ns": one.queue.queue_ns, "device_ns": one.queue.device_ns},
        "exits_per_io": one.exits_per_io,
        "guideline": _guideline(one.guideline),
        "no_guideline": one.no_guideline,
        "emulated": path.emulated,
        "missing": list(one.missing),
        "proof": None if one.proof is None else _proof(one.proof),
    }


def _proof(found: Proof) -> _Proof:
    expected: _Expected | None = None
    if found.least is not None:
        expected = {"ratio": found.least, "falls": found.falls, "share": found.share}
    return {
        "outcome": found.outcome,
        "reason": found.reason,
        "why": found.why,
        "replaced_by": found.what,
        "arm": found.arm,
        "study": found.study,
        "metric": found.metric or None,
        "change": _change(found.change),
        "expected": expected,
        "stand_in_change": _change(found.stand_in),
        "rounds": found.rounds,
        "by_hand": found.by_hand,
        "notes": list(found.notes),
    }


def _change(found: Interval | None) -> _Change | None:
    if found is None:
        return None
    return {"ratio": found.estimate, "low": found.low, "high": found.high, "confidence": found.confidence}


def _guideline(found: Walk | None) -> _Guideline | None:
    if found is None:
        return None
    return {
        "id": found.guideline.id,
        "source": found.guideline.source,
        "steps": [
            {"question": one.question.text, "yes": one.yes, "evidence": one.evidence, "assumed": one.assumed}
            for one in found.steps
        ],
        "leaf": found.leaf.id,
        "text": found.leaf.text,
        "limit": found.leaf.limit,
        "ours": found.leaf.ours,
    }


def _thread(one: ThreadCost, iops: float) -> _Thread:
    return {
        "tid": one.tid,
        "name": one.name,
        "role": one.role,
        "cpu_seconds": one.cpu_seconds,
        "user_seconds": one.user_seconds,
        "system_seconds": one.system_seconds,
        "wait_seconds": one.wait_seconds,
        "sleeps": one.sleeps,
        "preempted": one.preempted,
        "cpu_per_io_seconds": one.cpu_seconds / one.seconds / iops if iops else None,
    }
