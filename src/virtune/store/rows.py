# SPDX-License-Identifier: Apache-2.0
"""Convert rows of a store to values and back: any row is either read or reported as damaged."""

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from virtune.model.errors import PlanError, StoreError
from virtune.model.evidence import Capture, Damaged, InForce, Listed, TrialRecord
from virtune.model.measurement import Measurement
from virtune.model.study import Study, Trial
from virtune.plan.codec import study_from_json

_MAX_CAPTURE_BYTES = 256 * 1024**2

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""A study's id becomes part of the names of files."""


SEPARATOR = "/"
"""Between the host and the id of a study that another host measured; neither has one in it."""

_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}")


def own_id(key: str) -> tuple[str, str]:
    """Return the host and the id of a study from what it is kept under; the host is empty of an own study."""
    host, _, name = key.rpartition(SEPARATOR)
    return host, name


def text_of(raw: bytes) -> str:
    """Return a text from SQLite; invalid UTF-8 is kept as bytes, so that only its row counts as damaged."""
    return raw.decode("utf-8", "surrogateescape")


def listed(name: object, text: object, finished: object, done: int, failed: int) -> Listed | Damaged:
    """Read a row of the studies' table; returns it as damaged, with the reason, where it cannot be read."""
    try:
        if not isinstance(text, str):
            return Damaged(id=str(name), why=f"it is kept as {type(text).__name__}, not as text")
        study = study_from_json(text)
        host, own = own_id(name) if isinstance(name, str) else ("", name)
        require_sound(study, own, host=host)
        return Listed(study=study, finished=bool(finished), done=done, failed=failed, host=host)
    except (PlanError, ValueError, RecursionError) as error:
        newer = getattr(error, "hint", None)
        return Damaged(id=str(name), why=f"{error}; {newer}" if newer else str(error))


def require_sound(study: Study, name: object, *, host: str = "") -> None:
    """Raise ValueError for invalid values that the types do not exclude."""
    if host and not _HOST.fullmatch(host):
        raise ValueError("its host has no name that virtune gives")
    if study.id != name:
        raise ValueError(f"it says that it is study {study.id[:80]!r}")
    if not _ID.fullmatch(study.id):
        raise ValueError("its id is not one that virtune makes")
    datetime.fromisoformat(study.created)


def facts_of(text: object) -> str | None:
    """Return a host's stored facts, the JSON text of an object or empty; None where they are damaged."""
    if text == "":
        return ""
    try:
        return text if isinstance(text, str) and isinstance(json.loads(text), dict) else None
    except (ValueError, RecursionError):
        return None


def record_of(row: Any, study: Study, planned: Mapping[int, Trial]) -> TrialRecord:
    """Read an attempt; raises StoreError for one that is damaged.

    The study holds what the rows lack: which trials run in a new process. A search plans no trials beforehand, so for
    its trials only the row is known.
    """
    whole = (row.number, row.round, row.attempt)
    said = (row.arm, row.workload, row.ended, row.in_force, *(() if row.failure is None else (row.failure,)))
    sound = all(isinstance(one, int) and one >= 1 for one in whole) and all(isinstance(one, str) for one in said)
    # a result that was made elsewhere may not say when it ended
    if not sound or not (_is_time(row.ended) or (study.imported and row.ended == "")):
        raise StoreError(f"trial {row.number!r} of study {study.id} is damaged: a column holds something else")
    if row.arm not in {arm.name for arm in study.arms}:
        raise StoreError(f"trial {row.number} of study {study.id} is damaged: the study has no arm {row.arm!r}")
    if row.workload not in {one.name for one in study.workloads}:
        raise StoreError(f"trial {row.number} of study {study.id} is damaged: it has no workload {row.workload!r}")
    ran = Trial(number=row.number, round=row.round, arm=row.arm, workload=row.workload)
    asked = planned.get(ran.number, ran)
    return TrialRecord(
        trial=asked if replace(asked, restart=False) == ran else ran,
        attempt=row.attempt,
        ended=row.ended,
        in_force=load(InForce, row.in_force),
        measurement=None if row.measurement is None else load(Measurement, row.measurement),
        failure=row.failure,
    )


def _is_time(text: str) -> bool:
    try:
        return bool(datetime.fromisoformat(text))
    except ValueError:
        return False


def capture_of(name: object, content: Any) -> Capture:
    """Read a capture; raises StoreError for one that is damaged."""
    if not isinstance(name, str):
        raise StoreError("a capture in the store is damaged: its name is no text")
    return Capture(name=name, content=_unpacked(content))


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedCapture:
    """A capture as the store keeps it: `stream` is its content packed by zlib."""

    name: str
    stream: bytes


def packer() -> "zlib._Compress":
    """Return what packs a capture piece by piece, as `packed` does at once."""
    return zlib.compressobj(6)  # fio's json+ shrinks to a fifth


def packed(content: bytes) -> bytes:
    """Return a capture's content as it is kept."""
    one = packer()
    return one.compress(content) + one.flush()


def _unpacked(content: bytes) -> bytes:
    """Decompress up to a limit, so that an untrusted store cannot fill the memory."""
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(content, _MAX_CAPTURE_BYTES)
    except (zlib.error, TypeError) as error:
        raise StoreError(f"a capture in the store is damaged: {error}") from None
    if unpacker.unconsumed_tail:
        raise StoreError(f"a capture in the store is larger than {_MAX_CAPTURE_BYTES} bytes")
    if not unpacker.eof:
        raise StoreError("a capture in the store is damaged: it is cut short")
    return text


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def dump(kind: type, value: object) -> str:
    """Write a value as JSON text."""
    return _adapter(kind).dump_json(value).decode()


def load(kind: type, text: str) -> Any:
    try:
        return _adapter(kind).validate_json(text)
    except ValidationError as error:
        raise StoreError(f"a record in the store is damaged: {error.errors()[0]['msg']}") from None
    except (ValueError, TypeError) as error:
        raise StoreError(f"a record in the store is damaged: {error}") from None
