# SPDX-License-Identifier: Apache-2.0
"""Bundles of studies: read from the rows of a store, and imported once, however often."""

import codecs
import contextlib
import errno
import hashlib
import io
import json
import re
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from virtune.bounded import require_few_values
from virtune.model.errors import PlanError, ReadError, StoreError
from virtune.model.evidence import Capture, StudyRecord, TrialRecord
from virtune.model.fleet import GatheredStudy
from virtune.model.study import Study
from virtune.plan.codec import study_from_json, study_to_json
from virtune.store.queries import PackedCapture, dump, load, packer, require_sound
from virtune.store.store import Store

STUDY = "study.json"
"""The member of a bundle from which its study can be imported."""

FORMAT = 1

WHOLE_MAX = 1024**3
"""All that is unpacked of a bundle, in bytes. A trial has some 48 kB of captures in ten members and 15 kB of rows, so
this is 17,000 trials: two days without a pause, of 10 s each."""

CAPTURE_MAX = 64 * 1024**2
"""The largest capture: of a result of fio, the largest thing that is one, 32 MiB are taken."""

RATIO_MAX = 100
SMALL_BYTES = 16 * 1024**2
"""What is unpacked of a bundle beyond so many bytes may be so many times its size: studies shrink to a fifth, few of
their captures to a tenth, and zeros to a thousandth."""

MEMBERS_MAX, DIRECTORY_MAX = 200_000, 24 * 1024**2
"""What 17,000 trials have; and the bytes of a bundle's directory, which is held in memory before anything is read."""

_VALUE_MAX = 8 * 1024**2
"""The longest of a bundle's rows, in characters: an attempt has some 15,000, the plan of 90,000 trials this many."""

_PIECE_BYTES = 64 * 1024
_NUMBER_MAX = 2**31 - 1
_NAME_MAX = 200
_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundled:
    """A study as a bundle holds it. Its attempts with their captures, in their order, wait in a file until they are
    stored, so that a bundle takes the memory of one capture.
    """

    study: Study
    facts: str
    finished: bool
    file: IO[bytes]
    places: tuple[tuple[int, int], ...]

    def attempts(self) -> Iterator[tuple[TrialRecord, Iterator[PackedCapture]]]:
        """Yield every attempt; its captures are read when they are asked for, before the next one is."""
        for place in self.places:
            record, captures = json.loads(self._at(*place))
            yield (
                load(TrialRecord, record),
                (PackedCapture(name=name, stream=self._at(*place)) for name, *place in captures),
            )

    def _at(self, start: int, length: int) -> bytes:
        self.file.seek(start)
        return self.file.read(length)


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


@contextlib.contextmanager
def read_bundle(file: IO[bytes], *, source: str, most_bytes: int = WHOLE_MAX) -> Iterator[Bundled]:
    """Give the study of a bundle, for the block. All of it is looked at first, with the memory of one capture.

    Raises ReadError, one sentence, for anything that is not a whole one, or that unpacks to more than so many bytes;
    StoreError where there is no room to unpack it.
    """
    with tempfile.TemporaryFile() as unpacked:
        try:
            with zipfile.ZipFile(_with_small_directory(file)) as packed:
                found = _read(_Members(packed, file.seek(0, 2), most_bytes), unpacked)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                said = f"no room to unpack {source} in {tempfile.gettempdir()}"
                raise StoreError(said, hint="the environment's TMPDIR names another directory") from None
            raise _refused(source, error) from None
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, LookupError, TypeError, AttributeError,
                ValueError, ArithmeticError, struct.error, PlanError, StoreError) as error:  # fmt: skip
            raise _refused(source, error) from None
        yield found


def _refused(source: str, error: Exception) -> ReadError:
    why = "it is damaged or another file"
    if isinstance(error, PlanError | StoreError | _NotWholeError):
        why = error.message
    return ReadError(
        f"{source} is not a bundle that can be imported: {why}", hint="`virtune show export STUDY --bundle FILE.zip`"
    )


class _NotWholeError(ValueError):
    """A bundle that is not whole, with the reason."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


def _with_small_directory(file: IO[bytes]) -> IO[bytes]:
    """Return a file whose ZIP directory may be read: Python reads it whole, whatever it claims to be."""
    size = file.seek(0, 2)
    file.seek(max(0, size - _ENDS_BYTES))
    ends = file.read().rjust(_ENDS_BYTES)
    if ends[-_END_BYTES:][:4] != b"PK\x05\x06":
        raise zipfile.BadZipFile("no directory at its end")
    (length,) = struct.unpack_from("<L", ends, _ENDS_BYTES - _END_BYTES + 12)
    if ends[_END64_BYTES:][:4] == b"PK\x06\x07":
        (length,) = struct.unpack_from("<Q", ends, 40)
    if length > DIRECTORY_MAX:
        raise _NotWholeError(f"its directory is larger than {DIRECTORY_MAX // 1024**2} MiB")
    file.seek(max(0, size - _ENDS_BYTES - length))
    if file.read(length + _ENDS_BYTES).count(b"PK\x01\x02") > MEMBERS_MAX:
        raise _NotWholeError(f"it has more than {MEMBERS_MAX:,} members")
    return file


_END64_BYTES, _LOCATOR_BYTES, _END_BYTES = 56, 20, 22
_ENDS_BYTES = _END64_BYTES + _LOCATOR_BYTES + _END_BYTES
"""What ends a ZIP file without a comment, which no bundle has: of a large one all three."""


class _Members:
    """The members of a bundle, of which no more than so many bytes are unpacked, each member once."""

    def __init__(self, packed: zipfile.ZipFile, size: int, most_bytes: int) -> None:
        self._packed = packed
        self._most = self._left = min(most_bytes, max(SMALL_BYTES, RATIO_MAX * size))
        self._read: set[str] = set()

    def names(self) -> list[str]:
        return self._packed.namelist()

    def pieces(self, name: str, most_bytes: int = WHOLE_MAX) -> Iterator[bytes]:
        if name in self._read:
            raise _NotWholeError(f"{name} is named twice")
        self._read.add(name)
        # others are unpacked by Python without a limit
        if self._packed.getinfo(name).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _NotWholeError(f"{name} is packed as no virtune does it")
        size = 0
        with self._packed.open(name) as file:
            while piece := file.read(_PIECE_BYTES):
                size += len(piece)
                if size > most_bytes:
                    raise _NotWholeError(f"{name} is larger than {most_bytes // 1024**2} MiB")
                self._left -= len(piece)
                if self._left < 0:
                    raise _NotWholeError(f"it unpacks to more than {self._most // 1024**2:,} MiB")
                yield piece


class _Rows:
    """The rows of a bundle, read value by value: at once they would take ten times their size in memory."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._decoder = pieces, codecs.getincrementaldecoder("utf-8")()
        self._held, self._at = "", 0

    def sign(self, *wanted: str) -> str:
        """Read one of these signs, and return which it was."""
        self._skip()
        found = self._held[self._at]
        if found not in wanted:
            raise ValueError(f"{found!r} instead of one of {wanted}")
        self._at += 1
        return found

    def value(self) -> Any:
        self._skip()
        while True:
            with contextlib.suppress(json.JSONDecodeError):
                require_few_values(self._held[self._at :])
                found, end = _DECODER.raw_decode(self._held, self._at)
                if end < len(self._held):  # of a number there might be more
                    self._at = end
                    return found
            self._more()

    def items(self) -> Iterator[Any]:
        """Yield the values of a list."""
        self.sign("[")
        self._skip()
        if self._held[self._at] == "]":
            return
        while True:
            yield self.value()
            if self.sign(",", "]") == "]":
                return

    def _skip(self) -> None:
        while True:
            blank = _BLANK.match(self._held, self._at)
            self._at = blank.end() if blank else self._at
            if self._at < len(self._held):
                return
            self._more()

    def _more(self) -> None:
        """Read about as much again as is held of a value."""
        self._held, self._at = self._held[self._at :], 0
        if len(self._held) > _VALUE_MAX:
            raise _NotWholeError(f"one of its rows is longer than {_VALUE_MAX // 1024**2} MiB")
        parts, wanted = [self._held], len(self._held) + 1
        while wanted > 0 and (piece := next(self._pieces, None)) is not None:
            parts.append(self._decoder.decode(piece))
            wanted -= len(parts[-1])
        if len(parts) == 1:
            raise ValueError("it is cut short")
        self._held = "".join(parts)


def _read(members: _Members, unpacked: IO[bytes]) -> Bundled:
    roots = [one.removesuffix(STUDY) for one in members.names() if one.endswith(f"/{STUDY}")]
    if len(roots) != 1:
        raise _NotWholeError("it has no rows of a study")
    rows = _Rows(members.pieces(f"{roots[0]}{STUDY}"))
    found = _before_attempts(rows)
    study = study_from_json(json.dumps(found["study"]))
    require_sound(study, study.id)
    if not isinstance(found["facts"], str) or not isinstance(json.loads(found["facts"] or "{}"), dict):
        raise _NotWholeError("its facts are damaged")
    places, known = [], set[tuple[int, int]]()
    for one in rows.items():
        record = _record(one["record"], study)
        if (place := (record.trial.number, record.attempt)) in known:
            raise _NotWholeError(f"attempt {place[1]} at trial {place[0]} is in it twice")
        known.add(place)
        kept = [_unpack(members, roots[0], capture, unpacked) for capture in one["captures"]]
        if len({name for name, *_ in kept}) < len(kept):
            raise _NotWholeError(f"trial {place[0]} has two captures of one name")
        places.append(_put(unpacked, json.dumps([dump(TrialRecord, record), kept]).encode()))
    return Bundled(study=study, facts=found["facts"], finished=bool(found["finished"]), file=unpacked,
                   places=tuple(places))  # fmt: skip


def _before_attempts(rows: _Rows) -> Mapping[str, Any]:
    """Read what stands before the attempts, which come last."""
    found: dict[str, Any] = {}
    rows.sign("{")
    while True:
        key = rows.value()
        rows.sign(":")
        if key == "attempts":
            return found
        if key not in ("format", "study", "facts", "finished"):
            raise ValueError(f"{key!r} is unknown")
        found[key] = rows.value()
        if found["format"] != FORMAT:
            raise _NotWholeError("a newer virtune made it")
        rows.sign(",")


def _record(found: Mapping[str, Any], study: Study) -> TrialRecord:
    record: TrialRecord = load(TrialRecord, json.dumps(found))
    trial, measured = record.trial, record.measurement
    if trial.arm not in {arm.name for arm in study.arms}:
        raise _NotWholeError(f"trial {trial.number} is of an arm that the study does not have")
    if trial.workload not in {one.name for one in study.workloads}:
        raise _NotWholeError(f"trial {trial.number} has a workload that the study does not have")
    numbers = (trial.number, trial.round, record.attempt)
    method = 0 if measured is None else measured.method
    if not all(1 <= one <= _NUMBER_MAX for one in numbers) or not 0 <= method <= _NUMBER_MAX:
        raise _NotWholeError(f"trial {trial.number} has numbers that virtune does not give")
    return record


def _unpack(members: _Members, root: str, found: Mapping[str, Any], unpacked: IO[bytes]) -> tuple[str, int, int]:
    """Keep a capture as a store does; returns its name and where it begins, with its length."""
    name, pack, digest, start = found["name"], packer(), hashlib.sha256(), unpacked.tell()
    if not isinstance(name, str) or not 0 < len(name) <= _NAME_MAX:
        raise _NotWholeError("a capture has no name that virtune gives")
    for piece in members.pieces(root + found["file"], CAPTURE_MAX):
        digest.update(piece)
        unpacked.write(pack.compress(piece))
    if digest.hexdigest() != found["sha256"]:
        raise _NotWholeError(f"{found['file']} is not what was exported")
    unpacked.write(pack.flush())
    return name, start, unpacked.tell() - start


def _put(file: IO[bytes], content: bytes) -> tuple[int, int]:
    start = file.tell()
    file.write(content)
    return start, len(content)


def merge(bundled: Bundled, store: Store) -> GatheredStudy:
    """Store what is not there yet of a study, by its id, its trials and their attempts; all of it where it is new.

    A study that has gone on since the last import gets its new attempts. Raises StoreError for another study that has
    the same id.
    """
    new, is_new = store.merge(bundled.study, bundled.attempts(), facts=bundled.facts, finished=bundled.finished)
    return GatheredStudy(id=bundled.study.id, attempts=new, new=is_new)


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
