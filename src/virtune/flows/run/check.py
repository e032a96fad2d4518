# SPDX-License-Identifier: Apache-2.0
"""The check: an A/A test of about a minute (two arms with the same stack), stored like any study, and its conclusions
on this host.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from virtune.analyse.study.summarise import fitness_of
from virtune.flows.run.preconditions import Leave
from virtune.flows.run.question import TRIAL_SECONDS, Question, facts_text, study_for
from virtune.flows.run.study import run_study
from virtune.model.errors import PlanError, StoreError
from virtune.model.event import Say
from virtune.model.evidence import Listed, StudyRecord
from virtune.model.remark import Remark, Weight
from virtune.model.result import Fitness, Neighbour
from virtune.model.rig import METAL, read_rig
from virtune.model.study import Study, StudyKind
from virtune.model.study_options import OPTIONS, Provenance, StudyOptions
from virtune.plan.arms import layered, recorded
from virtune.probe.neighbours import look, neighbours
from virtune.store.store import Store

SECONDS_MIN = 10.0
"""The shortest check: less is three rounds of a second, which allow no conclusion."""

ROUNDS_MIN = 3


def check_study(asked: StudyOptions) -> tuple[Study, str]:
    """Return the study of a check that takes about `asked.seconds`, and the facts of this host as JSON text."""
    seconds = OPTIONS["seconds"].default_for("check") if asked.seconds is None else asked.seconds
    if not SECONDS_MIN <= seconds <= 86_400:
        raise PlanError("--seconds of a check must be between 10 s and one day", hint="`--seconds 60s`")
    each = min(TRIAL_SECONDS["check"], seconds / 8)
    rig = asked.rig or OPTIONS["rig"].default_for("check")
    known = read_rig(rig)  # None where there is no such rig, which `study_for` refuses
    beside = METAL.beside_seconds if known is None else known.kind.beside_seconds
    block = 2 * (each + OPTIONS["ramp"].default + beside)
    own = {"rig": rig, "arms": ("A:", "B:"), "rounds": max(ROUNDS_MIN, round(seconds / block)), "seconds": each}
    study = study_for(Question.of(asked, StudyKind.CHECK, **own))
    options, sources = layered((Provenance.FLAG, asked))
    values = {"seed": study.seed, "scratch": None if study.target else study.scratch}
    return replace(study, options=recorded("check", options, sources, values)), facts_text(Path(study.scratch))


def run_check(study: Study, *, store: Store, say: Say, leave: Leave, facts: str) -> tuple[Neighbour, ...]:
    """Run the trials of a check and return the other active processes."""
    before = look()
    run_study(study, store=store, say=say, leave=leave, facts=facts)
    return neighbours(before, look())


def fitness(
    record: StudyRecord, *, around: tuple[Neighbour, ...] | None = None, earlier: tuple[float | None, ...] = ()
) -> Fitness:
    """Return the result of a stored check; `around` are the other active processes, None if no longer known, and
    `earlier` what `found_before` returned.
    """
    return replace(fitness_of(record, findings=_remarks(record.facts), neighbours=around), earlier=earlier)


def newest_checks(store: Store, most: int) -> Iterator[StudyRecord]:
    """Yield the newest checks of this host, so many at most, each of which has to be derived from its trials."""
    for one in store.page(words="", kind=StudyKind.CHECK, limit=most, offset=0, own=True).rows:
        if isinstance(one, Listed) and one.done:
            with contextlib.suppress(StoreError):  # a damaged one is told by the list
                yield store.get(one.study.id)


EARLIER_MAX = 10


def found_before(store: Store, study: Study) -> tuple[float | None, ...]:
    """Return what five minutes detected by the newest checks on this host that asked the same; None of one that did
    not tell.
    """
    others = (one for one in newest_checks(store, EARLIER_MAX + 1) if one.study.id != study.id)
    return tuple(fitness(one).reach(5) for one in others if _asked(one.study) == _asked(study))


def _asked(study: Study) -> tuple[object, ...]:
    return study.arms, study.workloads, study.target, study.span_bytes


def _remarks(facts: str) -> list[Remark]:
    """Return the probe's remarks on the host when the check began; empty if they are damaged."""
    try:
        return [
            Remark(id=one["id"], weight=Weight(one["weight"]), text=one["text"], advice=one["advice"])
            for one in (json.loads(facts).get("findings", []) if facts else [])
        ]
    except (ValueError, LookupError, TypeError, AttributeError):
        return []
