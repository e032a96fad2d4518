# SPDX-License-Identifier: Apache-2.0
"""The report of a fleet as a JSON document."""

import math
from typing import Annotated, TypedDict

from virtune import __version__
from virtune.model.fleet import FleetEffect, FleetLevel, FleetReport, FunnelPoint, Pooled
from virtune.model.verdict import Verdict
from virtune.report.json.document import IDENTITY, NOT_NEGATIVE, Name, ProgramVersion

SCHEMA = "virtune/fleet-report/2"

SHARE = {"minimum": 0, "maximum": 1}


class _Pooled(TypedDict):
    """The mean over hosts, as ratios candidate / baseline."""

    hosts: Annotated[int, "Hosts in it.", NOT_NEGATIVE]
    estimate: Annotated[float, "The mean ratio."]
    low: Annotated[float, "The lower end of its interval."]
    high: Annotated[float, "The upper end of its interval."]
    next_low: Annotated[float | None, "The lower end of the interval of one more host; null for two hosts."]
    next_high: Annotated[float | None, "Its upper end."]
    tau: Annotated[float, "The standard deviation between hosts, of the natural logarithm.", NOT_NEGATIVE]
    i_squared: Annotated[float, "The share of the variation that noise does not explain.", SHARE]
    q: Annotated[float, "Cochran's Q.", NOT_NEGATIVE]
    q_p: Annotated[float, "Its p.", SHARE]
    confidence: Annotated[float, "The confidence of both intervals.", SHARE]


class _Point(TypedDict):
    """One host in a funnel."""

    host: Annotated[str, "Its name."]
    ratio: Annotated[float, "Its value against the mean of the others."]
    residual: Annotated[float, "Its distance in standard errors."]
    p: Annotated[float, "Two-sided p of that.", SHARE]
    adjusted: Annotated[float, "The same after Benjamini and Hochberg over all hosts.", SHARE]
    odd: Annotated[bool, "Whether the host is odd, at a false-discovery rate of 5 %."]


class _HostVerdict(TypedDict):
    """The verdict of one host."""

    host: Annotated[str, "Its name."]
    verdict: Annotated[Verdict, "The verdict of its study."]


class _Effect(TypedDict):
    """One candidate against the baseline under one workload."""

    workload: Annotated[str, "The workload."]
    candidate: Annotated[str, "The arm."]
    verdicts: Annotated[list[_HostVerdict], "The verdict of each host."]
    left_out: Annotated[list[Name], "Hosts without a usable standard error."]
    pooled: Annotated[_Pooled | None, "The mean over hosts; null for fewer than two."]
    hosts: Annotated[list[_Point], "Each host against the others; empty for too few hosts."]


class _Rank(TypedDict):
    """The rank of a host, 1 is the highest value."""

    host: Annotated[str, "Its name."]
    mean: Annotated[float, "Its mean rank over the draws.", {"minimum": 1}]
    low: Annotated[int, "The lower end of its interval.", {"minimum": 1}]
    high: Annotated[int, "The upper end of its interval.", {"minimum": 1}]
    tied: Annotated[list[Name], "The hosts from which it is not told."]


class _Trait(TypedDict):
    """A fact that odd hosts have and others seldom have."""

    key: Annotated[str, "The path of the fact."]
    value: Annotated[str, "Its value there."]
    usual: Annotated[str, "The most frequent value among the others."]
    odd_with: Annotated[int, "How many odd hosts have the value.", NOT_NEGATIVE]
    odd: Annotated[int, "How many hosts are odd.", NOT_NEGATIVE]
    others_with: Annotated[int, "How many others have it.", NOT_NEGATIVE]
    others: Annotated[int, "How many others there are.", NOT_NEGATIVE]
    p: Annotated[float, "Fisher's one-sided p of such a split: for the order, not a proof.", SHARE]


class _Level(TypedDict):
    """The level of the baseline under one workload."""

    workload: Annotated[str, "The workload."]
    arm: Annotated[str, "The baseline."]
    refused: Annotated[str | None, "Why hosts are not compared; null where they are."]
    left_out: Annotated[list[Name], "Hosts with too few rounds."]
    hosts: Annotated[list[_Point], "Each host against the others."]
    ranks: Annotated[list[_Rank], "The hosts by their ranks."]
    traits: Annotated[list[_Trait], "What the odd hosts have, the most telling first."]


class FleetReportDocument(TypedDict):
    """What `virtune fleet report --json` writes."""

    schema: Annotated[str, IDENTITY, {"const": SCHEMA}]
    virtune: ProgramVersion
    metric: Annotated[str, "The main metric of the study."]
    baseline: Annotated[str, "The baseline."]
    simulated: Annotated[bool, "Whether the figures are invented, for trying virtune itself."]
    hosts: Annotated[list[Name], "The hosts."]
    others: Annotated[list[Name], "Hosts that are not in it: they have measured something else only."]
    effects: Annotated[list[_Effect], "Each candidate against the baseline."]
    levels: Annotated[list[_Level], "The level of the baseline by workload."]


def report_document(found: FleetReport) -> FleetReportDocument:
    """Return the report of a fleet."""
    return {
        "schema": SCHEMA,
        "virtune": __version__,
        "metric": found.study.metric,
        "baseline": found.study.baseline,
        "simulated": found.study.simulated,
        "hosts": list(found.hosts),
        "others": list(found.others),
        "effects": [_effect(one) for one in found.effects],
        "levels": [_level(one) for one in found.levels],
    }


def _effect(one: FleetEffect) -> _Effect:
    return {
        "workload": one.workload,
        "candidate": one.candidate,
        "verdicts": [{"host": host, "verdict": verdict} for host, verdict in one.verdicts],
        "left_out": list(one.left_out),
        "pooled": None if one.pooled is None else _pooled(one.pooled),
        "hosts": [_point(point) for point in one.points],
    }


def _pooled(one: Pooled) -> _Pooled:
    return {
        "hosts": one.hosts,
        "estimate": math.exp(one.mean),
        "low": math.exp(one.low),
        "high": math.exp(one.high),
        "next_low": None if one.next_low is None else math.exp(one.next_low),
        "next_high": None if one.next_high is None else math.exp(one.next_high),
        "tau": one.tau,
        "i_squared": one.i_squared,
        "q": one.q,
        "q_p": one.q_p,
        "confidence": one.confidence,
    }


def _point(one: FunnelPoint) -> _Point:
    return {
        "host": one.host,
        "ratio": math.exp(one.distance),
        "residual": one.residual,
        "p": one.p,
        "adjusted": one.adjusted,
        "odd": one.odd,
    }


def _level(one: FleetLevel) -> _Level:
    return {
        "workload": one.workload,
        "arm": one.arm,
        "refused": one.refused,
        "left_out": list(one.left_out),
        "hosts": [_point(point) for point in one.points],
        "ranks": [
            {"host": rank.host, "mean": rank.rank, "low": rank.low, "high": rank.high, "tied": list(rank.tied)}
            for rank in one.ranks
        ],
        "traits": [
            {
                "key": trait.key,
                "value": trait.value,
                "usual": trait.usual,
                "odd_with": trait.odd_with,
                "odd": trait.odd,
                "others_with": trait.others_with,
                "others": trait.others,
                "p": trait.p,
            }
            for trait in one.traits
        ],
    }
