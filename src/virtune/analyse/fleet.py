# SPDX-License-Identifier: Apache-2.0
"""What many hosts say together: does a setting help everywhere, which host is odd, and what has it; what one host's
study says, as far as the report of a fleet needs it; what differs between hosts; and how the level of a host
changed between two studies of the same question.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from statistics import fmean, stdev

import numpy as np

from virtune.analyse.facts import known_facts, traits
from virtune.analyse.stats.anytime import LAG1_MAX
from virtune.analyse.stats.many import (
    deleted_residuals,
    drawn_ranks,
    false_discoveries,
    mean_of,
    restricted_likelihood,
    two_levels,
)
from virtune.analyse.stats.noise import Values, lag1_of
from virtune.analyse.stats.student import two_sided
from virtune.analyse.study.verdicts import Evidence, evidence_of, verdicts_of
from virtune.model import fleet
from virtune.model.errors import PreconditionError, UsageError, VirtuneError
from virtune.model.evidence import StudyRecord
from virtune.model.study import Study
from virtune.model.text import format_seconds
from virtune.model.verdict import Comparison

CONFIDENCE = 0.95


def pooled(estimates: Sequence[fleet.HostEstimate]) -> fleet.Pooled:
    """Return the mean over hosts with its interval, the interval of the next host, and how unlike the hosts are.

    Heterogeneity by restricted maximum likelihood (Viechtbauer 2005; recommended by Langan et al. 2019). The interval
    is Hartung and Knapp's (2001) with Student's t on k - 1 degrees of freedom; its error is never below that of the
    plain model (Roever, Knapp and Friede 2015: else too narrow where hosts are unequally precise). The next host's
    interval is that of Higgins, Thompson and Spiegelhalter (2009), with k - 2 degrees; I squared and the typical
    variance of a host's noise are Higgins and Thompson's (2002).
    Raises UsageError for fewer than two hosts.
    """
    from scipy.special import chdtrc

    values, variances = arrays(estimates)
    count = len(values)
    if count < 2:
        raise UsageError("one host has no mean over hosts", hint="gather a study of at least two hosts")
    between = float(restricted_likelihood(values, variances, np.ones((1, count)))[0])
    mean, plain = mean_of(values, variances, between)
    # Hartung and Knapp's q: the observed weighted spread over the one that the model expects
    spread = float(((values - mean) ** 2 / (variances + between)).sum() / (count - 1))
    error = plain * math.sqrt(max(1.0, spread))
    radius = two_sided(CONFIDENCE, count - 1) * error
    reach = two_sided(CONFIDENCE, count - 2) * math.sqrt(between + error**2) if count > 2 else None
    # Cochran's Q: the weighted squares of the distances from the mean without variation between hosts
    q = float(((values - mean_of(values, variances, 0.0)[0]) ** 2 / variances).sum())
    weights = 1 / variances
    typical = (count - 1) * weights.sum() / (weights.sum() ** 2 - (weights**2).sum())
    return fleet.Pooled(
        hosts=count,
        mean=mean,
        error=error,
        low=mean - radius,
        high=mean + radius,
        next_low=None if reach is None else mean - reach,
        next_high=None if reach is None else mean + reach,
        tau=math.sqrt(between),
        i_squared=float(between / (between + typical)),
        q=q,
        q_p=float(chdtrc(count - 1, q)),
        confidence=CONFIDENCE,
    )


def arrays(estimates: Sequence[fleet.HostEstimate]) -> tuple[Values, Values]:
    """Return the values and their variances. Raises UsageError where one of them is unusable."""
    for one in estimates:
        if not (math.isfinite(one.value) and math.isfinite(one.error) and one.error > 0 and one.df > 0):
            raise UsageError(f"{one.host} has no usable standard error", hint="measure at least two rounds on it")
    values = np.array([one.value for one in estimates], dtype=np.float64)
    return values, np.array([one.error for one in estimates], dtype=np.float64) ** 2


HOSTS_MIN = 3
"""Of two hosts neither is the odd one. Of three, the two others tell with one degree of freedom how unlike hosts are,
so that only a host is named which is some forty times as far away (t at p = 0.05 / 3) as they are from each other; of
five it must be six standard deviations away."""

FALSE_DISCOVERY = 0.05
"""Of the hosts called odd, at most this share is not odd, in the long run. Where no host is odd, this is the chance
that any is called so."""


def funnel(estimates: Sequence[fleet.HostEstimate]) -> tuple[fleet.FunnelPoint, ...]:
    """Return every host's distance from the others, in the order given, and which are odd.

    Each host is compared with the mean of the others, so that it cannot hide itself in the variation that it makes
    (deleted residuals: Viechtbauer and Cheung 2010). Limits widen with a host's own noise and with the variation
    between hosts (funnel plot with additive over-dispersion: Spiegelhalter 2005); no host counts as quieter than a
    typical one. Degrees of freedom of the two by Welch and Satterthwaite (1946); false discoveries over all hosts by
    Benjamini and Hochberg (1995). Several hosts that are odd in the same way widen the limits for one another. Raises
    UsageError for fewer than HOSTS_MIN hosts.
    """
    from scipy.special import stdtr

    if len(estimates) < HOSTS_MIN:
        hint = f"gather a study of at least {HOSTS_MIN}"
        raise UsageError(f"{len(estimates)} hosts cannot tell which one is odd", hint=hint)
    values, variances = arrays(estimates)
    # by few rounds a host may look quieter than it is, and then everything would be beyond its noise
    typical = float(np.median(variances))
    owns = np.maximum(variances, typical)
    distances, together = deleted_residuals(values, variances)
    together = together + (owns - variances)
    own_df, between = np.array([one.df for one in estimates]), together - owns
    # the variance between hosts is what is left of the others' without their typical noise, so it is as uncertain as
    # the two together: as if one of zero were certain, of five alike hosts one was called odd in 15 % of fleets
    freedom = (owns + between) ** 2 / (owns**2 / own_df + (between + typical) ** 2 / (len(values) - 2))
    errors = np.sqrt(together)
    chances = 2 * stdtr(freedom, -np.abs(distances) / errors)
    each = (one.tolist() for one in (distances, errors, freedom, chances, false_discoveries(chances)))
    return tuple(
        fleet.FunnelPoint(
            host=one.host,
            distance=distance,
            residual=distance / error,
            limit=two_sided(CONFIDENCE, df) * error,
            p=p,
            adjusted=adjusted,
            odd=adjusted <= FALSE_DISCOVERY,
        )
        for one, distance, error, df, p, adjusted in zip(estimates, *each, strict=True)
    )


def smaller_group(estimates: Sequence[fleet.HostEstimate]) -> tuple[str, ...]:
    """Return the hosts of the smaller of two groups that stand at two levels, as two generations of hardware do; none
    where one level and its variation explain them, and where a host would stand alone: that is an odd one.
    """
    order = sorted(estimates, key=lambda one: one.value)
    first = two_levels(np.array([one.value for one in order]))
    return tuple(one.host for one in min(order[:first], order[first:], key=len))


def _apart(estimates: Sequence[fleet.HostEstimate]) -> tuple[tuple[fleet.FunnelPoint, ...], tuple[str, ...]]:
    """Return every host's distance from the others, and the smaller of two groups, of which no host is odd."""
    group = smaller_group(estimates)
    return tuple(replace(one, odd=one.odd and one.host not in group) for one in funnel(estimates)), group


def ranks(estimates: Sequence[fleet.HostEstimate], *, seed: int) -> tuple[fleet.HostRank, ...]:
    """Return the hosts from the highest value to the lowest, each with its mean rank and an interval of ranks."""
    values, variances = arrays(estimates)
    drawn = drawn_ranks(values, variances, [one.df for one in estimates], confidence=CONFIDENCE, seed=seed)
    found = [
        fleet.HostRank(
            host=one.host,
            rank=float(mean),
            low=int(low),
            high=int(high),
            tied=tuple(estimates[int(other)].host for other in np.flatnonzero(tied)),
        )
        for one, mean, low, high, tied in zip(estimates, *drawn, strict=True)
    ]
    return tuple(sorted(found, key=lambda one: (one.rank, one.host)))


_MOMENT = "%Y-%m-%d %H:%M UTC"

WINDOW = timedelta(hours=24)
"""Levels of hosts that were measured further apart than a day are not compared: shared storage, neighbours and
updates change them, and no host shows it. A day is also how long an A/A test of a host counts for its studies."""


def require_comparable(estimates: Sequence[fleet.HostEstimate], *, window: timedelta = WINDOW) -> None:
    """Raise PreconditionError where the levels of these hosts were measured at times that cannot be compared.

    A ratio needs no such check: both arms of it were measured in turn on the same host.
    """
    if not estimates:
        return
    if wrong := next((one.host for one in estimates if one.ended < one.begun), None):
        said = f"{wrong} ended its study before it began it: its clock was set meanwhile"
        raise PreconditionError(said, hint="measure it again with a clock that is right")
    first = min(estimates, key=lambda one: one.begun)
    last = max(estimates, key=lambda one: one.ended)
    apart = last.ended - first.begun
    if apart > window:
        raise PreconditionError(
            f"{first.host} began {first.begun:{_MOMENT}} and {last.host} ended {last.ended:{_MOMENT}}:"
            f" levels of hosts measured {format_seconds(apart.total_seconds())} apart cannot be compared",
            hint=f"measure them within {format_seconds(window.total_seconds())}, or compare ratios only",
        )


def drift_between(
    before: fleet.HostEstimate, after: fleet.HostEstimate, *, workload: str, metric: str
) -> fleet.HostDrift:
    """Return the ratio of a host's later level to its earlier one, with its 95 % interval."""
    squares = (before.error**2, after.error**2)
    error = math.sqrt(sum(squares))
    # Welch and Satterthwaite: the two studies need not be alike in noise
    df = sum(squares) ** 2 / (squares[0] ** 2 / before.df + squares[1] ** 2 / after.df) if error else before.df
    reach = two_sided(CONFIDENCE, df) * error
    change = after.value - before.value
    return fleet.HostDrift(
        workload=workload,
        metric=metric,
        estimate=math.exp(change),
        low=math.exp(change - reach),
        high=math.exp(change + reach),
        hours=max(0.0, (after.begun - before.begun).total_seconds() / 3600),
    )


SUMMARY = 1
"""The number of how a summary is made, beside that of the measurements' method. One that was kept under another
number is made anew: raise it when the same measurements give another summary.

1  first version
"""

ROUNDS_MIN = 3
"""A standard error of fewer rounds has a heavy tail that no interval of many hosts repairs."""


def summary_of(record: StudyRecord) -> fleet.HostSummary:
    study, evidence = record.study, evidence_of(record)
    begun, ended = _span(record)
    # the verdicts alone: all else that a result has takes ten times as long
    against = (study.baseline, study.metric)
    levels = ((workload.name, level_of("", record, workload.name, evidence)) for workload in study.compared)
    return fleet.HostSummary(
        study=study.id,
        source=hashlib.sha256(record.facts.encode(errors="surrogatepass")).hexdigest(),
        begun=begun,
        ended=ended,
        verdicts=tuple(one for one in verdicts_of(evidence) if (one.baseline, one.metric) == against),
        levels=tuple((workload, one) for workload, one in levels if one is not None),
        facts=known_facts(record, study.baseline),
        methods=record.methods,
    )


def estimate_of(host: str, summary: fleet.HostSummary, one: Comparison) -> fleet.HostEstimate | None:
    """Return a host's effect with the standard error that went into its interval; None where there is none.

    A comparison's `noise` has the allowance for autocorrelation in it already.
    """
    if one.ratio is None or not one.noise or one.rounds < ROUNDS_MIN:
        return None
    return fleet.HostEstimate(
        host=host,
        value=math.log(one.ratio.estimate),
        error=one.noise / math.sqrt(one.rounds),
        df=one.rounds - 1,
        begun=summary.begun,
        ended=summary.ended,
    )


def level_of(
    host: str, record: StudyRecord, workload: str, evidence: Evidence | None = None
) -> fleet.HostEstimate | None:
    """Return the logarithm of the baseline's main metric over the rounds of a host; None for too few rounds.

    `evidence` is the study's, where it is known already.
    """
    study = record.study
    rounds = (evidence or evidence_of(record)).rows.get((study.baseline, workload), {})
    values = [row.get(study.metric, math.nan) for _, row in sorted(rounds.items())]
    logs = [math.log(value) for value in values if math.isfinite(value) and value > 0]
    if len(logs) < ROUNDS_MIN or (spread := stdev(logs)) == 0:
        return None
    lag1 = min(max(float(lag1_of(np.array(logs)[:, None])), 0.0), LAG1_MAX)
    # the standard error of an AR(1) series
    error = spread / math.sqrt(len(logs)) * math.sqrt((1 + lag1) / (1 - lag1))
    begun, ended = _span(record)
    return fleet.HostEstimate(host=host, value=fmean(logs), error=error, df=len(logs) - 1, begun=begun, ended=ended)


def _span(record: StudyRecord) -> tuple[datetime, datetime]:
    begun = datetime.fromisoformat(record.study.created)
    return begun, max((datetime.fromisoformat(one.ended) for one in record.trials if one.ended), default=begun)


RANK_SEED = 1


def answer(study: Study, summaries: Mapping[str, fleet.HostSummary]) -> fleet.FleetReport:
    """Return the answer of the same study on many hosts: `study` is one of theirs, `summaries` are by their names."""
    others = [arm.name for arm in study.arms if arm.name != study.baseline]
    compared = [one.name for one in study.compared]
    return fleet.FleetReport(
        hosts=tuple(summaries),
        study=study,
        effects=tuple(_effect(summaries, workload, candidate) for workload in compared for candidate in others),
        levels=tuple(_level(summaries, study.baseline, workload) for workload in compared),
        methods=tuple(sorted({method for one in summaries.values() for method in one.methods})),
    )


def _effect(summaries: Mapping[str, fleet.HostSummary], workload: str, candidate: str) -> fleet.FleetEffect:
    found = {
        host: one
        for host, summary in summaries.items()
        for one in summary.verdicts
        if (one.workload, one.candidate) == (workload, candidate)
    }
    verdicts = (fleet.HostVerdict(host=host, verdict=one.verdict, ratio=one.ratio) for host, one in found.items())
    known = {host: estimate_of(host, summaries[host], one) for host, one in found.items()}
    estimates = tuple(one for one in known.values() if one is not None)
    points, group = _apart(estimates) if len(estimates) >= HOSTS_MIN else ((), ())
    return fleet.FleetEffect(
        workload=workload,
        candidate=candidate,
        verdicts=tuple(verdicts),
        estimates=estimates,
        left_out=tuple(host for host in summaries if known.get(host) is None),
        pooled=pooled(estimates) if len(estimates) > 1 else None,
        points=points,
        group=group,
    )


def _level(summaries: Mapping[str, fleet.HostSummary], arm: str, workload: str) -> fleet.FleetLevel:
    """Judge the baseline's level: refused, with the reason, where hosts cannot be compared."""
    known = {host: dict(summary.levels).get(workload) for host, summary in summaries.items()}
    estimates = tuple(replace(one, host=host) for host, one in known.items() if one is not None)
    left_out = tuple(host for host, one in known.items() if one is None)
    level = fleet.FleetLevel(workload=workload, arm=arm, estimates=estimates, left_out=left_out)
    try:
        require_comparable(estimates)
        points, group = _apart(estimates)
    except VirtuneError as error:
        return replace(level, refused=error.message)
    odd = {one.host for one in points if one.odd} | set(group)
    found = traits({one.host: summaries[one.host].facts for one in estimates}, odd)
    return replace(level, points=points, group=group, ranks=ranks(estimates, seed=RANK_SEED), traits=found)
