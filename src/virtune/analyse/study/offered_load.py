# SPDX-License-Identifier: Apache-2.0
"""Whether the offered load was achieved: an arm that falls behind has an ever-growing queue, and no latency to
compare.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from virtune.analyse.trial.validity_rules import EDGE_SECONDS, RATE_MET
from virtune.model.evidence import TrialRecord
from virtune.model.metric import BY_ID
from virtune.model.reason import Reason, because
from virtune.model.study import Study
from virtune.model.verdict import Comparison, Verdict

Unmet = Mapping[tuple[str, str], Collection[int]]
"""(arm, workload) -> rounds in which less than the offered load was achieved."""

SATURATED_SHARE = 0.5
"""From this share of its rounds on, an arm counts as saturated; fewer such rounds are taken for stalls of the host.
"""


def met_share(study: Study) -> float:
    """Return the share of what is offered that is done where nothing falls behind: all of it, but for the edges."""
    return RATE_MET - EDGE_SECONDS / study.seconds


def unmet_rounds(study: Study, trials: Iterable[TrialRecord]) -> Unmet:
    """Return the rounds in which an arm achieved less than 99 % of the offered load, allowing for the edges of the
    run.
    """
    if study.imported:  # it has neither an offered load nor a trial time
        return {}
    share = met_share(study)
    offered = {workload.name: workload.offered_iops for workload in study.workloads}
    found: dict[tuple[str, str], set[int]] = {}
    for record in trials:
        asked = offered.get(record.trial.workload)
        done = None if record.measurement is None else record.measurement.get("iops")
        if asked is not None and done is not None and done < share * asked:
            found.setdefault((record.trial.arm, record.trial.workload), set()).add(record.trial.round)
    return found


def rounds_by_workload(trials: Iterable[TrialRecord]) -> dict[str, int]:
    """Return how many rounds each workload has had: a decided one has fewer than the study."""
    found: dict[str, int] = {}
    for record in trials:
        found[record.trial.workload] = max(record.trial.round, found.get(record.trial.workload, 0))
    return found


def judged(comparison: Comparison, unmet: Unmet, rounds: int, *, fewest: int) -> Comparison:
    """Mark a comparison of latencies as undecided where an arm was saturated: then there is nothing to compare.

    `rounds` are those of the comparison's workload, `fewest` those that a verdict takes.
    """
    if BY_ID[comparison.metric].unit != "ns":
        return comparison
    arms = (comparison.baseline, comparison.candidate)
    missed = {arm: len(unmet.get((arm, comparison.workload), ())) for arm in arms}
    saturated = [arm for arm, count in missed.items() if rounds and count >= SATURATED_SHARE * rounds]
    if not saturated:
        return comparison
    verb = "are" if len(saturated) > 1 else "is"
    why = because(Reason.SATURATED, arms=" and ".join(saturated), are=verb)
    return replace(
        comparison,
        ratio=None,
        verdict=Verdict.UNDECIDED,
        why=why.text,
        reason=why.reason,
        rounds_left=None,
        closed=rounds >= fewest,
    )
