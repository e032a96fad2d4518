# SPDX-License-Identifier: Apache-2.0
"""Proposals for a race in a space that is too large to race all configurations, by Optuna's TPE sampler. The sampler
gets the levels that the race estimated, so a proposal is a function of the stored trials and the seed, and a killed
search resumes with the same ones.

The sampler decides nothing: its proposals have to win the race.
"""

import warnings
from collections.abc import Iterator, Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from virtune.model.knob import Number, Size
from virtune.model.knobs import BY_ID
from virtune.model.search import Factor, Search
from virtune.model.stack import Stack
from virtune.model.study import Study
from virtune.model.tuning import Tuning
from virtune.plan.arms import apply_settings
from virtune.plan.space import effective, meaningful

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

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
    base = _base(study, search)
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


def _base(study: Study, search: Search) -> Stack:
    """Return the stack with the fixed settings, which all configurations vary."""
    varied = {factor.knob for factor in search.factors}
    some = next(name for name in search.ranked if name != study.baseline)
    fixed = [f"{knob}={value}" for knob, value in study.arm(some).settings if knob not in varied]
    return apply_settings(Stack(), fixed)[0]


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
