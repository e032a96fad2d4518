# SPDX-License-Identifier: Apache-2.0
"""Test a diagnosis on the running VM itself, where that can be taken back: QEMU's limit on a disk is lifted, an
IOThread polls or ceases to, or the pin of a thread that waits for a CPU is widened, and put back in turn, under the
load that the VM has. Other VMs and their loads are left alone.

It is journalled before the first turn, so that `virtune apply undo` puts it back whatever ended the test. The order
of each pair of turns is drawn by lot, so whatever else the load does, what holds nothing back is called the limit in
at most 5 % of tests; and the interval that is shown is what decides.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random

from virtune.analyse.layers.stations import STALLED
from virtune.analyse.stats.paired import Family, compare_by_ranks
from virtune.analyse.study.thresholds import judge_proof, ruled
from virtune.apply.journal import Entry, Journal, Step
from virtune.bench.live.domain import LiveView
from virtune.flows.live.turnable import LibvirtVm, MonitoredVm, Turnable, TurnableVm, turn
from virtune.model.bottleneck import Cause, Diagnosis
from virtune.model.errors import MissingToolError, PreconditionError, UsageError, VirtuneError
from virtune.model.live import DiskCount, rates_between
from virtune.model.metric import BY_ID
from virtune.model.study_options import OPTIONS
from virtune.model.verdict import ROUNDS_MIN, Outcome, Proof, ProofReason, ThresholdResult
from virtune.plan.interventions import AS_IS, INTERVENTIONS, condition_of
from virtune.virsh import Virsh, default_uri

PAIRS_FIRST, PAIRS = ROUNDS_MIN, 2 * ROUNDS_MIN
"""After so many pairs of turns it is looked whether they decide, and after how many at the latest."""

ERROR = 1 - OPTIONS["confidence"].default
_LEVELS = {PAIRS_FIRST: 2 * 0.5**PAIRS_FIRST, PAIRS: ERROR - 2 * 0.5**PAIRS_FIRST}
"""The error of each look: at the first the smallest that so few pairs allow, where all of them have to agree, and
what is left at the last. Together they are that of the confidence (Bonferroni)."""

TURN_LEAST, SETTLE_SECONDS = 0.5, 0.5
"""The shortest turn that is counted, and what is waited before each: a limit that is put back lets its burst pass
first."""

Turns = dict[str, list[float]]
"""IOPS in each turn: of the VM as it is, and of the other arm."""

POLLING_NS = 1_000_000
"""For so long an IOThread polls where it is tested whether that helps."""

_IOPS = BY_ID["iops"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTest:
    """A test of an accusation on the running VM; `target` is the disk whose I/Os are counted, `turn_seconds` how long
    a turn is counted.
    """

    vm: TurnableVm
    target: str
    one: Turnable
    turn_seconds: float

    @property
    def seconds(self) -> float:
        return 2 * PAIRS * (self.turn_seconds + SETTLE_SECONDS)


def accused_of(found: Sequence[Diagnosis]) -> Diagnosis:
    """Return the one diagnosis that accuses something; raises UsageError where there are several."""
    accused = [one for one in found if one.found.cause.accuses] or list(found[:1])
    if len(accused) > 1:
        names = ", ".join(one.disk for one in accused)
        raise UsageError(f"{len(accused)} disks are limited by something: {names}", hint="name the one to test")
    return accused[0]


def live_test(accused: Diagnosis, uri: str | None, socket: Path | None) -> LiveTest | Proof:
    """Return how an accusation is tested on the VM itself, in turns of a fifth of the look that made it, or the proof
    that says why it is not. `socket` is that of the monitor of a QEMU that no libvirt keeps.
    """
    name, _, target = accused.disk.rpartition(":")
    cause = accused.found.cause
    row = INTERVENTIONS[cause]
    if not cause.accuses:
        return Proof(reason=ProofReason.NOTHING_ACCUSED, why=row.without, by_hand=row.by_hand)
    with contextlib.suppress(PreconditionError, MissingToolError):
        vm = LibvirtVm(Virsh(uri or default_uri()), name) if socket is None else MonitoredVm.find(socket)
        one = None if vm is None else _turnable(accused, vm, target)
        if vm is not None and one is not None:
            return LiveTest(vm=vm, target=target, one=one, turn_seconds=max(TURN_LEAST, accused.seconds / 5))
    if cause is Cause.THROTTLE:
        why = "its limit is not that of QEMU on this one disk, which is all that virtune lifts and puts back"
        return Proof(reason=ProofReason.NOT_OURS, why=why, by_hand=accused.found.experiment)
    return Proof(
        reason=ProofReason.NOT_OURS,
        why="on a running VM only what can be put back is turned: a limit of QEMU's, the polling of an IOThread, the"
        " pin of a thread that waits for a CPU",
        by_hand=f"`virtune compare measure --like {accused.disk} --its-load` measures a test guest like it; then"
        " `virtune diagnose --run last --prove`",
    )


def _turnable(accused: Diagnosis, vm: TurnableVm, target: str) -> Turnable | None:
    """Return what takes the accused away while it is turned."""
    cause, path = accused.found.cause, accused.path
    serving = [one for one in path.threads if one.role == path.serving == "iothread"]
    match cause:
        case Cause.THROTTLE:
            return vm.limits(target)
        case Cause.RING:
            return vm.polling(serving, POLLING_NS)
        case Cause.IOTHREAD:
            return vm.polling(serving, 0)
        case Cause.HOST_CPU:
            waiting = [one for one in path.threads if one.role in (path.serving, "vcpu") and one.stalled >= STALLED]
            # a worker that a thread with a wider pin starts meanwhile keeps it, as long as there is work
            work = any(one.role in ("worker", "uring") and one.cpu_seconds > 0 for one in path.threads)
            return (None if work else vm.pins(waiting)) or vm.polling(serving, 0)
    return None


def prove_turning(
    accused: Diagnosis,
    test: LiveTest,
    journal: Journal,
    *,
    done: Callable[[], None],
    wait: Callable[[float], None],
) -> Diagnosis:
    """Turn it and put it back in random order, until `PAIRS` or the first `PAIRS_FIRST` of them decide, and judge
    what the load did meanwhile; `done` is called after each turn. Raises PreconditionError while a change of the VM
    is open, NotInForceError where it does not do as it is told; all is put back first.
    """
    vm, target, one = test.vm, test.target, test.one
    values: Turns = {AS_IS: [], one.arm: []}
    ruling = ruling_of(accused.workload, values)
    # the monitor is let go before all is put back by a connection of its own
    with _journalled(test, journal) as entry, vm.watched() as view:
        chance = Random(entry.id)  # noqa: S311 - a fair order, not a secret
        while len(values[AS_IS]) < PAIRS and ruling.outcome is Outcome.UNDECIDED:
            for arm in chance.sample(sorted(values), 2):
                turn(partial(vm.say, view), one.pairs, back=arm == AS_IS)
                wait(SETTLE_SECONDS)
                before = _counted(view, target)
                view.rest()
                wait(test.turn_seconds)
                rates = rates_between(before, _counted(view, target))
                values[arm].append((rates.reads + rates.writes) / rates.seconds)
                done()
            if len(values[AS_IS]) in _LEVELS:
                ruling = ruling_of(accused.workload, values)
    cause = accused.found.cause
    proof = judge_proof(ruling, cause=cause, again=cause, share=None, stand_in=None)
    what = f"the same VM with {one.named} {one.turned}, which is put back"
    return replace(accused, proof=replace(proof, what=what))


def _counted(view: LiveView, target: str) -> DiskCount:
    found = view.counts().get(target)
    if found is None:
        raise PreconditionError(f"the disk {target} is no longer there, or nothing counts what it does")
    return found


def ruling_of(workload: str, values: Turns) -> ThresholdResult:
    """Judge by the turns so far, of which a look is made after some numbers only, whether the load does more in the
    other arm than as it is.
    """
    (other,) = values.keys() - {AS_IS}
    family = Family(metric=_IOPS, workload=workload, margin=OPTIONS["margin"].default, confidence=1 - ERROR)
    level = _LEVELS.get(len(values[AS_IS]), 0.0)
    comparison = compare_by_ranks(family, (AS_IS, values[AS_IS]), (other, values[other]), level=level)
    return ruled(condition_of(_IOPS.id, None, falls=False), comparison, fewest=PAIRS_FIRST)


@contextlib.contextmanager
def _journalled(test: LiveTest, journal: Journal) -> Iterator[Entry]:
    """Write the change into the journal while the block runs, and put all back whatever ends it."""
    vm = test.vm
    with journal.alone():
        for one in journal.entries():
            if one.open and one.uuid == vm.uuid:
                raise PreconditionError(
                    f"a change of {vm.name} was cut short", hint=f"`virtune apply undo {one.id}` puts it back"
                )
        now = vm.configuration()
        entry = journal.begin(
            name=datetime.now(UTC).strftime("%Y%m%d-%H%M%S"), uri=vm.place, uuid=vm.uuid, domain=vm.name,
            turns=test.one.turns, live=test.one.pairs, before=now, after=now,
        )  # fmt: skip
        journal.step(entry, Step.LIVE)
        try:
            yield entry
        finally:
            _put_back(test, journal, entry)


def _put_back(test: LiveTest, journal: Journal, entry: Entry) -> None:
    one = test.one
    try:
        with test.vm.watched() as view:
            turn(partial(test.vm.say, view), one.pairs, back=True)
    except VirtuneError as error:
        ended = False
        with contextlib.suppress(VirtuneError):  # nobody may answer for it
            ended = test.vm.ended
        if not ended:
            error.hint = f"{one.named} may be {one.turned} still: `virtune apply undo {entry.id}` puts it back"
            raise
    journal.step(entry, Step.UNDONE)
