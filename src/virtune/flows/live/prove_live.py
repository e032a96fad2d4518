# SPDX-License-Identifier: Apache-2.0
"""Test a diagnosis on the running VM itself, where that can be taken back: QEMU's limit on a disk is lifted and put
back in turn, under the load that the VM has.

It is journalled before the first turn, so that `virtune apply undo` puts the limit back whatever ended the test. The
order of each pair of turns is drawn by lot, so whatever else the load does, a limit that holds nothing back is called
one in at most 5 % of tests; and the interval that is shown is what decides.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from virtune.analyse.stats.paired import Family, compare_by_ranks
from virtune.analyse.study.thresholds import judge_proof, ruled
from virtune.apply.journal import Entry, Journal, Step
from virtune.flows.live.limited import LibvirtDisk, LimitedDisk, MonitoredDisk, turned
from virtune.model.bottleneck import Cause, Diagnosis
from virtune.model.domain import SettingChange
from virtune.model.errors import MissingToolError, PreconditionError, UsageError, VirtuneError
from virtune.model.live import rates_between
from virtune.model.metric import BY_ID
from virtune.model.stack import LIMITS
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
"""IOPS in each turn, by whether the limit held."""

_LIFTED = "no-limit"
_IOPS = BY_ID["iops"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifting:
    """A test of a running VM's limit; `turn_seconds` is how long a turn is counted."""

    disk: LimitedDisk
    domain: str
    turn_seconds: float

    @property
    def words(self) -> str:
        """The limits, to be shown."""
        return ", ".join(f"{name} {value:,}" for name, value in self.disk.limits)

    @property
    def seconds(self) -> float:
        """How long the test takes at most."""
        return 2 * PAIRS * (self.turn_seconds + SETTLE_SECONDS)


def accused_of(found: Sequence[Diagnosis]) -> Diagnosis:
    """Return the one diagnosis that accuses something; raises UsageError where there are several."""
    accused = [one for one in found if one.found.cause.accuses] or list(found[:1])
    if len(accused) > 1:
        names = ", ".join(one.disk for one in accused)
        raise UsageError(f"{len(accused)} disks are limited by something: {names}", hint="name the one to test")
    return accused[0]


def lifting_of(accused: Diagnosis, uri: str | None, socket: Path | None) -> Lifting | Proof:
    """Return how an accusation is tested on the VM itself, in turns of a fifth of the look that made it, or the proof
    that says why it is not. `socket` is that of the monitor of a QEMU that no libvirt keeps.
    """
    name, _, target = accused.disk.rpartition(":")
    row = INTERVENTIONS[accused.found.cause]
    if not accused.found.cause.accuses:
        return Proof(reason=ProofReason.NOTHING_ACCUSED, why=row.without, by_hand=row.by_hand)
    if accused.found.cause is not Cause.THROTTLE:
        return Proof(
            reason=ProofReason.NOT_OURS,
            why="on a running VM only a limit of QEMU's is tested, which can be lifted and put back",
            by_hand=f"`virtune compare measure --like {accused.disk} --its-load` measures a test guest like it; then"
            " `virtune diagnose --run last --prove`",
        )
    disk: LimitedDisk | None = None
    with contextlib.suppress(PreconditionError, MissingToolError):
        if socket is not None:
            disk = MonitoredDisk.find(socket, target)
        else:
            disk = LibvirtDisk.find(Virsh(uri or default_uri()), name, target)
    if disk is None:
        why = "its limit is not that of QEMU on this one disk, which is all that virtune lifts and puts back"
        return Proof(reason=ProofReason.NOT_OURS, why=why, by_hand=accused.found.experiment)
    return Lifting(disk=disk, domain=name, turn_seconds=max(TURN_LEAST, accused.seconds / 5))


def prove_lifting(
    accused: Diagnosis,
    test: Lifting,
    journal: Journal,
    *,
    turn: Callable[[], None],
    wait: Callable[[float], None],
) -> Diagnosis:
    """Lift the limits and put them back in random order, until `PAIRS` or the first `PAIRS_FIRST` of them decide, and
    judge what the load did meanwhile; `turn` is called after each turn. Raises PreconditionError while a change of
    the VM is open, NotInForceError where it does not do as it is told; the limits are put back first.
    """
    values: Turns = {AS_IS: [], _LIFTED: []}
    ruling = ruling_of(accused.workload, values)
    # the monitor is let go before the limits are put back by a connection of their own
    with _journalled(test, journal) as entry, test.disk.watched() as view:
        chance, target = Random(entry.id), test.disk.target  # noqa: S311 - a fair order, not a secret
        while len(values[AS_IS]) < PAIRS and ruling.outcome is Outcome.UNDECIDED:
            for arm in chance.sample(sorted(values), 2):
                turned(test.disk, view, lifted=arm == _LIFTED)
                wait(SETTLE_SECONDS)
                before = view.counts()[target]
                view.rest()
                wait(test.turn_seconds)
                rates = rates_between(before, view.counts()[target])
                values[arm].append((rates.reads + rates.writes) / rates.seconds)
                turn()
            if len(values[AS_IS]) in _LEVELS:
                ruling = ruling_of(accused.workload, values)
    cause = accused.found.cause
    proof = judge_proof(ruling, cause=cause, again=cause, share=None, stand_in=None)
    what = f"the same disk with its limit ({test.words}) lifted, which is put back"
    return replace(accused, proof=replace(proof, what=what))


def ruling_of(workload: str, values: Turns) -> ThresholdResult:
    """Judge by the turns so far, of which a look is made after some numbers only, whether the load does more without
    the limit.
    """
    family = Family(metric=_IOPS, workload=workload, margin=OPTIONS["margin"].default, confidence=1 - ERROR)
    level = _LEVELS.get(len(values[AS_IS]), 0.0)
    comparison = compare_by_ranks(family, (AS_IS, values[AS_IS]), (_LIFTED, values[_LIFTED]), level=level)
    return ruled(condition_of(_IOPS.id, None, falls=False), comparison, fewest=PAIRS_FIRST)


@contextlib.contextmanager
def _journalled(test: Lifting, journal: Journal) -> Iterator[Entry]:
    """Write the change into the journal while the block runs, and put the limits back whatever ends it."""
    disk = test.disk
    with journal.alone():
        for one in journal.entries():
            if one.open and one.uuid == disk.uuid:
                raise PreconditionError(
                    f"a change of {test.domain} was cut short", hint=f"`virtune apply undo {one.id}` puts it back"
                )
        now = disk.configuration()
        knobs = [limit.knob for limit in LIMITS if limit.libvirt in dict(disk.limits)]
        entry = journal.begin(
            name=datetime.now(UTC).strftime("%Y%m%d-%H%M%S"), uri=disk.place, uuid=disk.uuid, domain=test.domain,
            turns=[SettingChange(knob=knob, at=disk.target, value="0") for knob in knobs],
            live=[(disk.lift, disk.back)], before=now, after=now,
        )  # fmt: skip
        journal.step(entry, Step.LIVE)
        try:
            yield entry
        finally:
            _put_back(disk, journal, entry)


def _put_back(disk: LimitedDisk, journal: Journal, entry: Entry) -> None:
    try:
        with disk.watched() as view:
            turned(disk, view, lifted=False)
        journal.step(entry, Step.UNDONE)
    except VirtuneError as error:
        error.hint = f"the limit of {disk.target} may be lifted still: `virtune apply undo {entry.id}` puts it back"
        raise
