# SPDX-License-Identifier: Apache-2.0
"""Import a study that another virtune exported as a bundle: once, however often it is imported."""

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from virtune.model.errors import PlanError, ReadError, StoreError
from virtune.model.evidence import Capture, StudyRecord, TrialRecord
from virtune.model.study import Study
from virtune.plan.codec import study_from_json, study_to_json
from virtune.store.rows import dump, load, require_sound
from virtune.store.store import Store

STUDY = "study.json"
"""The member of a bundle from which its study can be imported."""

FORMAT = 1

MEMBER_MAX = 256 * 1024**2
WHOLE_MAX = 4 * 1024**3
"""All that is unpacked of a bundle, in bytes: a few MiB of zeros unpack to a thousand times as much."""

MEMBERS_MAX = 1_000_000
"""A day of trials of half a second has 170,000, with four captures each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundled:
    """A study as a bundle holds it: every attempt with its captures, in their order."""

    study: Study
    facts: str
    finished: bool
    attempts: tuple[tuple[TrialRecord, tuple[Capture, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What an import added to a store."""

    study: str
    attempts: int
    new: bool


def rows_document(record: StudyRecord, files: Sequence[Sequence[tuple[Capture, str]]]) -> bytes:
    """Return the member of a bundle that an import reads; `files` are each attempt's captures with their members."""
    attempts = [
        {
            "record": json.loads(dump(TrialRecord, one)),
            "captures": [
                {"name": capture.name, "file": file, "sha256": hashlib.sha256(capture.content).hexdigest()}
                for capture, file in mine
            ],
        }
        for one, mine in zip(record.attempts or record.trials, files, strict=True)
    ]
    study = json.loads(study_to_json(record.study))
    return json.dumps(
        {"format": FORMAT, "study": study, "facts": record.facts, "finished": record.finished, "attempts": attempts}
    ).encode()


def read_bundle(content: bytes, *, source: str, most_bytes: int = WHOLE_MAX) -> Bundled:
    """Return the study of a bundle. Raises ReadError, one sentence, for anything that is not a whole one, or that
    unpacks to more than so many bytes.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            return _read(_Members(packed, most_bytes))
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, KeyError, TypeError,
            AttributeError, ValueError, RecursionError, PlanError, StoreError) as error:  # fmt: skip
        why = (
            error.message
            if isinstance(error, PlanError | StoreError | _NotWholeError)
            else "it is damaged or another file"
        )
        raise ReadError(
            f"{source} is not a bundle that can be imported: {why}", hint="`virtune export STUDY --bundle FILE.zip`"
        ) from None


class _NotWholeError(ValueError):
    """A bundle that is not whole, with the reason."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


class _Members:
    """The members of a bundle, of which no more than so many bytes are unpacked."""

    def __init__(self, packed: zipfile.ZipFile, most_bytes: int) -> None:
        self._packed, self._most, self._left = packed, most_bytes, most_bytes

    def names(self) -> list[str]:
        return [one.filename for one in self._packed.infolist()]

    def read(self, name: str) -> bytes:
        allowed = min(MEMBER_MAX, self._left)
        with self._packed.open(name) as file:
            content = file.read(allowed + 1)
        if len(content) > MEMBER_MAX:
            raise _NotWholeError(f"{name} is larger than {MEMBER_MAX // 1024**2} MiB")
        if len(content) > allowed:
            raise _NotWholeError(f"it unpacks to more than {self._most // 1024**2:,} MiB")
        self._left -= len(content)
        return content


def _read(members: _Members) -> Bundled:
    names = members.names()
    if len(names) > MEMBERS_MAX:
        raise _NotWholeError(f"it has more than {MEMBERS_MAX:,} members")
    roots = [one.removesuffix(STUDY) for one in names if one.endswith(f"/{STUDY}")]
    if len(roots) != 1:
        raise _NotWholeError("it has no rows of a study: an older virtune made it")
    found: Mapping[str, Any] = json.loads(members.read(f"{roots[0]}{STUDY}"))
    if found["format"] != FORMAT:
        raise _NotWholeError("a newer virtune made it")
    study = study_from_json(json.dumps(found["study"]))
    require_sound(study, study.id)
    if not isinstance(found["facts"], str) or not isinstance(json.loads(found["facts"] or "{}"), dict):
        raise _NotWholeError("its facts are damaged")
    attempts = tuple(_attempt(members, roots[0], one, study) for one in found["attempts"])
    return Bundled(study=study, facts=found["facts"], finished=bool(found["finished"]), attempts=attempts)


def _attempt(
    members: _Members, root: str, found: Mapping[str, Any], study: Study
) -> tuple[TrialRecord, tuple[Capture, ...]]:
    record: TrialRecord = load(TrialRecord, json.dumps(found["record"]))
    if record.trial.arm not in {arm.name for arm in study.arms}:
        raise _NotWholeError(f"trial {record.trial.number} is of an arm that the study does not have")
    if record.trial.workload not in {one.name for one in study.workloads}:
        raise _NotWholeError(f"trial {record.trial.number} has a workload that the study does not have")
    return record, tuple(_captures(members, root, found["captures"]))


def _captures(members: _Members, root: str, found: Sequence[Mapping[str, Any]]) -> Iterator[Capture]:
    for one in found:
        content = members.read(root + one["file"])
        if hashlib.sha256(content).hexdigest() != one["sha256"]:
            raise _NotWholeError(f"{one['file']} is not what was exported")
        yield Capture(name=one["name"], content=content)


def merge(bundled: Bundled, store: Store) -> Merged:
    """Store what is not there yet of a study, by its id, its trials and their attempts; all of it where it is new.

    A study that has gone on since the last import gets its new attempts. Raises StoreError for another study that has
    the same id.
    """
    new, is_new = store.merge(bundled.study, bundled.attempts, facts=bundled.facts, finished=bundled.finished)
    return Merged(study=bundled.study.id, attempts=new, new=is_new)
