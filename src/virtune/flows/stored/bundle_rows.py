# SPDX-License-Identifier: Apache-2.0
"""The part of a bundle that an import reads: raw captures and rows, without anything derived from them."""

import io
import zipfile
from collections.abc import Callable

from virtune.flows.stored.import_bundle import STUDY, rows_document
from virtune.model.evidence import StudyRecord
from virtune.store.store import Store

ZIP_TIME = (1980, 1, 1, 0, 0, 0)
"""The same study gives the same bundle, byte for byte."""


def put_rows(put: Callable[[str, bytes], None], store: Store, record: StudyRecord) -> None:
    """Put the captures and the rows of a study into a bundle."""
    study, files = record.study.id, []
    for one in record.attempts or record.trials:
        mine = []
        for capture in store.captures(study, one.trial.number, attempt=one.attempt):
            name = "".join(c if c.isalnum() or c in "._-" else "_" for c in capture.name).lstrip(".") or "capture"
            mine.append((capture, f"captures/{one.trial.number:05d}-{one.attempt}/{name}"))
            put(mine[-1][1], capture.content)
        files.append(mine)
    put(STUDY, rows_document(record, files))


def rows_bundle(store: Store, study: str) -> bytes:
    """Return the bundle that a fleet pulls: nothing is derived for it, since its host may be measured meanwhile."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        put_rows(lambda name, content: packed.writestr(entry(f"{study}/{name}"), content), store, store.get(study))
    return file.getvalue()


def entry(name: str) -> zipfile.ZipInfo:
    """Return a compressed entry, readable by its owner."""
    found = zipfile.ZipInfo(name, ZIP_TIME)
    found.compress_type = zipfile.ZIP_DEFLATED
    found.external_attr = 0o644 << 16
    return found
