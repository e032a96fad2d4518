# SPDX-License-Identifier: Apache-2.0
"""The directory of scratch images: one in which only we and root can replace files.

QEMU and fio open images by name, so owning the directory is not enough: a user who may rename a directory above it
decides where its name leads.
"""

import contextlib
import grp
import os
import pwd
import stat
from pathlib import Path

from virtune.model.errors import PreconditionError

_ROOT = 0
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
        raise _refusal(place, f"it belongs to {_user(found.st_uid)}, who could exchange what lies in it")
    if (why := why_exchangeable(place)) is not None:
        raise _refusal(place, why)


def why_exchangeable(place: Path) -> str | None:
    """Say why another user could replace a file or directory; None where only we and root could. `place` has no
    symbolic links.
    """
    below = place.lstat()
    if below.st_uid not in (_ROOT, os.geteuid()):
        return f"it belongs to {_user(below.st_uid)}, who could exchange it"
    if below.st_mode & _OTHERS_WRITE:
        return "others may write to it"
    for parent in place.parents:
        above = parent.lstat()
        if above.st_uid not in (_ROOT, os.geteuid()):
            return f"{parent} belongs to {_user(above.st_uid)}, who could exchange what lies in it"
        # in a sticky directory only its owner and the owner of an entry may rename that entry
        sticky = above.st_mode & stat.S_ISVTX and below.st_uid in (_ROOT, os.geteuid())
        if _open_to_others(above) and not sticky:
            return f"others may rename what lies in {parent}, which is writable and not sticky"
        below = above
    return None


def _inner(place: Path) -> Path:
    return place / f"virtune-scratch-{os.geteuid()}"


def _open_to_others(found: os.stat_result) -> bool:
    """Whether others than the owner may write to a directory; a group without other members does not count."""
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _alone_in(found.st_gid, found.st_uid)


def _alone_in(group: int, user: int) -> bool:
    """Whether a group is a user's private one: with the user's name and without other members."""
    try:
        found, name = grp.getgrgid(group), pwd.getpwuid(user).pw_name
    except KeyError:
        return False
    return found.gr_name == name and set(found.gr_mem) <= {name}


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _refusal(place: Path, reason: str) -> PreconditionError:
    hint = "`--scratch DIR` names a directory of yours, below directories of yours or root's"
    return PreconditionError(f"cannot use {place} for scratch files: {reason}", hint=hint)
