# SPDX-License-Identifier: Apache-2.0
"""Who may write is what the kernel says, whatever owners, mode bits and ACLs there are."""

import os
import struct
from pathlib import Path
from random import Random

import pytest

from virtune.bench.scratch import scratch_place
from virtune.model.errors import PreconditionError
from virtune.probe.access import ours_alone, why_exchangeable

pytestmark = pytest.mark.real

STRANGER, NONE = 65534, 2**32 - 1
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
OWNER, USER, OWNING_GROUP, GROUP, MASK, OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
STRANGERS = ((STRANGER, STRANGER), (4001, 4001), (4002, 4003))
"""Users and their groups. No list has one of these in the group of root."""


def acl(entries: list[tuple[int, int, int]]) -> bytes:
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in sorted(entries))


def by_chance(chance: Random) -> bytes:
    """An ACL of a few users and groups."""
    entries = [(OWNER, 7, NONE), (OWNING_GROUP, chance.randrange(8), NONE), (OTHER, chance.choice((0, 1, 5)), NONE)]
    entries += [
        (USER, chance.randrange(8), one) for one in chance.sample((0, 4001, 4002, STRANGER), chance.randrange(3))
    ]
    entries += [(GROUP, chance.randrange(8), one) for one in chance.sample((0, 4001, 4003), chance.randrange(3))]
    return acl([*entries, (MASK, chance.randrange(8), NONE)])


def who_writes(places: list[Path]) -> list[bool]:
    """Ask the kernel of each place whether any stranger may write to it."""
    found = [False] * len(places)
    for user, group in STRANGERS:
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:
            os.setgroups([])
            os.setresgid(group, group, group)
            os.setresuid(user, user, user)
            os.write(writer, bytes(os.access(place, os.W_OK) for place in places))
            os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        with os.fdopen(reader, "rb") as answers:
            found = [one or bool(answer) for one, answer in zip(found, answers.read(), strict=True)]
    return found


def test_whoever_may_write_is_seen(tmp_path: Path) -> None:
    chance, places = Random(7), []
    for above in (tmp_path, *tmp_path.parents):
        assert above == Path("/tmp") or why_exchangeable(above) is None
    home = Path(f"/tmp/va-{os.getpid()}")  # those above a test's own directory are closed to others
    home.mkdir(mode=0o755)
    try:
        for number in range(200):
            place = home / str(number)
            place.mkdir() if number % 2 else place.touch()
            os.chown(place, 0, chance.choice((0, 0, 4001, 4003)))
            place.chmod(chance.choice((0o755, 0o700, 0o775, 0o757, 0o1777, 0o720)))
            if chance.random() < 0.7:
                os.setxattr(place, ACCESS, by_chance(chance))
            places.append(place)
        written = who_writes(places)
        unsafe = [not ours_alone(place, place.lstat()) for place in places]
        assert [path.name for path, seen, may in zip(places, unsafe, written, strict=True) if may and not seen] == []
        assert [bool(why_exchangeable(path)) for path in places] == unsafe
        # what only members of a group could do, of which there are none among these, is refused too
        assert sum(written) > 40
        assert unsafe.count(False) > 40
    finally:
        for place in places:
            place.rmdir() if place.is_dir() else place.unlink()
        home.rmdir()


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("kind", [ACCESS, DEFAULT])
def test_a_scratch_directory_that_an_acl_opens_to_others_is_refused(kind: str, depth: int, tmp_path: Path) -> None:
    place = tmp_path / "a" / "b" / "c"
    place.mkdir(parents=True)
    opened = (place, *place.parents)[depth]
    entries = [(OWNER, 7, NONE), (USER, 7, STRANGER), (OWNING_GROUP, 5, NONE), (MASK, 7, NONE), (OTHER, 5, NONE)]
    os.setxattr(opened, kind, acl(entries))
    if kind == DEFAULT and depth:  # what it opens is only what is made in there later
        assert scratch_place(place) == place
        return
    with pytest.raises(PreconditionError, match=r"others may (rename what lies in|write to what is made in it)"):
        scratch_place(place)
    os.setxattr(opened, kind, acl([*(one for one in entries if one[0] != MASK), (MASK, 5, NONE)]))
    assert scratch_place(place) == place, "the mask takes it away again"
