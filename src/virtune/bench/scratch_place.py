# SPDX-License-Identifier: Apache-2.0
"""The directory that scratch images lie in: one in which nobody but us, and root, can exchange what we made.

QEMU and fio open images by their names, so it is not enough that the directory is ours: whoever may rename a
directory above it decides what its name leads to.
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
    """Return a directory that only we write to, making it: `directory` itself, or a directory of our own in it.

    The path that is returned has no symbolic links in it. Raises PreconditionError where somebody else could exchange
    what lies there, OSError where it cannot be made.
    """
    # others may pass through, and neither list nor write: QEMU, which may run as another user, opens what lies here
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
    """Return the directory that `scratch_place` would return if it is there already; None, and nothing made, if not.

    Raises PreconditionError as that does.
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
    """Raise PreconditionError unless a directory is ours, and nobody but us and root can put another in its place."""
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise _refusal(place, f"{place} is no directory")
    if found.st_uid != os.geteuid():
        raise _refusal(place, f"it belongs to {_user(found.st_uid)}, who could exchange what lies in it")
    if (why := why_exchangeable(place)) is not None:
        raise _refusal(place, why)


def why_exchangeable(place: Path) -> str | None:
    """Say why somebody but us and root could put something else in the place of a file or directory; None where
    nobody could. `place` has no symbolic links in it.
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
    """Whether somebody but the owner may write to a directory; a group that has nobody else in it does not count."""
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _alone_in(found.st_gid, found.st_uid)


def _alone_in(group: int, user: int) -> bool:
    """Whether a group is a user's own: of the user's name and without other members, as distributions make them."""
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
