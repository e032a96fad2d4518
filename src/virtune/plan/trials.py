# SPDX-License-Identifier: Apache-2.0
"""The trials of a study: their order (every arm under every workload once per round, so that drift affects all of
them alike), the interim looks of a comparison with a planned end, with the share of the plan done at each, and a
forecast of how long they take: their planned time, the overhead of each, and how many have to be repeated.

A rig's overhead is in its row (`model.rig`), as measured on one host; measurements of this host in the store are
preferred.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random
from statistics import fmean, median

from virtune.model.contradictions import images_of
from virtune.model.errors import PlanError
from virtune.model.rig import RIGS
from virtune.model.stack import Stack
from virtune.model.steady import PASSES
from virtune.model.study import Study, Trial

TRIALS_MAX = 100_000
"""At three seconds each this is more than three days; a plan with more is taken for a mistake."""


def trials(
    arms: Sequence[str], workloads: Sequence[str], *, rounds: int, seed: int, restart: bool = False
) -> tuple[Trial, ...]:
    """Plan the trials: `rounds` complete blocks of every arm under every workload, every other one in a new random
    order and the one after it in the reverse of that, so that no arm gains by its place in a round.

    The same seed gives the same order, and more rounds go on where fewer ended. `restart`: each in a new process.
    """
    if not arms or not workloads or rounds < 1:
        raise PlanError("a study needs an arm, a workload and a round")
    count = len(arms) * len(workloads) * rounds
    if count > TRIALS_MAX:
        raise PlanError(f"{count:,} trials are more than {TRIALS_MAX:,}", hint="fewer rounds, arms or workloads")
    pairs = [(arm, workload) for arm in arms for workload in workloads]
    if len(set(pairs)) < len(pairs):
        raise PlanError("two arms, or two workloads, have the same name")
    chance = Random(seed)  # noqa: S311 - a fair order, not a secret
    order: list[tuple[int, str, str]] = []
    places = pairs
    for block in range(1, rounds + 1):
        places = chance.sample(pairs, len(pairs)) if block % 2 else places[::-1]
        order += ((block, *pair) for pair in places)
    return tuple(
        Trial(number=number, round=block, arm=arm, workload=workload, restart=restart)
        for number, (block, arm, workload) in enumerate(order, 1)
    )


def propose(
    study: Study,
    *,
    rounds: int,
    workloads: Collection[str],
    without: Collection[tuple[str, str]] = (),
    restart: bool = False,
) -> tuple[Trial, ...]:
    """Return the trials of the next `rounds` rounds of these workloads, after those in `study.trials`; none when the
    study's rounds are used up.

    The same seed gives the same order, in however many steps it is requested; a workload that needs no more trials,
    or an arm under one (`without`), leaves the order of the others as it is.
    """
    begun = study.rounds_begun
    names = [arm.name for arm in study.arms], [workload.name for workload in study.workloads]
    last = min(begun + rounds, most_rounds(study))
    if last <= begun:
        return ()
    drawn = trials(*names, rounds=last, seed=study.seed, restart=restart)
    wanted = (trial for trial in drawn if trial.round > begun and trial.workload in workloads)
    next_ones = (trial for trial in wanted if (trial.arm, trial.workload) not in without)
    return tuple(replace(trial, number=number) for number, trial in enumerate(next_ones, len(study.trials) + 1))


def most_rounds(study: Study) -> int:
    """Return the most rounds of a study: the requested ones, and for a comparison at most the allowed number of
    trials.

    A comparison ends when it is decided or out of time, so a limit that is never reached does no harm.
    """
    allowed = TRIALS_MAX // max(1, len(study.arms) * len(study.workloads))
    return min(study.rounds, allowed) if study.sequential else study.rounds


def trial_seed(study_seed: int, block: int) -> int:
    """Return the seed of all loads of one round: equal offsets for every arm, new ones in the next round."""
    return study_seed + block


LOOKS_APART = 0.02
"""Looks are at least this share of the earlier rounds apart, so up to 50 rounds there is one after every round: more
looks would hardly decide earlier, and each takes computing time.
"""


def plan_done(study: Study, seconds: float) -> float:
    """Return the share of a study's plan that is done after so many seconds of trials: of its rounds or its budget,
    whichever is further.
    """
    done = study.rounds_begun / most_rounds(study)
    return min(1.0, done if study.budget_seconds is None else max(done, seconds / study.budget_seconds))


def looked_at(study: Study, share: float) -> Study:
    """Return the study with a look after the rounds so far, at this share of its plan.

    Error that was spent stays spent, so a share is never less than at the look before, even if the clock jumps after
    a resumption. A study whose rounds are fixed stays as it is.
    """
    if not study.sequential:
        return study
    rounds = study.rounds_begun
    before = tuple(one for one in study.looks if one[0] < rounds)
    last, spent = before[-1] if before else (0, 0.0)
    if share < 1 and rounds - last < LOOKS_APART * last:
        return study
    return replace(study, looks=(*before, (rounds, max(share, spent))))


_GENERATOR_SECONDS = 0.1
"""The overhead of an attempt with virtune-load, which starts and ends in 0.01 s."""

_BARE_SECONDS, _BARE_START_SECONDS = 0.4, 0.8
"""The overhead of an attempt in a guest without an operating system, and of its start: it has no shell to ask, and
no system to boot.
"""

_HANDED_SECONDS = 1.5
"""How long it takes to hand a drive over and back: two resets, and the host's look at its namespace."""

_GUEST_SECONDS = 0.5
"""The extra overhead of each further guest of a stack: they are prepared one after another."""

FILL_BYTES_PER_SECOND = 250e6
"""How fast a scratch image is filled; disks do between 100 MB/s and 2 GB/s."""

_READ_BYTES_PER_SECOND = 500e6
"""How fast images are read once before the first trial; disks do between 100 MB/s and 5 GB/s."""

_READ_SHARE, _READ_SECONDS_MIN, _READ_SECONDS_MAX = 0.1, 5.0, 60.0
"""The most time for it, as a share of what the trials may take, and its bounds. 1 GiB that came at 200 MB/s would be
read in five seconds; what takes longer than a minute had better be a smaller --span.
"""

START_SECONDS = 1.5
"""The overhead of every run: loading Python and libraries, querying tools, computing the result."""

_LONGEST_REPEAT = 6
"""After so many attempts a cause that disturbs most of them no longer repeats any (`analyse.trial.rejection`)."""

_RECENT = 6
"""How many of the last attempts count for the rate of repeats: disturbances come and go."""

_DATA_LOADS, _DATA_SECONDS = 3, 0.4
"""The loads of a check of an arm's data, and about how long each takes."""

_CUT_LOADS = 6
"""The same of a check of its durability: three are cut off, and what each left is read back."""

_INVENTED_SECONDS = 0.025
"""The real time of a simulated trial, whatever its simulated time."""

_PAUSE_SECONDS = 120.0
"""A gap between two attempts that exceeds their length by more than this was an interruption."""

_LATEST = 3
"""The overhead is the median over so many of the newest studies of a kind."""

_ATTEMPTS = 3
"""Times are stored in whole seconds, so nothing is learnt from fewer attempts than this."""

Kind = tuple[str, str | None, str | None, int, bool, bool]
"""The properties of a stack that determine its overhead: rig, export, domain, guests, whether these have no
operating system, and whether they have a drive of this host.
"""


def kind_of(stack: Stack) -> Kind:
    """Return the kind of a stack, which determines its overhead."""
    export = stack.export if RIGS[stack.rig].front == "export" else None
    return stack.rig, export, stack.domain, stack.guests, stack.machine.is_bare, stack.device.vfio_pci is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedStudy:
    """A study of this host: the arm and the end of every attempt, the end in seconds since the study's begin.

    `filled`: scratch images were made for it, as far as known.
    """

    study: Study
    attempts: tuple[tuple[str, float], ...]
    filled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCosts:
    """The overhead of stacks of each kind on this host, in seconds: `beside` per attempt besides warm-up and run, and
    `ready` before the first trial without filling images. Empty if unknown.
    """

    beside: Mapping[Kind, float] = field(default_factory=dict)
    ready: Mapping[Kind, float] = field(default_factory=dict)


NOTHING_SEEN = SeenCosts()


def seen_of(pasts: Sequence[TimedStudy]) -> SeenCosts:
    """Return the overhead of stacks from stored studies, the newest first."""
    beside: dict[Kind, list[float]] = {}
    ready: dict[Kind, list[float]] = {}
    for past in pasts:
        if past.study.search is not None:  # its trials differ in length
            continue
        kinds = {arm.name: kind_of(arm.stack) for arm in past.study.arms}
        for kind, seconds in _beside(past, kinds):
            beside.setdefault(kind, []).append(seconds)
        if len(set(kinds.values())) == 1 and past.attempts:
            kind = next(iter(kinds.values()))
            ready.setdefault(kind, []).append(_ready(past))
    return SeenCosts(
        beside={kind: median(found[:_LATEST]) for kind, found in beside.items()},
        ready={kind: median(found[:_LATEST]) for kind, found in ready.items()},
    )


def _beside(past: TimedStudy, kinds: Mapping[str, Kind]) -> Iterator[tuple[Kind, float]]:
    asked = past.study.seconds + past.study.ramp_seconds
    gaps: dict[Kind, list[float]] = {}
    for (_, before), (arm, after) in pairwise(past.attempts):
        if arm in kinds and after - before <= asked + _PAUSE_SECONDS:
            gaps.setdefault(kinds[arm], []).append(after - before - asked)
    return ((kind, max(0.0, fmean(found))) for kind, found in gaps.items() if len(found) >= _ATTEMPTS)


def _ready(past: TimedStudy) -> float:
    """Return the time before a study's first trial, without filling images."""
    study, (arm, ended) = past.study, past.attempts[0]
    trial = study.seconds + study.ramp_seconds + beside_seconds(study.arm(arm).stack)
    images = study.span_bytes / FILL_BYTES_PER_SECOND if past.filled else 0.0
    read = sum(one.seconds for one in study.first_reads if not one.after)
    before = sum(one.seconds for one in study.preconditioned) + sum(one.seconds for one in study.steadied)
    return max(0.0, ended - trial - images - read - before - data_seconds(study))


def beside_seconds(stack: Stack, seen: SeenCosts = NOTHING_SEEN) -> float:
    """Return the overhead of an attempt with this stack besides its warm-up and run."""
    known = seen.beside.get(kind_of(stack))
    if known is not None:
        return known
    rig = RIGS[stack.rig]
    if rig.front == "export" and stack.export == "vhost-user-blk":
        return _GENERATOR_SECONDS
    each = _BARE_SECONDS if stack.machine.is_bare else rig.beside_seconds
    if stack.device.vfio_pci is not None:  # each trial has a machine of its own
        each += _HANDED_SECONDS + (_BARE_START_SECONDS if stack.machine.is_bare else rig.boot_seconds)
    return each + _GUEST_SECONDS * (stack.guests - 1)


def round_seconds(study: Study) -> float:
    """Return about how long one round of all arms and workloads takes."""
    return len(study.workloads) * sum(trial_seconds(study, arm.stack) for arm in study.arms)


def trial_seconds(study: Study, stack: Stack, seen: SeenCosts = NOTHING_SEEN, *, busy: float = 1.0) -> float:
    """Return the time of an attempt; `busy` is the factor on its overhead at the host's present load."""
    if not RIGS[stack.rig].measures:
        return _INVENTED_SECONDS
    return study.seconds + study.ramp_seconds + busy * beside_seconds(stack, seen)


def setup_seconds(
    study: Study, *, bytes_to_fill: int, bytes_to_read: int = 0, seen: SeenCosts = NOTHING_SEEN
) -> float:
    """Estimate the time before a study's first trial: images filled or read, guests booted, every arm up once."""
    if study.simulated:
        return START_SECONDS
    kinds = {kind_of(arm.stack): arm.stack for arm in study.arms}
    stacks = [arm.stack for arm in study.arms]
    up = sum(RIGS[stack.rig].up_seconds for stack in stacks)
    boot = max(_BARE_START_SECONDS if stack.machine.is_bare else RIGS[stack.rig].boot_seconds for stack in stacks)
    always = START_SECONDS + bytes_to_fill / FILL_BYTES_PER_SECOND + data_seconds(study, seen)
    always += steady_seconds(study, seen)
    always += min(bytes_to_read / _READ_BYTES_PER_SECOND, first_read_seconds_max(study))
    if all(kind in seen.ready for kind in kinds):
        return always + max(seen.ready[kind] for kind in kinds)
    return always + boot + up


def first_read_seconds_max(study: Study) -> float:
    """Return how long a study's images may be read before its first trial."""
    if study.search is not None:
        trials = study.search.budget_seconds or study.search.grid_seconds
    else:
        trials = study.budget_seconds or study.rounds * round_seconds(study)
    return min(max(_READ_SHARE * trials, _READ_SECONDS_MIN), _READ_SECONDS_MAX)


def data_seconds(study: Study, seen: SeenCosts = NOTHING_SEEN) -> float:
    """Estimate the time of checking that every arm keeps its data, also after a power cut: short loads of each."""
    loads = _DATA_LOADS * study.check_data + _CUT_LOADS * study.check_durability
    return sum(loads * (_DATA_SECONDS + beside_seconds(arm.stack, seen)) for arm in study.arms) if loads else 0.0


def steady_seconds(study: Study, seen: SeenCosts = NOTHING_SEEN) -> float:
    """Estimate the time of bringing the disks into the state of ones in service: how long it takes where each load is
    steady at once; of a sequential study, whose forecast is the most, how long it may take.
    """
    disks = {arm.stack.place: images_of(arm.stack) for arm in study.arms} if study.precondition else {}
    written = PASSES * study.span_bytes * sum(disks.values()) / FILL_BYTES_PER_SECOND
    if (rule := study.until_steady) is None:
        return written
    each = rule.limit_seconds if study.sequential else rule.window_seconds + study.ramp_seconds
    loads = len(study.workloads) * sum(each + beside_seconds(arm.stack, seen) for arm in study.arms)
    return written + loads


def attempts_for(trials: int, repeated: Sequence[bool], *, busy: bool = False) -> float:
    """Return how many attempts so many trials take.

    `repeated` is, for every attempt so far, whether it had to be repeated; before the first one, `busy` is whether
    the host is. A cause that disturbs most attempts is soon taken for the host's normal state, and then repeats
    nothing.
    """
    recent = repeated[-_RECENT:]
    share = sum(recent) / len(recent) if recent else float(busy)
    more = trials * (share + share**2)
    if share > 0.5:
        more = min(more, max(0, _LONGEST_REPEAT - len(repeated)) * 2 / 3)
    return trials + more
