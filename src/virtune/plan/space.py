# SPDX-License-Identifier: Apache-2.0
"""The space of a search: the knobs that this host's QEMU supports, as the user varies and fixes them; the next block
of its trials, a function of its results so far and of its seed; and proposals for a race in a space that is too
large to race all configurations, by Optuna's TPE sampler.

    --vary disk.aio=threads,native   these values         --vary disk.aio     all values that the host has
    --set disk.cache=none            one value, everywhere, the baseline included
    --baseline disk.aio=threads      what is there now; the base of the rig where nothing is said

Without `--vary` the knobs of the rig's path are varied that a disk can change without a new image. What contradicts
itself is removed with QEMU's reason, and what promises another durability than asked for is kept apart.

The sampler decides nothing: its proposals have to win the race.
"""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from typing import TYPE_CHECKING, Any

from virtune.model.durability import Promise, durability_of
from virtune.model.errors import PlanError
from virtune.model.knob import Answer, Choice, Knob, Number, Size, Support, Switch
from virtune.model.knobs import BY_ID, TURNED, whole_plot
from virtune.model.reason import Reason, Why, because
from virtune.model.search import FIRST_ROUND, Factor, Phase, Removed, Search
from virtune.model.stack import DIRECT_CACHES, POLL_DEFAULT_NS, Stack
from virtune.model.study import Arm, Study, Trial
from virtune.model.study_options import StudyOptions
from virtune.model.text import Bytes, format_bytes, quoted
from virtune.model.tuning import Apart, Space, Tuning
from virtune.plan.arms import apply_settings, labels, objections, parse_setting

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


BASELINE = "baseline"
"""The name of the arm that is there now."""

CONFIGURATIONS_MAX = 20_000
"""The most combinations; more need a choice of values by the user, not a search."""

VARIED_BY_DEFAULT = ("disk.aio", "disk.cache", "export.iothread", "iothread.poll_max_ns")
"""What a disk can change without a new image: the first two of its own, the others of its export."""

QUEUES_MAX = 8
"""More queues than this do not help a disk that a storage daemon serves from one thread (knob K22)."""

_EMULATOR = "machine.emulator"

_CLUSTER_DEFAULT = Bytes(65536)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSupport:
    """The host's support: whether io_uring works (None: unknown), and so on.

    `answers` are those of the programs that will run the configurations, by knob.
    """

    answers: Mapping[str, tuple[Answer, ...]]
    io_uring: bool | None = None
    cpus: int = 1
    memory_bytes: int | None = None


def space_of(asked: StudyOptions, host: HostSupport) -> Space:
    """Return the configurations to search; without a span no cache mode is left out for it.

    Raises PlanError for invalid options, and when fewer than two configurations are left.
    """
    fixed = [*([f"rig={asked.rig}"] if asked.rig else []), *asked.fix]
    base, settings = apply_settings(Stack(), fixed)
    if not base.kind.has_qemu:
        raise PlanError(f"rig={base.rig} has nothing to tune: no QEMU is in between", hint="`--rig vhost-user`")
    baseline = _baseline(asked, base, settings)
    wanted, gone = _factors(asked, baseline.stack, {name for name, _ in settings}, host)
    if (count := math.prod(len(factor.values) for factor in wanted)) > CONFIGURATIONS_MAX:
        raise PlanError(
            f"{count:,} configurations are more than {CONFIGURATIONS_MAX:,}",
            hint="name fewer values by `--vary KNOB=A,B`, or hold a knob by `--set KNOB=VALUE`",
        )
    promise = Promise(asked.durability) if asked.durability else durability_of(baseline.stack).promise
    sorter, label = _Sorter(baseline=baseline, promise=promise, cached=_cached(asked, host)), _labels(wanted)
    for own in combinations(wanted, base):
        stack = apply_settings(base, [f"{name}={value}" for name, value in own])[0]
        sorter.take(Arm(name=label(own), stack=stack, settings=(*settings, *own)))
    return sorter.space(wanted, gone)


def emulators_of(asked: StudyOptions) -> tuple[str | None, ...]:
    """Return the system emulators that will run the configurations, None for the installed one, which a user's VM
    mostly has; none at all where a storage daemon runs them. Raises PlanError for invalid settings.
    """
    fixed = [*([f"rig={asked.rig}"] if asked.rig else []), *asked.fix]
    base, settings = apply_settings(Stack(), fixed)
    if not base.kind.in_guest:
        return ()
    varied = (text.partition("=") for text in asked.vary)
    named: list[str | None] = [
        word.strip() for name, _, words in varied if name.strip() == _EMULATOR for word in words.split(",")
    ]
    before = _baseline(asked, base, settings).stack.machine.emulator
    return tuple(dict.fromkeys([before, *(named or [base.machine.emulator])]))


def effective(stack: Stack) -> Stack:
    """Return the stack with QEMU's defaults filled in, so that stacks with the same effect are equal."""
    disk = stack.disk
    if disk.format == "qcow2":
        disk = replace(
            disk,
            cluster_size=disk.cluster_size or _CLUSTER_DEFAULT,
            extended_l2=bool(disk.extended_l2),
            lazy_refcounts=bool(disk.lazy_refcounts),
            preallocation=disk.preallocation or "off",
            backing_depth=disk.backing_depth or 0,
            data_file=bool(disk.data_file),
            encryption=disk.encryption or "none",
        )
    polls = stack.in_iothread and stack.poll_max_ns is None
    return replace(
        stack,
        disk=disk,
        num_queues=stack.queues,
        iothread=stack.in_iothread,
        poll_max_ns=POLL_DEFAULT_NS if polls else stack.poll_max_ns,
    )


def _baseline(asked: StudyOptions, base: Stack, settings: tuple[tuple[str, str], ...]) -> Arm:
    words = [word for word in (asked.baseline or "").split(",") if word.strip()]
    if asked.baseline is not None and not words:
        raise PlanError("the baseline says nothing", hint="`--baseline disk.aio=threads,disk.cache=none`")
    stack, own = apply_settings(base, words)
    twice = next((name for name, _ in own if name in dict(settings)), None)
    if twice is not None:
        raise PlanError(f"{twice} is fixed and part of the baseline", hint="what is fixed holds for the baseline too")
    found = objections(stack)
    if found:
        raise PlanError(f"the baseline cannot be: {found[0]}", hint="; ".join(found[1:]) or None)
    return Arm(name=BASELINE, stack=stack, settings=(*settings, *own))


def _factors(
    asked: StudyOptions, base: Stack, fixed: set[str], host: HostSupport
) -> tuple[tuple[Factor, ...], tuple[Removed, ...]]:
    """Return the knobs to vary with the values that the host supports, and those that it does not."""
    factors: list[Factor] = []
    gone: list[Removed] = []
    for knob, values in _varied(asked.vary, host) if asked.vary else _by_default(base, fixed, host):
        if knob.id in fixed:
            raise PlanError(f"{knob.id} is varied and fixed", hint="one of the two")
        if knob.id in [factor.knob for factor in factors]:
            raise PlanError(f"{knob.id} is varied twice", hint="list its values once")
        missing = {value: why for value in values if (why := _missing(knob, value, host))}
        gone += [Removed.by(why, what=f"{knob.id}={value}", count=None) for value, why in missing.items()]
        kept = tuple(value for value in values if value not in missing)
        if kept:
            plots = {whole_plot(apply_settings(base, [f"{knob.id}={value}"])[0]) for value in kept}
            factors.append(Factor(knob=knob.id, values=kept, costly=len(plots) > 1))
    return tuple(factors), tuple(gone)


def _varied(texts: Sequence[str], host: HostSupport) -> Iterator[tuple[Knob, tuple[str, ...]]]:
    for text in texts:
        name, equals, words = text.partition("=")
        if not equals:
            knob = _turnable(name.strip())
            yield knob, _all_values(knob, host)
            continue
        values = tuple(word.strip() for word in words.split(","))
        if "" in values:
            raise PlanError(f"{quoted(text)} has an empty value", hint="write disk.aio=threads,native")
        if len(set(values)) < len(values):
            raise PlanError(
                f"{quoted(text)} has a value twice", hint="the same configuration cannot win against itself"
            )
        knobs = [parse_setting(f"{name}={value}")[0] for value in values]
        yield _turnable(knobs[0].id), values


def _turnable(name: str) -> Knob:
    if name not in BY_ID:
        # the suggestion and its hint are those of a setting
        parse_setting(f"{name}=x")
        raise PlanError(f"{quoted(name)} means several knobs", hint="name one of them")
    knob = BY_ID[name]
    if not knob.place:
        raise PlanError(
            f"{knob.id} is documented, but virtune cannot set it yet", hint=f"`virtune host knobs {knob.id}`"
        )
    return knob


def _all_values(knob: Knob, host: HostSupport) -> tuple[str, ...]:
    if knob.id in _USUAL:
        return _USUAL[knob.id]
    if knob.id == "export.num_queues":
        # powers of two up to one for each CPU, which is what QEMU gives a guest of that many
        most = max(1, min(host.cpus, QUEUES_MAX))
        return tuple(str(2**power) for power in range(most.bit_length()))
    match knob.domain:
        case Choice(values=values):
            return values
        case Switch():
            return ("off", "on")
        case _:
            raise PlanError(f"{knob.id} has no short list of values", hint=f"name them: `--vary {knob.id}=A,B`")


_USUAL: Mapping[str, tuple[str, ...]] = {
    "iothread.poll_max_ns": ("0", str(POLL_DEFAULT_NS)),
    "disk.cluster_size": ("64k", "2M"),
    "disk.backing_depth": ("0", "1", "4"),
}
"""Values for number knobs without a list: QEMU's default, and the other value that is sometimes recommended."""


def _by_default(base: Stack, fixed: set[str], host: HostSupport) -> Iterator[tuple[Knob, tuple[str, ...]]]:
    """The knobs of the rig's path that need no new image; a format is chosen for its features, not for its speed.

    The number of an export's queues is left out: most loads have one clone, which uses one queue.
    """
    names = [] if base.disk.backend == "null-co" else list(VARIED_BY_DEFAULT[:2])
    if base.export != "nbd":
        names += VARIED_BY_DEFAULT[2:]
    for name in names:
        if name not in fixed:
            yield BY_ID[name], _all_values(BY_ID[name], host)


def _missing(knob: Knob, value: str, host: HostSupport) -> Why | None:
    """Say why this host does not support that value; None if it does or if that is unknown."""
    if knob.id == "disk.aio" and value == "io_uring" and host.io_uring is False:
        return because(Reason.KERNEL_REFUSES)
    for answer in host.answers.get(knob.id, ()):
        if answer.standing is Support.ABSENT:
            return because(Reason.NOT_SUPPORTED, program=answer.program, how=f"does not have it: {answer.detail}")
        if answer.standing is Support.VALUES and value not in answer.values:
            return because(Reason.NOT_SUPPORTED, program=answer.program, how="was built without it")
    return None


def _cached(asked: StudyOptions, host: HostSupport) -> Why | None:
    """Say why a cache mode that uses the page cache is not tried by default; None where it may be.

    Where the whole span fits into the host's RAM, such a stack measures the RAM, not the disk.
    """
    named = any(text.partition("=")[0].strip() == "disk.cache" for text in asked.vary)
    if named or host.memory_bytes is None or not 0 < (asked.span or 0) < host.memory_bytes:
        return None
    span, memory = format_bytes(asked.span or 0), format_bytes(host.memory_bytes)
    return because(Reason.MEASURES_MEMORY, span=span, memory=memory)


class _Sorter:
    """Sorts configurations: ranked, removed with a reason, or set apart."""

    def __init__(self, *, baseline: Arm, promise: Promise, cached: Why | None) -> None:
        self._baseline, self._promise, self._cached = baseline, promise, cached
        self._seen = {effective(baseline.stack)}
        self._ranked: list[Arm] = []
        self._apart: list[Apart] = []
        self._removed: Counter[Why] = Counter()
        self._example: dict[Why, str] = {}

    def take(self, arm: Arm) -> None:
        """Sort one configuration in; one with the same effect as another is removed."""
        found = objections(arm.stack)
        if not found and effective(arm.stack) in self._seen:
            return
        durability = durability_of(arm.stack)
        if found:
            self._remove(arm, because(Reason.CONTRADICTION, which=found[0]))
        elif durability.promise is not self._promise:
            self._apart.append(Apart(arm=arm, durability=durability))
        elif self._cached is not None and arm.stack.disk.cache not in DIRECT_CACHES:
            self._remove(arm, self._cached)
        else:
            self._ranked.append(arm)
        self._seen.add(effective(arm.stack))

    def space(self, factors: tuple[Factor, ...], gone: tuple[Removed, ...]) -> Space:
        """Return the space; raises PlanError when there is nothing to choose from."""
        in_class = durability_of(self._baseline.stack).promise is self._promise
        left = len(self._ranked) + in_class
        if left < 2:
            hint = "`--vary disk.aio` makes a choice"
            if self._apart:
                hint = f"{len(self._apart)} promise another durability than {self._promise}: `--durability` chooses"
            elif self._removed:
                hint = self._removed.most_common(1)[0][0].text
            words = "one configuration is" if left else "no configuration is"
            raise PlanError(f"{words} left to rank", hint=hint)
        reasons = (Removed.by(why, what=self._example[why], count=count) for why, count in self._removed.items())
        return Space(
            factors=factors,
            arms=(self._baseline, *self._ranked),
            baseline=self._baseline.name,
            promise=self._promise,
            ranked_baseline=in_class,
            removed=(*gone, *reasons),
            apart=tuple(self._apart),
        )

    def _remove(self, arm: Arm, why: Why) -> None:
        self._removed[why] += 1
        self._example.setdefault(why, arm.name)


def combinations(factors: Sequence[Factor], base: Stack) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yield every combination of values once, without settings that have no effect in it."""
    names = [factor.knob for factor in factors]
    seen = set()
    for choice in product(*(factor.values for factor in factors)):
        own = meaningful(tuple(zip(names, choice, strict=True)), base)
        if own not in seen:
            seen.add(own)
            yield own


def meaningful(own: tuple[tuple[str, str], ...], base: Stack) -> tuple[tuple[str, str], ...]:
    """Leave out settings that have no effect beside the others, such as polling without an IOThread."""
    others = [f"{name}={value}" for name, value in own if name not in _DEPENDS]
    stack = apply_settings(base, others)[0]
    return tuple((name, value) for name, value in own if name not in _DEPENDS or _DEPENDS[name](stack))


_DEPENDS: Mapping[str, Callable[[Stack], bool]] = {
    "iothread.poll_max_ns": lambda stack: stack.in_iothread,
    "export.num_queues": lambda stack: stack.export == "vhost-user-blk",
    **dict.fromkeys(
        (knob.id for knob in TURNED if any(need.endswith("disk.format=qcow2") for need in knob.needs)),
        lambda stack: stack.disk.format == "qcow2",
    ),
}
"""Knobs that have an effect only with certain values of others, and the condition."""


def _labels(factors: Sequence[Factor]) -> Callable[[Sequence[tuple[str, str]]], str]:
    """Name a configuration by the values of the varying knobs; by all where each knob has one value."""
    varied = {one.knob for one in factors if len(one.values) > 1} or {one.knob for one in factors}
    label = labels([(factor.knob, factor.values) for factor in factors if factor.knob in varied])
    return lambda own: label([pair for pair in own if pair[0] in varied])


TRIES_FROM = 100
"""Of spaces with more configurations than this not all are raced."""

TRIES = 64
"""The number that is raced: 64 are decided in half an hour on a noisy host."""

ASKS_MAX = 50
"""After so many proposals that are impossible or were tried already, one is drawn at random."""

Values = Mapping[str, str]
"""The value of each factor, by knob, as it is written."""


def tries_for(ranked: int) -> int | None:
    """Return how many of so many configurations are raced; None for all."""
    return TRIES if ranked > TRIES_FROM else None


def proposals(study: Study, known: Tuning, *, block: int) -> tuple[str, ...]:
    """Return the arms that join the race in its `block`: the number wanted, none that was tried."""
    search = study.search
    if search is None or not known.wanted:
        return ()
    chance = Random(f"{study.seed}/{block}/join")  # noqa: S311 - a fair choice, not a secret
    tried = {arm for arm, _ in known.levels} | {one.arm for one in known.standing.runners}
    left = [arm for arm in search.ranked if arm not in tried | {study.baseline}]
    if not tried:
        first = [study.baseline] if study.baseline in search.ranked else []
        return (*first, *chance.sample(left, min(known.wanted, len(left))))
    found = list(dict.fromkeys(_asked(study, search, known, set(left), seed=chance.randrange(2**31))))
    rest = [arm for arm in left if arm not in found]
    return (*found, *chance.sample(rest, min(len(rest), known.wanted - len(found))))


def _asked(study: Study, search: Search, known: Tuning, left: set[str], *, seed: int) -> Iterator[str]:
    """Yield Optuna's proposals among the remaining arms."""
    # it takes half a second to load, and most searches race all configurations
    import optuna
    from optuna.trial import TrialState, create_trial

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    scales = {factor.knob: _scale(factor) for factor in search.factors}
    names = {effective(study.arm(name).stack): name for name in search.ranked}
    # the stack with the fixed settings, which all configurations vary
    some = next(name for name in search.ranked if name != study.baseline)
    base = apply_settings(Stack(), [f"{k}={v}" for k, v in study.arm(some).settings if k not in scales])[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True, n_startup_trials=1)
    asked = optuna.create_study(direction="maximize", sampler=sampler)
    for arm, level in known.levels:
        params = _params(dict(study.arm(arm).settings), search.factors)
        if params is not None:
            asked.add_trial(create_trial(params=params, distributions=scales, value=level))
    count = 0
    for _ in range(ASKS_MAX * known.wanted):
        trial = asked.ask(scales)
        own = meaningful(tuple((one.knob, _value(one, trial.params[one.knob])) for one in search.factors), base)
        name = names.get(effective(apply_settings(base, [f"{knob}={value}" for knob, value in own])[0]))
        if name is None or name not in left:
            asked.tell(trial, state=TrialState.FAIL)
            continue
        left.discard(name)
        yield name
        count += 1
        if count == known.wanted:
            return


def _ordered(factor: Factor) -> bool:
    return len(factor.values) > 2 and isinstance(BY_ID[factor.knob].domain, Number | Size)


def _scale(factor: Factor) -> "BaseDistribution":
    """Return a factor as an Optuna distribution: numbers by their rank, so that neighbouring values are close, else
    categories.
    """
    from optuna.distributions import CategoricalDistribution, IntDistribution

    return IntDistribution(0, len(factor.values) - 1) if _ordered(factor) else CategoricalDistribution(factor.values)


def _ranked(factor: Factor) -> list[str]:
    knob = BY_ID[factor.knob]
    return sorted(factor.values, key=lambda text: int(knob.read(text)))


def _value(factor: Factor, found: Any) -> str:
    return _ranked(factor)[found] if _ordered(factor) else str(found)


def _params(settings: Values, factors: tuple[Factor, ...]) -> dict[str, Any] | None:
    """Return an arm as Optuna parameters; a setting without effect gets any value.

    None for a baseline with values outside the space.
    """
    found: dict[str, Any] = {}
    for factor in factors:
        value = settings.get(factor.knob, factor.values[0])
        if value not in factor.values:
            return None
        found[factor.knob] = _ranked(factor).index(value) if _ordered(factor) else value
    return found


def next_block(study: Study, known: Tuning, *, rounds: int, trials: int) -> tuple[Trial, ...]:
    """Return the trials of the next block, none when the search is over.

    `rounds` of the present phase are complete, and `trials` in all. The block depends on these only, so a search that
    was killed in the middle of a block gets the same block again.
    """
    if known.finished:
        return ()
    number = FIRST_ROUND[known.phase] + rounds
    arms = _arms(study, known, rounds)
    anew = _first_of_plots(study, arms) if known.phase is Phase.RACE else frozenset()
    pairs = [(arm, workload.name) for arm in arms for workload in study.workloads]
    return tuple(
        Trial(
            number=trials + index,
            round=number,
            arm=arm,
            workload=workload,
            restart=arm in anew and workload == study.workloads[0].name,
        )
        for index, (arm, workload) in enumerate(pairs, 1)
    )


def _arms(study: Study, known: Tuning, rounds: int) -> Sequence[str]:
    winner = known.winner or study.baseline
    match known.phase:
        case Phase.PROBE:
            return [study.baseline]
        case Phase.RACE:
            if known.wanted:
                leader = [known.standing.leader] if known.standing.leader else []
                return list(_shuffled(study, [*leader, *proposals(study, known, block=rounds)], rounds))
            return list(_shuffled(study, known.standing.up_next, rounds))
        case Phase.CONFIRM:
            # A B B A: linear drift affects both alike
            return [winner, study.baseline] if rounds % 2 else [study.baseline, winner]
        case Phase.SOAK:
            count = -(-int(study.search.soak_seconds) // 10) if study.search else 1
            return [winner] if rounds < count else [study.baseline]


def _shuffled(study: Study, arms: Sequence[str], block: int) -> Iterator[str]:
    """Yield the arms in random order, grouped by what the rig can swap without a new process (a split plot).

    Groups and the arms within them are shuffled in each block: the cost of a new process is paid once per group and
    block, and the random effect of its start is drawn again each time.
    """
    chance = Random(f"{study.seed}/{block}")  # noqa: S311 - a fair order, not a secret
    groups: dict[tuple[object, ...], list[str]] = {}
    for name in sorted(arms):
        groups.setdefault(whole_plot(study.arm(name).stack), []).append(name)
    for group in chance.sample(list(groups.values()), len(groups)):
        yield from chance.sample(group, len(group))


def _first_of_plots(study: Study, arms: Sequence[str]) -> frozenset[str]:
    """Return the arms that begin a whole plot in a block with several.

    The process is restarted there even where the block before ended with the same plot; otherwise two blocks would
    share a start's random effect, and blocks must be independent.
    """
    plots = [whole_plot(study.arm(name).stack) for name in arms]
    if len(set(plots)) < 2:
        return frozenset()
    return frozenset(name for name, one, before in zip(arms, plots, [None, *plots], strict=False) if one != before)
