# SPDX-License-Identifier: Apache-2.0
"""A kept study as the JSON document that its kind has."""

from collections.abc import Mapping, Sequence

from virtune.analyse.study.summarise import summarise
from virtune.flows.reports.render import Spelled, spelled
from virtune.flows.run.check import fitness
from virtune.flows.run.sweep import sweep_of
from virtune.flows.run.tune import tuning_of
from virtune.flows.stored.show import by_todays_method
from virtune.model.evidence import StudyRecord
from virtune.model.study import StudyKind
from virtune.model.tuning import Tuning
from virtune.report.json.host import check_document
from virtune.report.json.result import result_document, sweep_document
from virtune.report.json.tune import TuneDocument, tuning_document
from virtune.store.store import Store


def study_document(store: Store, name: str) -> Mapping[str, object]:
    """Return what `virtune show NAME --json` writes."""
    return record_document(store, by_todays_method(store, name))


def record_document(store: Store, record: StudyRecord) -> Mapping[str, object]:
    """Return the document of a study that was read, with its figures by today's method."""
    match record.study.kind:
        case StudyKind.TUNE:
            known = tuning_of(store, record)
            return search_document(known, spelled(known), record.facts)
        case StudyKind.SWEEP:
            return sweep_document(sweep_of(store, record), summarise(record), facts=record.facts)
        case StudyKind.CHECK:
            return check_document(fitness(record))
        case _:
            return result_document(summarise(record), record)


def search_document(known: Tuning, words: Sequence[Spelled], facts: str) -> TuneDocument:
    """Return the document of a search, with the lines that put its winner to use."""
    texts = {one.program: one.text for one in words if one.text}
    notes = {one.program: one.notes for one in words if one.notes}
    return tuning_document(known, facts=facts, spelled=texts, spelled_notes=notes)
