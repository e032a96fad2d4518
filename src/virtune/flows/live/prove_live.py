# SPDX-License-Identifier: Apache-2.0
"""Test a diagnosis on the running VM itself, where that can be taken back: QEMU's limit on a libvirt domain's disk is
lifted and put back in turn, under the load that the VM has.

It is journalled before the first turn, so that `virtune apply undo` puts the limit back whatever ended the test.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from random import Random

from virtune.analyse.stats.paired import Family, compare
from virtune.analyse.study.thresholds import judge_proof, ruled
from virtune.apply.journal import Entry, Journal, Step
from virtune.apply.libvirt import LibvirtDomain
from virtune.bench.live.domain import LiveDomain
from virtune.dialects.libvirt.domain import read_domain
from virtune.model.bottleneck import Cause, Diagnosis
from virtune.model.domain import DomainDisk, SettingChange
from virtune.model.errors import MissingToolError, NotInForceError, PreconditionError, UsageError, VirtuneError
from virtune.model.live import rates_between
from virtune.model.metric import BY_ID
from virtune.model.stack import LIMITS
from virtune.model.study_options import OPTIONS
from virtune.model.verdict import ROUNDS_MIN, Proof, ProofReason
from virtune.plan.interventions import AS_IS, INTERVENTIONS, condition_of
from virtune.virsh import Virsh, default_uri

TURNS, TURN_LEAST, SETTLE_SECONDS = 2 * ROUNDS_MIN, 0.5, 0.5
"""How many turns there are, the shortest that is counted, and what is waited before each: a limit that is put back
lets its burst pass first."""

_LIFTED = "no-limit"
_IOPS = BY_ID["iops"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifting:
    """The limits of one disk of a running domain, by libvirt's names, and virsh's words that lift them and put them
    back; `turn_seconds` is how long a turn is counted.
    """

    virsh: Virsh
    uuid: str
    domain: str
    target: str
    limits: tuple[tuple[str, int], ...]
    lift: tuple[str, ...]
    back: tuple[str, ...]
    turn_seconds: float

    @property
    def words(self) -> str:
        """The limits, to be shown."""
        return ", ".join(f"{name} {value:,}" for name, value in self.limits)

    @property
    def seconds(self) -> float:
        """How long the test takes."""
        return TURNS * (self.turn_seconds + SETTLE_SECONDS)


def accused_of(found: Sequence[Diagnosis]) -> Diagnosis:
    """Return the one diagnosis that accuses something; raises UsageError where there are several."""
    accused = [one for one in found if one.found.cause.accuses] or list(found[:1])
    if len(accused) > 1:
        names = ", ".join(one.disk for one in accused)
        raise UsageError(f"{len(accused)} disks are limited by something: {names}", hint="name the one to test")
    return accused[0]


def lifting_of(accused: Diagnosis, uri: str | None) -> Lifting | Proof:
    """Return how an accusation is tested on the VM itself, in turns of a fifth of the look that made it, or the proof
    that says why it is not.
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
    virsh = Virsh(uri or default_uri())
    uuid, disk = "", None
    with contextlib.suppress(PreconditionError, MissingToolError):
        uuid = LiveDomain(virsh, name).uuid
        disk = _running_disk(virsh, uuid, target)
    if disk is None or not any(value for _, value in disk.limits) or disk.limits_group:
        why = "its limit is not that of one disk of a libvirt domain, which is all that virtune lifts and puts back"
        return Proof(reason=ProofReason.NOT_OURS, why=why, by_hand=accused.found.experiment)
    turn_seconds = max(TURN_LEAST, accused.seconds / 5)
    return _lifting(Virsh(virsh.uri, write=True), uuid, name, disk, turn_seconds)


def _running_disk(virsh: Virsh, uuid: str, target: str) -> DomainDisk | None:
    found = virsh.dump([uuid])
    return read_domain(found[0].live.encode()).disk(target) if found and found[0].live is not None else None


def _lifting(virsh: Virsh, uuid: str, name: str, disk: DomainDisk, turn_seconds: float) -> Lifting:
    def tuned(values: Sequence[tuple[str, int]]) -> tuple[str, ...]:
        words = (word for name, value in values for word in (f"--{name.replace('_', '-')}", str(value)))
        return ("blkdeviotune", uuid, disk.target, *words, "--live")

    limits = tuple((limit, value) for limit, value in disk.limits if value)
    lifted = [(limit, 0) for limit, _ in limits]
    return Lifting(
        virsh=virsh, uuid=uuid, domain=name, target=disk.target, limits=limits, lift=tuned(lifted),
        back=tuned(limits), turn_seconds=turn_seconds,
    )  # fmt: skip


def prove_lifting(
    accused: Diagnosis,
    test: Lifting,
    journal: Journal,
    *,
    turn: Callable[[], None],
    wait: Callable[[float], None],
) -> Diagnosis:
    """Lift the limits and put them back, `ROUNDS_MIN` times in random order, and judge what the load did meanwhile;
    `turn` is called after each of `TURNS`. Raises PreconditionError while a change of the domain is open,
    NotInForceError where libvirt does not do as it is told; the limits are put back first.
    """
    values: dict[str, list[float]] = {AS_IS: [], _LIFTED: []}
    with _journalled(test, journal) as entry:
        chance = Random(entry.id)  # noqa: S311 - a fair order, not a secret
        view = LiveDomain(test.virsh, test.domain)
        for _ in range(ROUNDS_MIN):
            for arm in chance.sample(sorted(values), 2):
                _set(test, lifted=arm == _LIFTED)
                wait(SETTLE_SECONDS)
                before = view.counts()[test.target]
                wait(test.turn_seconds)
                rates = rates_between(before, view.counts()[test.target])
                values[arm].append((rates.reads + rates.writes) / rates.seconds)
                turn()
    family = Family(
        metric=_IOPS, workload=accused.workload, margin=OPTIONS["margin"].default,
        confidence=OPTIONS["confidence"].default,
    )  # fmt: skip
    comparison = compare(family, (AS_IS, values[AS_IS]), (_LIFTED, values[_LIFTED]))
    ruling = ruled(condition_of(_IOPS.id, None, falls=False), comparison, fewest=ROUNDS_MIN)
    cause = accused.found.cause
    proof = judge_proof(ruling, cause=cause, again=cause, share=None, stand_in=None)
    what = f"the same disk with its limit ({test.words}) lifted, which is put back"
    return replace(accused, proof=replace(proof, what=what))


@contextlib.contextmanager
def _journalled(test: Lifting, journal: Journal) -> Iterator[Entry]:
    """Write the change into the journal while the block runs, and put the limits back whatever ends it."""
    domain = LibvirtDomain(test.virsh, test.uuid)
    with journal.alone():
        for one in journal.entries():
            if one.open and one.uuid == test.uuid:
                raise PreconditionError(
                    f"a change of {test.domain} was cut short", hint=f"`virtune apply undo {one.id}` puts it back"
                )
        now = domain.configuration()
        domain.require_persistent(test.domain)
        knobs = [limit.knob for limit in LIMITS if limit.libvirt in dict(test.limits)]
        entry = journal.begin(
            name=datetime.now(UTC).strftime("%Y%m%d-%H%M%S"), uri=test.virsh.uri, uuid=test.uuid, domain=test.domain,
            turns=[SettingChange(knob=knob, at=test.target, value="0") for knob in knobs],
            live=[(test.lift, test.back)], before=now, after=now,
        )  # fmt: skip
        journal.step(entry, Step.LIVE)
        try:
            yield entry
        finally:
            _put_back(test, journal, entry)


def _put_back(test: Lifting, journal: Journal, entry: Entry) -> None:
    try:
        _set(test, lifted=False)
        journal.step(entry, Step.UNDONE)
    except VirtuneError as error:
        error.hint = f"the limit of {test.target} may be lifted still: `virtune apply undo {entry.id}` puts it back"
        raise


def _set(test: Lifting, *, lifted: bool) -> None:
    """Lift the limits or put them back; raises NotInForceError where the running domain then shows others."""
    LibvirtDomain(test.virsh, test.uuid).live(test.lift if lifted else test.back)
    disk = _running_disk(test.virsh, test.uuid, test.target)
    shown = {} if disk is None else {name: value for name, value in disk.limits if value}
    if disk is None or (disk.rate_limits if lifted else shown != dict(test.limits)):
        way = "lifted" if lifted else "put back"
        raise NotInForceError(f"the limits of {test.target} were {way}, and libvirt shows {shown or 'none'}")
