# SPDX-License-Identifier: Apache-2.0
"""Access: who besides us and root may write to a file, or put another one in its place. One rule for all: scratch
directories, what lies in the cache, programs that are started, targets.

Looked at are owners, mode bits, POSIX ACLs and the directories above: whoever may rename one of these decides where a
name leads.
"""

import errno
import grp
import os
import pwd
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

_ROOT = 0
_WRITE = 2

_ACL = "system.posix_acl_access"
_DEFAULT_ACL = "system.posix_acl_default"
"""The ACL that what is made in a directory begins with."""

_ACL_HEAD, _ACL_ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
"""linux/posix_acl_xattr.h: a version, then a tag, permissions and an id for each entry."""

_USER, _GROUP_OF_FILE, _GROUP, _MASK = 0x02, 0x04, 0x08, 0x10
"""Tags of entries; the mask limits the other three."""


def why_exchangeable(place: Path) -> str | None:
    """Say why another user could write to or replace a file or directory; None where only we and root could. `place`
    has no symbolic links. Raises OSError where it is not there.
    """
    below = place.lstat()
    if below.st_uid not in (_ROOT, os.geteuid()):
        return f"it belongs to {user_name(below.st_uid)}, who could exchange it"
    if open_to_others(place, below):
        return "others may write to it"
    if stat.S_ISDIR(below.st_mode) and any(_others_in(place, _DEFAULT_ACL, below)):
        return "others may write to what is made in it, by its default ACL"
    for parent in place.parents:
        above = parent.lstat()
        if above.st_uid not in (_ROOT, os.geteuid()):
            return f"{parent} belongs to {user_name(above.st_uid)}, who could exchange what lies in it"
        # in a sticky directory only its owner and the owner of an entry may rename that entry
        sticky = above.st_mode & stat.S_ISVTX and below.st_uid in (_ROOT, os.geteuid())
        if not sticky and open_to_others(parent, above):
            return f"others may rename what lies in {parent}, which is writable and not sticky"
        below = above
    return None


def read_trusted(path: Path) -> str:
    """Return the text of a file that nobody but us and root could have changed. Raises OSError."""
    if (why := why_exchangeable(path.resolve(strict=True))) is not None:
        raise PermissionError(errno.EPERM, why, str(path))
    return path.read_text()


def ours_alone(place: Path, found: os.stat_result) -> bool:
    """Whether a file is ours, and only we and root may write to it."""
    return found.st_uid == os.geteuid() and not open_to_others(place, found)


def open_to_others(place: Path, found: os.stat_result) -> bool:
    """Whether others than us, root and the owner may write to a file; a group of nobody else does not count."""
    if found.st_mode & stat.S_IWOTH:
        return True
    if not found.st_mode & stat.S_IWGRP:
        return False  # with an ACL these bits are its mask, which limits all whom it names
    return any(_others_in(place, _ACL, found)) or (
        not _acl(place, _ACL) and not _alone_in(found.st_gid, found.st_uid)
    )


def user_name(number: int) -> str:
    """Return the name of a user, or its number where it has none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _others_in(place: Path, name: str, found: os.stat_result) -> Iterator[bool]:
    """Yield of each entry of an ACL whether it lets others write."""
    entries = _acl(place, name)
    mask = next((allowed for tag, allowed, _ in entries if tag == _MASK), _WRITE)
    for tag, allowed, number in entries:
        if allowed & mask & _WRITE:
            yield (
                (tag == _USER and number not in (_ROOT, os.geteuid()))
                or (tag == _GROUP and not _alone_in(number, found.st_uid))
                or (tag == _GROUP_OF_FILE and not _alone_in(found.st_gid, found.st_uid))
            )


def _acl(place: Path, name: str) -> list[tuple[int, int, int]]:
    """Return the entries of an ACL; none where there is no ACL. One that cannot be read lets everybody write."""
    try:
        found = os.getxattr(place, name)
        return list(_ACL_ENTRY.iter_unpack(found[_ACL_HEAD.size :]))
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.ENOTSUP):
            return []
    except struct.error:
        pass
    return [(_USER, _WRITE, 2**32 - 1)]


def _alone_in(group: int, user: int) -> bool:
    """Whether a group is a user's private one: with the user's name, and nobody else's by whatever list."""
    try:
        found, name = grp.getgrgid(group), pwd.getpwuid(user).pw_name
    except KeyError:
        return False
    if found.gr_name != name or not set(found.gr_mem) <= {name}:
        return False
    return all(one.pw_name == name for one in pwd.getpwall() if one.pw_gid == group)
