# SPDX-License-Identifier: Apache-2.0
"""The images and devices of a study: they must stay the same from its first to its last trial."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from virtune.flows.run.passed import bring_back
from virtune.flows.run.trial import Tools
from virtune.flows.stored.last_check import last_check
from virtune.model.errors import RefusedTargetError
from virtune.model.evidence import StudyRecord
from virtune.model.study import Identity, Study
from virtune.model.text import format_bytes
from virtune.probe.devices import identity_of
from virtune.store.store import Store


def identities(paths: Iterable[Path]) -> tuple[Identity, ...]:
    """Return the identities of the loaded images, so that a resumed study can check them."""
    found = (identity_of(path) for path in sorted(set(paths)))
    return tuple(one for one in found if one is not None)


def begun(study: Study, images: Iterable[Path], tools: Tools, store: Store) -> Study:
    """Return a study that is about to be stored, with what is known of its images and its host."""
    return replace(
        study,
        images=identities(images),
        checked=last_check(store, study),
        first_reads=() if tools.first_read is None else (tools.first_read,),
    )


def resumed(record: StudyRecord, tools: Tools, store: Store) -> StudyRecord:
    """Return a record that is about to be continued, with what was read of its images just now."""
    if tools.first_read is None:
        return record
    read = replace(tools.first_read, after=len(record.trials))
    study = replace(record.study, first_reads=(*record.study.first_reads, read))
    store.replace_study(study)
    return replace(record, study=study)


def require_same_images(study: Study) -> None:
    """Raise RefusedTargetError when a file or device is not the one that the study began with.

    Otherwise rounds of two disks would be mixed in one table. A drive that a killed run left with a guest comes back
    first.
    """
    bring_back(study)
    for begun in study.images:
        reason = _replaced(begun, identity_of(Path(begun.path)))
        if reason is not None:
            raise RefusedTargetError(
                f"{begun.path} is not what study {study.id} began with: {reason}",
                hint=f"ask the question anew; `virtune show {study.id} --report FILE` has its command line, and what"
                " is finished stays",
            )


def _replaced(begun: Identity, now: Identity | None) -> str | None:
    """Say in words how one differs from the other; None for the same."""
    if now is None:
        return "it is gone"
    if begun.device != now.device:
        return f"it was on the device {begun.device}, and is on {now.device}"
    if begun.inode != now.inode or (begun.born_ns and now.born_ns and begun.born_ns != now.born_ns):
        return "another file has its name now"
    if begun.size_bytes and now.size_bytes and begun.size_bytes != now.size_bytes:
        return f"it had {format_bytes(begun.size_bytes)}, and has {format_bytes(now.size_bytes)}"
    return None
