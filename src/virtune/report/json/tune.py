# SPDX-License-Identifier: Apache-2.0
"""The result of a search as a JSON document."""

import json
from collections.abc import Mapping, Sequence

from virtune import __version__
from virtune.model.metric import BY_ID
from virtune.model.search import Search
from virtune.model.standing import Contrast, Runner
from virtune.model.study import Study
from virtune.model.tuning import ArmAttempts, Confirmation, LimitCheck, Tuning
from virtune.report.json.parts import basis_part, checked_part, first_read_parts, ramp_part
from virtune.report.json.tune_parts import (
    SCHEMA,
    AttemptsPart,
    ConfirmationPart,
    ContrastPart,
    CostPart,
    LimitPart,
    RunnerPart,
    SearchPart,
    TuneDocument,
)
from virtune.report.reproduce import tune_again


def tuning_document(
    known: Tuning,
    *,
    facts: str,
    spelled: Mapping[str, str] | None = None,
    spelled_notes: Mapping[str, Sequence[str]] | None = None,
) -> TuneDocument:
    """Return the whole result of a search, as plain JSON values in base units.

    `facts` are those of the host, JSON text as a study keeps it. `spelled` is the winner in other programs'
    configuration languages, by program, and `spelled_notes` holds notes on these texts, also by program.
    """
    study, standing = known.study, known.standing
    tried = {one.arm: one for one in known.attempts}
    assert study.search is not None  # noqa: S101 - a Tuning is of a search
    return {
        "schema": SCHEMA,
        "virtune": __version__,
        "study": _search(known, study, study.search),
        "facts": json.loads(facts) if facts else None,
        "recommendation": known.recommendation,
        "why": known.why.text,
        "reason": known.why.reason,
        "winner": known.winner,
        "leader": standing.leader,
        "distance": known.distance,
        "error": study.search.error,
        "certified": standing.certified,
        "rivals": list(known.rivals),
        "tied": list(known.tied),
        "confirmation": None if known.confirmation is None else _confirmation(known.confirmation),
        "soaks": [{"arm": one.arm, "seconds": one.seconds, "ratio": one.ratio} for one in known.soaks],
        "limits": [_check(one) for one in known.checks],
        "arms": [_arm(known, runner, _tried(tried, runner.arm)) for runner in standing.runners],
        "tried": len(standing.runners) + len(known.broken),
        "broken": [{"arm": arm, "after_blocks": after, **_tried(tried, arm)} for arm, after in known.broken],
        "cost": _cost(known, study.search),
        "repeated": known.repeated,
        "basis": {
            "unit": "block",
            "confirmation_unit": "start",
            "checked": checked_part(study.checked),
            "workloads": [basis_part(one) for one in known.basis],
            "command": tune_again(study),
        },
        "ramps": [ramp_part(one) for one in known.ramps],
        "notes": list(known.notes),
        "spelled": dict(spelled or {}),
        "spelled_notes": {program: list(notes) for program, notes in (spelled_notes or {}).items()},
    }


def _cost(known: Tuning, search: Search) -> CostPart:
    return {
        "blocks": known.standing.blocks,
        "slices": known.standing.slices,
        "slices_max": known.probed.slices_max,
        "slices_left": known.standing.slices_left,
        "slice_seconds": known.probed.slice_seconds,
        "noise": known.probed.sd,
        "certificate_seconds": known.probed.certificate_seconds,
        "measured_seconds": known.measured_seconds,
        "elapsed_seconds": known.elapsed_seconds,
        "grid_seconds": search.grid_seconds,
    }


def _search(known: Tuning, study: Study, search: Search) -> SearchPart:
    return {
        "id": study.id,
        "kind": study.kind,
        "created": study.created,
        "mode": search.mode,
        "metric": study.metric,
        "better": BY_ID[study.metric].better,
        "limits": [limit.text for limit in search.goal.limits],
        "durability": search.promise,
        "ranked": len(search.ranked),
        "tries": search.tries,
        "spread_seconds": search.spread_seconds,
        "baseline": study.baseline,
        "margin": study.margin,
        "ramp_seconds": study.ramp_seconds,
        "seed": study.seed,
        "span_bytes": study.span_bytes,
        "target": study.target,
        "first_reads": first_read_parts(study),
        "workloads": [workload.name for workload in study.workloads],
        "jobs": [
            {"workload": workload.name, "name": job.name, "options": job.as_dict()}
            for workload in study.workloads
            for job in workload
        ],
        "budget_seconds": search.budget_seconds,
        "factors": [{"knob": one.knob, "values": list(one.values), "costly": one.costly} for one in search.factors],
        "removed": [
            {"what": one.what, "count": one.count, "why": one.why, "reason": one.reason} for one in search.removed
        ],
        "apart": [
            {"arms": list(one.names), "durability": one.promise, "weaker": one.weaker, "why": one.words}
            for one in search.apart
        ],
        "finished": known.finished,
        "phase": known.phase,
    }


def _arm(known: Tuning, runner: Runner, tried: AttemptsPart) -> RunnerPart:
    arm = known.study.arm(runner.arm)
    return {
        "name": arm.name,
        "settings": dict(arm.settings),
        "place": runner.place,
        "blocks": runner.blocks,
        "out_after": runner.out_after,
        "value": dict(known.values).get(arm.name),
        "against_leader": None if runner.against_leader is None else _contrast(runner.against_leader),
        **tried,
    }


def _tried(attempts: Mapping[str, ArmAttempts], arm: str) -> AttemptsPart:
    found = attempts.get(arm, ArmAttempts(arm=arm, attempts=0))
    return {"attempts": found.attempts, "failed": found.failed, "invalid": dict(found.invalid)}


def _contrast(found: Contrast) -> ContrastPart:
    """ln(arm / leader) in the goal's direction: below 0 is worse; the ends are None where there is no interval."""
    bounded = found.why is None
    return {
        "mean": -found.mean,
        "low": -found.high if bounded else None,
        "high": -found.low if bounded else None,
        "blocks": found.blocks,
        "sd": found.sd,
        "lag1": None if found.sd is None else found.lag1,
        "why": None if found.why is None else found.why.text,
        "reason": None if found.why is None else found.why.reason,
    }


def _confirmation(found: Confirmation) -> ConfirmationPart:
    return {
        "pairs": found.pairs,
        "winner": found.winner,
        "baseline": found.baseline,
        "ratio": None
        if (ratio := found.ratio) is None
        else {"estimate": ratio.estimate, "low": ratio.low, "high": ratio.high, "confidence": ratio.confidence},
        "verdict": found.verdict,
        "why": found.why.text,
        "reason": found.why.reason,
        "spread": found.spread,
        "baseline_spread": found.baseline_spread,
        "unstable": found.unstable,
        "breaks": list(found.breaks),
        "processes": found.processes,
    }


def _check(found: LimitCheck) -> LimitPart:
    return {
        "arm": found.arm,
        "workload": found.workload,
        "limit": found.limit.text,
        "blocks": found.blocks,
        "value": found.value,
        "low": found.low,
        "high": found.high,
        "state": found.state,
    }
