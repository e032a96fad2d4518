# SPDX-License-Identifier: Apache-2.0
"""A stored study: derived again if there is a newer method, and its raw evidence."""

from collections.abc import Sequence
from dataclasses import replace

from virtune.analyse.study.summarise import summarise
from virtune.model.errors import LoadError, StoreError
from virtune.model.evidence import FIO_OUTPUTS, Capture, StudyRecord, TrialRecord
from virtune.model.measurement import METHOD
from virtune.model.remark import COPY, UNVERIFIED
from virtune.model.result import Result
from virtune.store.store import Store


def current(store: Store, study_id: str) -> tuple[StudyRecord, Result]:
    """Return a study and its result by today's method; new measurements are stored besides the old ones."""
    record = by_todays_method(store, study_id)
    return record, summarise(record)


def by_todays_method(store: Store, study_id: str) -> StudyRecord:
    """Return a study with the figures of today's method, so that all figures judged together use the same one.

    Where today's method cannot read the captures, the older figures stay (`StudyRecord.methods` shows it).
    """
    return derived_anew(store, store.get(study_id))


def derived_anew(store: Store, record: StudyRecord) -> StudyRecord:
    """Return a study that was read with the figures of today's method, without reading it again."""
    attempts = tuple(_derived_anew(store, record, one) for one in record.attempts)
    stand = {one.trial.number: one for one in attempts}  # the last of several attempts counts
    trials = tuple(stand[one.trial.number] for one in record.trials)
    return replace(record, trials=trials, attempts=attempts)


def captures_of(store: Store, study_id: str, number: int, name: str | None) -> Sequence[Capture]:
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


def fio_outputs(store: Store, study_id: str, number: int | None) -> list[tuple[str, bytes]]:
    """Return fio's original output, with a label: of one trial, or of each arm's first trial."""
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
    return [
        (f"{trial.trial.arm} (trial {trial.trial.number})", capture.content)
        for trial in chosen
        for capture in captures_of(store, study_id, trial.trial.number, None)
        if capture.name in FIO_OUTPUTS
    ]


def _derived_anew(store: Store, record: StudyRecord, trial: TrialRecord) -> TrialRecord:
    if trial.measurement is None or trial.measurement.method == METHOD:
        return trial
    # the readers of raw evidence take a tenth of a second to load and are seldom needed
    from virtune.analyse.trial.derive import derive

    study, number = record.study, trial.trial.number
    parts = {capture.name: capture.content for capture in store.captures(study.id, number, attempt=trial.attempt)}
    try:
        arm = study.arm(trial.trial.arm)
        workload = arm.load_of(study.workload(trial.trial.workload))
        measurement = derive(parts, stack=arm.stack, workload=workload)
    except LoadError:
        return trial  # today's method cannot read it: the old measurement stays, with its method's number
    # its settings were verified when it ran, by what could be verified then, and it was compared with the others
    judged = tuple(one for one in trial.measurement.remarks if one.id in (UNVERIFIED.id, COPY.id))
    measurement = replace(measurement, remarks=(*judged, *measurement.remarks))
    if store.writable:
        store.add_measurement(study.id, number, measurement, attempt=trial.attempt)
    return replace(trial, measurement=measurement)
