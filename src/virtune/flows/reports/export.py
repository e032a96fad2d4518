# SPDX-License-Identifier: Apache-2.0
"""Export a study: its measurements as CSV or Parquet, and a bundle of everything stored."""

import csv
import io
import json
import zipfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from virtune.flows.reports.anonymous import anonymous_copy
from virtune.flows.reports.study_document import record_document
from virtune.flows.stored.bundle_rows import entry, put_rows
from virtune.flows.stored.show import by_todays_method
from virtune.model.errors import MissingToolError
from virtune.model.evidence import StudyRecord
from virtune.model.metric import BY_ID
from virtune.model.text import spreadsheet_cell
from virtune.store.store import Store

COLUMNS = ("study", "trial", "attempt", "round", "workload", "arm", "ended", "counts", "metric", "unit", "value")


def measurements_csv(store: Store, study: str) -> str:
    """Return every measured value of every attempt, a row each, in base units (ns, bytes, 1/s, CPU seconds per I/O).

    `counts` is 0 where the attempt was disturbed or repeated.
    """
    record = by_todays_method(store, study)
    return _csv(record)


def _csv(record: StudyRecord) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_rows(record))
    return text.getvalue()


def measurements_parquet(store: Store, study: str) -> bytes:
    """Return the same rows as a Parquet file, with types instead of texts: whole numbers, times in UTC, `counts` as a
    truth value, names as they are.

    Raises MissingToolError without pyarrow.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingToolError(
            "the Python package pyarrow is not installed, and Parquet files need it",
            hint="`pip install 'virtune[parquet]'`; `--csv` needs nothing",
        ) from None
    record = by_todays_method(store, study)
    columns = list(zip(*_values(record), strict=True)) or [()] * len(COLUMNS)
    named = dict(zip(COLUMNS, map(list, columns), strict=True))
    whole, text = pyarrow.int32(), pyarrow.string()
    types = {"trial": whole, "attempt": whole, "round": whole, "counts": pyarrow.bool_(), "value": pyarrow.float64(),
             "ended": pyarrow.timestamp("us", tz="UTC")}  # fmt: skip
    named["ended"] = [_moment(one) for one in named["ended"]]
    arrays = [pyarrow.array(named[name], type=types.get(name, text)) for name in COLUMNS]
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(arrays, names=list(COLUMNS)), file, compression="zstd")
    return file.getvalue()


def _moment(text: object) -> datetime | None:
    """Read a time; None for one that is not there, as in results that were imported."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _rows(record: StudyRecord) -> Iterator[tuple[object, ...]]:
    """Yield the rows as texts that a spreadsheet takes for texts and numbers."""
    for study, trial, attempt, number, workload, arm, ended, counts, metric, unit, value in _values(record):
        names = spreadsheet_cell(str(workload)), spreadsheet_cell(str(arm))
        yield study, trial, attempt, number, *names, ended, int(bool(counts)), metric, unit, repr(value)


def _values(record: StudyRecord) -> Iterator[tuple[object, ...]]:
    counted = {(one.trial.number, one.attempt) for one in record.trials}
    for one in record.attempts or record.trials:
        if one.measurement is None:
            continue
        trial = one.trial
        counts = (trial.number, one.attempt) in counted and not one.measurement.causes
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


def anonymous_bundle(
    store: Store, study: str, *, pages: bool, names: Sequence[tuple[str, str]]
) -> tuple[bytes, list[str]]:
    """Return the same ZIP with the names of hosts, users, VMs and paths, serial numbers and addresses replaced; and
    the names that are also words of virtune's own, so that they were replaced only where they stand as names.

    `names` are further ones to replace, each with what it names (`host`, `user`, `vm`, `name`).
    """
    with anonymous_copy(store, study, names) as (copy, left):
        return bundle(copy, study, pages=pages), left
