# SPDX-License-Identifier: Apache-2.0
"""A copy of a study without names: what is derived, drawn and exported from the copy has none either."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from virtune.dialects.text.anonymous import Anonymous
from virtune.fio.options import ENGINE_OPTIONS, IN_FILES, SHAPING
from virtune.flows.stored.show import by_todays_method
from virtune.model.evidence import Capture, InForce, StudyRecord, TrialRecord
from virtune.model.knob import Choice
from virtune.model.knobs import KNOBS
from virtune.model.measurement import Measurement
from virtune.model.metric import METRICS
from virtune.plan.codec import study_from_json, study_to_json
from virtune.store.queries import dump, load
from virtune.store.store import Store


@contextmanager
def anonymous_copy(store: Store, name: str, names: Sequence[tuple[str, str]]) -> Iterator[tuple[Store, list[str]]]:
    """Yield a store with a copy of one study in which the names are replaced, and the names that were replaced only
    where they stand as names, since they are also words of virtune's own.

    `names` are further names to replace, each with what it names (`host`, `user`, `vm`, `name`).
    """
    record = by_todays_method(store, name)
    attempts = record.attempts or record.trials
    words = Anonymous(names, ours=_own_words())
    for text in _documents(record):
        words.learn_value(json.loads(text))
    for one in attempts:
        for capture in store.captures(name, one.trial.number, attempt=one.attempt):
            words.learn(_text(capture.content))
    with tempfile.TemporaryDirectory(prefix="virtune-") as folder, Store(Path(folder) / "copy.sqlite") as copy:
        study = study_from_json(_cleaned(words, study_to_json(record.study)))
        copy.add_study(study, facts=_cleaned(words, record.facts) if record.facts else "")
        for one in attempts:
            captures = store.captures(name, one.trial.number, attempt=one.attempt)
            copy.add_trial(name, _trial(words, one), [_capture(words, capture) for capture in captures])
        if record.finished:
            copy.finish(name)
        yield copy, sorted(words.left)


def _own_words() -> Iterator[str]:
    """Yield the words that documents of virtune and fio use for what they say."""
    for text in (*(one.id for one in METRICS), *(one.id for one in KNOBS), *SHAPING, *IN_FILES, *ENGINE_OPTIONS):
        yield text
        yield from text.replace("_", ".").split(".")
    for knob in KNOBS:
        yield from knob.domain.values if isinstance(knob.domain, Choice) else ()


def _documents(record: StudyRecord) -> Iterator[str]:
    yield study_to_json(record.study)
    yield record.facts or "{}"
    for one in record.attempts or record.trials:
        yield dump(InForce, one.in_force)
        yield json.dumps(one.failure or "")
        if one.measurement is not None:
            yield dump(Measurement, one.measurement)


def _cleaned(words: Anonymous, document: str) -> str:
    return json.dumps(words.cleaned_value(json.loads(document)), ensure_ascii=False)


def _trial(words: Anonymous, one: TrialRecord) -> TrialRecord:
    measured = one.measurement
    return replace(
        one,
        trial=replace(
            one.trial, arm=words.cleaned_value(one.trial.arm), workload=words.cleaned_value(one.trial.workload)
        ),
        in_force=load(InForce, _cleaned(words, dump(InForce, one.in_force))),
        measurement=None if measured is None else load(Measurement, _cleaned(words, dump(Measurement, measured))),
        failure=None if one.failure is None else words.cleaned_value(one.failure),
    )


def _capture(words: Anonymous, capture: Capture) -> Capture:
    content = words.cleaned(_text(capture.content)).encode("utf-8", "surrogateescape")
    return Capture(name=words.cleaned_value(capture.name), content=content)


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")
