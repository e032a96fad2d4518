# SPDX-License-Identifier: Apache-2.0
"""Stored studies: derived again if there is a newer method, their raw evidence, what they cost, the last check."""

import contextlib
import json
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from virtune.analyse.study.summarise import summarise
from virtune.fio.as_asked import another_trial
from virtune.model.errors import LoadError, StoreError
from virtune.model.evidence import FIO_OUTPUTS, Capture, Listed, StudyRecord, TrialRecord
from virtune.model.measurement import METHOD, Measurement
from virtune.model.remark import ANOTHER_TRIAL, COPY, UNVERIFIED
from virtune.model.result import Result
from virtune.model.study import Checked, Study, StudyKind
from virtune.plan.trials import NOTHING_SEEN, SeenCosts, TimedStudy, kind_of, seen_of

if TYPE_CHECKING:
    from virtune.store.store import Store


def current(store: "Store", study_id: str) -> tuple[StudyRecord, Result]:
    """Return a study and its result by today's method; new measurements are stored besides the old ones."""
    record = by_todays_method(store, study_id)
    return record, summarise(record)


def by_todays_method(store: "Store", study_id: str) -> StudyRecord:
    """Return a study with the figures of today's method, so that all figures judged together use the same one.

    Where today's method cannot read the captures, the older figures stay (`StudyRecord.methods` shows it).
    """
    return derived_anew(store, store.get(study_id))


def derived_anew(store: "Store", record: StudyRecord) -> StudyRecord:
    """Return a study that was read with the figures of today's method, without reading it again. A trial whose kept
    result is that of another one is invalid.
    """
    attempts = tuple(_derived_anew(store, record, one) for one in record.attempts)
    others = dict(exchanged(store, record))
    attempts = tuple(_of_another(one, others.get((one.trial.number, one.attempt))) for one in attempts)
    stand = {one.trial.number: one for one in attempts}  # the last of several attempts counts
    trials = tuple(stand[one.trial.number] for one in record.trials)
    return replace(record, trials=trials, attempts=attempts)


def exchanged(store: "Store", record: StudyRecord) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield the attempts whose captures are of another load, by number and attempt, with whose they are."""
    if record.study.imported or record.study.simulated:
        return
    for (number, attempt), parts in store.results(record.study.id):
        found = another_trial(parts, study=record.study.id, trial=number, attempt=attempt)
        if found is not None:
            yield (number, attempt), found


def _of_another(trial: TrialRecord, found: str | None) -> TrialRecord:
    if found is None or trial.measurement is None or ANOTHER_TRIAL.id in trial.measurement.causes:
        return trial
    remark = ANOTHER_TRIAL.remark(text=f"the kept result is not that of this trial, but {found}")
    return replace(trial, measurement=replace(trial.measurement, remarks=(*trial.measurement.remarks, remark)))


def captures_of(store: "Store", study_id: str, number: int, name: str | None) -> Sequence[Capture]:
    """Return the raw evidence of a trial, all or the one of that name."""
    captures = store.captures(study_id, number)
    if not captures:
        raise StoreError(f"study {study_id} has no trial {number} with evidence")
    if name is None:
        return captures
    found = [capture for capture in captures if capture.name == name]
    if not found:
        names = ", ".join(capture.name for capture in captures)
        raise StoreError(f"trial {number} has no capture {name!r}", hint=f"it has {names}")
    return found


def fio_outputs(store: "Store", study_id: str, number: int | None) -> list[tuple[str, bytes]]:
    """Return fio's original output, with a label: of one trial, or of each arm's first trial; of every VM its own."""
    record = store.get(study_id)
    done = [trial for trial in record.trials if trial.measurement is not None]
    if number is None:
        firsts = {(trial.trial.workload, trial.trial.arm): trial for trial in reversed(done)}
        chosen = [trial for trial in done if trial in firsts.values()]
    else:
        chosen = [trial for trial in done if trial.trial.number == number]
    if not chosen:
        which = "trial with a measurement" if number is None else f"measured trial {number}"
        raise StoreError(f"study {study_id} has no {which}")
    found = []
    for trial in (one.trial for one in chosen):
        captures = captures_of(store, study_id, trial.number, None)
        outputs = [one.content for one in captures if re.sub(r"-\d+(?=\.)", "", one.name) in FIO_OUTPUTS]
        for vm, content in enumerate(outputs, 1):
            which = f"trial {trial.number}, VM {vm}" if len(outputs) > 1 else f"trial {trial.number}"
            found.append((f"{trial.arm} ({which})", content))
    return found


def _derived_anew(store: "Store", record: StudyRecord, trial: TrialRecord) -> TrialRecord:
    if trial.measurement is None or trial.measurement.method == METHOD:
        return trial
    study, number = record.study, trial.trial.number
    try:
        _, measurement = derived(store, study, trial)
    except LoadError:
        return trial  # today's method cannot read it: the old measurement stays, with its method's number
    # its settings were verified when it ran, by what could be verified then, and it was compared with the others
    judged = tuple(one for one in trial.measurement.remarks if one.id in (UNVERIFIED.id, COPY.id))
    measurement = replace(measurement, remarks=(*judged, *measurement.remarks))
    if store.writable:
        store.add_measurement(study.id, number, measurement, attempt=trial.attempt)
    return replace(trial, measurement=measurement)


def derived(store: "Store", study: Study, record: TrialRecord) -> tuple[dict[str, bytes], Measurement]:
    """Return a trial's captures and their measurement by today's method. Raises LoadError for what it cannot read."""
    # the readers of raw evidence take a tenth of a second to load and are seldom needed
    from virtune.analyse.trial.derive import derive

    trial = record.trial
    parts = {one.name: one.content for one in store.captures(study.id, trial.number, attempt=record.attempt)}
    arm = study.arm(trial.arm)
    return parts, derive(parts, stack=arm.stack, workload=arm.load_of(study.workload(trial.workload)))


def study_id(now: datetime, *, simulated: bool = False) -> str:
    """Return a new id; that of a simulated study ends in `-sim`, and every output shows the id."""
    return f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}{'-sim' if simulated else ''}"


def newest(store: "Store", most: int, *, kind: str = "") -> list[Listed]:
    """Return this host's newest studies that can be read, of one kind or of all."""
    rows = store.page(words="", kind=kind, limit=most, offset=0, own=True).rows
    return [one for one in rows if isinstance(one, Listed)]


STUDIES_MAX = 8
"""How many of the newest studies with stacks of the same kinds are read."""

STUDIES_READ = 200
"""Among how many of the newest studies these are looked for: the store of a host that CI uses has thousands."""


def seen_costs(store: "Store", study: Study) -> SeenCosts:
    """Return the overhead of a study's stacks in the newest studies of this host; empty if unknown."""
    if study.simulated:
        return NOTHING_SEEN
    wanted = {kind_of(arm.stack) for arm in study.arms}
    with contextlib.suppress(StoreError):  # a forecast must not cause an error
        known = [one.study for one in newest(store, STUDIES_READ) if one.done]
        past = [one for one in known if not one.simulated and not one.imported and one.id != study.id]
        alike = [one for one in past if wanted & {kind_of(arm.stack) for arm in one.arms}]
        return seen_of([found for one in alike[:STUDIES_MAX] if (found := _past(store, one, past)) is not None])
    return NOTHING_SEEN


def _past(store: "Store", study: Study, studies: Sequence[Study]) -> TimedStudy | None:
    """Return the end times of a study's attempts; None for another host's. `studies` are all, the newest first."""
    facts, moments = store.moments(study.id)
    if not of_this_host(facts):
        return None
    begun = datetime.fromisoformat(study.created)
    place = (study.scratch, study.span_bytes)
    older = studies[studies.index(study) + 1 :]
    return TimedStudy(
        study=study,
        attempts=tuple((arm, (datetime.fromisoformat(ended) - begun).total_seconds()) for arm, ended in moments),
        filled=study.connect is not None or all((one.scratch, one.span_bytes) != place for one in older),
    )


def of_this_host(facts: str) -> bool:
    """Whether facts are of a host with this one's CPU."""
    from virtune.model.facts import Unknown  # which no stored result needs
    from virtune.probe.cpu import cpu_facts

    mine = cpu_facts().model
    try:
        theirs = json.loads(facts)["host"]["cpu"]["model"]
    except (ValueError, LookupError, TypeError):
        return False
    return not isinstance(mine, Unknown) and theirs == mine


LATEST = timedelta(days=1)
"""The greatest age of a check that still describes the host."""

CHECKS_READ = 100
"""How many checks are looked at: no more fit into a day."""


def last_check(store: "Store", study: Study) -> Checked | None:
    """Return the last finished check in the store within 24 hours before a study; None without one."""
    if study.simulated:
        return None
    begun = datetime.fromisoformat(study.created)
    found = newest(store, CHECKS_READ, kind=StudyKind.CHECK)
    checks = [one.study for one in found if one.finished and not one.study.simulated]
    recent = [one for one in checks if timedelta() <= begun - _begun(one) <= LATEST]
    if not recent:
        return None
    last = max(recent, key=_begun)
    try:
        _, result = current(store, last.id)
    except StoreError:  # it is damaged, which need not stop the measurement
        return None
    verdict = next((one for one in result.verdicts), None)
    if verdict is None:
        return None
    ends = (None, None) if verdict.ratio is None else (verdict.ratio.low, verdict.ratio.high)
    return Checked(study=last.id, created=last.created, verdict=verdict.verdict, low=ends[0], high=ends[1])


def _begun(study: Study) -> datetime:
    return datetime.fromisoformat(study.created)
