# SPDX-License-Identifier: Apache-2.0
"""Explain a fio result in words: the list of all interpretation rules.

A rule is a small function whose docstring is its documentation. It reports only figures that are present, and names
them. Rules of a load run once for each job group, rules of the result once.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from virtune.analyse.trial import cache_rules, contradictions, reading_rules, validity_rules
from virtune.model.measurement import FioResult, LoadResult
from virtune.model.remark import Remark

LoadRule = Callable[[LoadResult], Iterator[Remark]]
ResultRule = Callable[[FioResult], Iterator[Remark]]

RESULT_RULES: tuple[ResultRule, ...] = (
    cache_rules.page_cache,
    cache_rules.cached_sync,
    reading_rules.device_busy,
    reading_rules.device_share,
)

LOAD_RULES: tuple[LoadRule, ...] = (
    validity_rules.no_io,
    validity_rules.errors,
    contradictions.contradicting,
    validity_rules.short_ios,
    validity_rules.cut_short,
    validity_rules.depth_ignored,
    validity_rules.depth_not_filled,
    validity_rules.depth_in_submission,
    validity_rules.little,
    validity_rules.rate_unmet,
    validity_rules.spread,
    validity_rules.short_run,
    validity_rules.saturated_cpu,
    reading_rules.latency_parts,
    reading_rules.jitter,
    reading_rules.tail_unresolved,
    reading_rules.sync_share,
    reading_rules.kernel_cpu,
    reading_rules.misnamed,
)


def explain(result: FioResult, *, parts: int = 1) -> tuple[Remark, ...]:
    """Return the remarks on a result: invalid first, then warnings, then notes.

    `parts` is the number of its parts that are not known to have run at the same time.
    """
    remarks = [remark for rule in RESULT_RULES for remark in rule(result)]
    remarks += reading_rules.not_added(result, parts)
    for name, clones in _by_name(result).items():
        remarks += _of_clones(clones, name=name if len(clones) < len(result.loads) else "")
    return tuple(sorted(remarks, key=lambda remark: remark.weight.rank))


def _by_name(result: FioResult) -> dict[str, list[LoadResult]]:
    """The clones of one job, reported one by one, share a name; a remark on several of them is given once."""
    named: dict[str, list[LoadResult]] = {}
    for load in result.loads:
        named.setdefault(load.name, []).append(load)
    return named


def _of_clones(clones: list[LoadResult], *, name: str) -> Iterator[Remark]:
    for rule in LOAD_RULES:
        found = [remarks for load in clones if (remarks := list(rule(load)))]
        for remark in found[0] if found else []:
            who = f"`{name}`: " if name else ""
            like = f" (One of {len(found)} such jobs.)" if len(found) > 1 else ""
            yield replace(remark, text=f"{who}{remark.text}{like}")
