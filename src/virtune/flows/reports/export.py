# SPDX-License-Identifier: Apache-2.0
"""Export a study: its measurements as CSV or Parquet, and a bundle of everything stored, also without names."""

import csv
import io
import json
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from virtune.analyse.study.verdicts import by_arm
from virtune.analyse.trial.rejection import pardons_of, sound_of
from virtune.dialects.text.anonymous import Anonymous
from virtune.fio.options import ENGINE_OPTIONS, IN_FILES, SHAPING
from virtune.flows.reports.render import record_document
from virtune.flows.stored.import_bundle import entry, put_rows
from virtune.flows.stored.show import by_todays_method
from virtune.model.evidence import Capture, InForce, StudyRecord, TrialRecord
from virtune.model.knob import Choice
from virtune.model.knobs import KNOBS
from virtune.model.measurement import Measurement
from virtune.model.metric import BY_ID, METRICS
from virtune.model.text import spreadsheet_cell
from virtune.plan.codec import study_from_json, study_to_json
from virtune.shell import require_modules
from virtune.store.queries import dump, load
from virtune.store.store import Store


@contextmanager
def anonymous_copy(store: Store, name: str, names: Sequence[tuple[str, str]]) -> Iterator[tuple[Store, list[str]]]:
    """Yield a store with a copy of one study in which the names of hosts, users, VMs and paths, serial numbers and
    addresses are replaced, and the names that were replaced only where they stand as names, since they are also words
    of virtune's own.

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
            clean = (words.cleaned(_text(one.content)).encode("utf-8", "surrogateescape") for one in captures)
            names_of = (words.cleaned_value(one.name) for one in captures)
            kept = [Capture(name=name, content=content) for name, content in zip(names_of, clean, strict=True)]
            copy.add_trial(name, _trial(words, one), kept)
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


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


COLUMNS = ("study", "trial", "attempt", "round", "workload", "arm", "ended", "counts", "metric", "unit", "value")


def measurements_csv(store: Store, study: str) -> str:
    """Return every measured value of every attempt, a row each, in base units (ns, bytes, 1/s, CPU seconds per I/O).

    `counts` is 1 where the attempt is behind the figures and verdicts that `virtune show` has.
    """
    return _csv(by_todays_method(store, study))


def _csv(record: StudyRecord) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for study, trial, attempt, number, workload, arm, ended, counts, metric, unit, value in _values(record):
        # a spreadsheet takes these for texts and numbers
        names = spreadsheet_cell(str(workload)), spreadsheet_cell(str(arm))
        writer.writerow([study, trial, attempt, number, *names, ended, int(bool(counts)), metric, unit, repr(value)])
    return text.getvalue()


def measurements_parquet(store: Store, study: str) -> bytes:
    """Return the same rows as a Parquet file. Raises MissingToolError without pyarrow."""
    table = measurements_table(by_todays_method(store, study))
    from pyarrow import parquet

    file = io.BytesIO()
    parquet.write_table(table, file, compression="zstd")
    return file.getvalue()


def measurements_table(record: StudyRecord) -> Any:
    """Return the same rows as a `pyarrow.Table`, with types instead of texts: whole numbers, times in UTC, `counts`
    as a truth value, names as they are. Raises MissingToolError without pyarrow.
    """
    require_modules("pyarrow")
    import pyarrow

    columns = list(zip(*_values(record), strict=True)) or [()] * len(COLUMNS)
    named = dict(zip(COLUMNS, map(list, columns), strict=True))
    whole, text = pyarrow.int32(), pyarrow.string()
    types = {"trial": whole, "attempt": whole, "round": whole, "counts": pyarrow.bool_(), "value": pyarrow.float64(),
             "ended": pyarrow.timestamp("us", tz="UTC")}  # fmt: skip
    named["ended"] = [_moment(one) for one in named["ended"]]
    arrays = [pyarrow.array(named[name], type=types.get(name, text)) for name in COLUMNS]
    return pyarrow.table(arrays, names=list(COLUMNS))


def _moment(text: object) -> datetime | None:
    """Read a time; None for one that is not there, as in results that were imported."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _values(record: StudyRecord) -> Iterator[tuple[object, ...]]:
    pardoned, ran = pardons_of(record), by_arm(record.trials)
    counted = {(one.trial.number, one.attempt) for mine in ran.values() for one in sound_of(mine, pardoned)}
    for one in record.attempts or record.trials:
        if one.measurement is None:
            continue
        trial = one.trial
        counts = (trial.number, one.attempt) in counted
        first = record.study.id, trial.number, one.attempt, trial.round, trial.workload, trial.arm
        for metric, value in one.measurement.values:
            unit = BY_ID[metric].unit if metric in BY_ID else ""
            yield (*first, one.ended, counts, metric, unit, value)


def bundle(store: Store, study: str, *, pages: bool) -> bytes:
    """Return a ZIP of everything stored of a study: its result, measurements, facts and raw captures; with `pages`
    also its report, which needs the chart libraries.
    """
    record = by_todays_method(store, study)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:

        def put(name: str, content: bytes) -> None:
            packed.writestr(entry(f"{study}/{name}"), content)

        put("result.json", json.dumps(record_document(store, record), indent=1).encode())
        put("measurements.csv", _csv(record).encode())
        put("facts.json", (record.facts or "{}").encode())
        put_rows(put, store, record)
        if pages:
            from virtune.flows.reports.report import record_html

            put("report.html", record_html(store, record).encode())
    return file.getvalue()
