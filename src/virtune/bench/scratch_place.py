# SPDX-License-Identifier: Apache-2.0
"""The directory of scratch images: one in which only we and root can replace files.

QEMU and fio open images by name, so owning the directory is not enough: a user who may rename a directory above it
decides where its name leads.
"""

import contextlib
import os
import stat
from pathlib import Path

from virtune.model.errors import PreconditionError
from virtune.probe.access import user_name, why_exchangeable

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def scratch_place(directory: Path) -> Path:
    """Return, and create if needed, a directory that only we may write to: `directory` itself, or one in it.

    The returned path has no symbolic links. Raises PreconditionError where another user could replace files there,
    OSError where it cannot be created.
    """
    # others may traverse it, but neither list nor write: QEMU, which may run as another user, opens files here
    directory.mkdir(mode=0o711, parents=True, exist_ok=True)
    place = directory.resolve(strict=True)
    if not place.lstat().st_mode & _OTHERS_WRITE:
        require_safe(place)
        return place
    inner = _inner(place)
    with contextlib.suppress(FileExistsError):
        inner.mkdir(mode=0o711)
    require_safe(inner)
    return inner


def made_place(directory: Path) -> Path | None:
    """Return the directory that `scratch_place` would return if it exists; None if not, without creating it.

    Raises PreconditionError like `scratch_place`.
    """
    with contextlib.suppress(OSError):
        place = directory.resolve(strict=True)
        if place.lstat().st_mode & _OTHERS_WRITE:
            place = _inner(place)
        if place.is_dir():
            require_safe(place)
            return place
    return None


def require_safe(place: Path) -> None:
    """Raise PreconditionError unless a directory is ours, and only we and root can replace it."""
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise _refusal(place, f"{place} is no directory")
    if found.st_uid != os.geteuid():
        raise _refusal(place, f"it belongs to {user_name(found.st_uid)}, who could exchange what lies in it")
    if (why := why_exchangeable(place)) is not None:
        raise _refusal(place, why)


def _inner(place: Path) -> Path:
    return place / f"virtune-scratch-{os.geteuid()}"


def _refusal(place: Path, reason: str) -> PreconditionError:
    hint = "`--scratch DIR` names a directory of yours, below directories of yours or root's"
    return PreconditionError(f"cannot use {place} for scratch files: {reason}", hint=hint)
