# SPDX-License-Identifier: Apache-2.0
"""What no module of Ansible does on a host: tell what an install made from what is somebody else's, and remove only
that.

The role sends it to the host's own Python, so it is standard library only, and runs on any Python that Ansible takes.
Each directory that is made gets a mark that names it and its inode, which a copy and a restored one lack; only such a
one is removed, and none of which a program runs or in which something is mounted.
"""

import contextlib
import json
import os
import platform
import shutil
import stat
import sys
from pathlib import Path

MARK = "made-by-virtune-fleet-install"

AGAIN = "~again"
"""Ends the directory of a version that was installed while it was there already: what runs stays until then."""

DEFAULT = "-"
"""In place of a path: where root, or a user, has its programs."""


def chosen(place, command):
    """Return the directory of all versions, and the command that users and `virtune fleet` call."""
    root = os.geteuid() == 0
    place = ("/opt/virtune" if root else "~/.local/opt/virtune") if place == DEFAULT else place
    command = ("/usr/local/bin/virtune" if root else "~/.local/bin/virtune") if command == DEFAULT else command
    return Path(place).expanduser(), Path(command).expanduser()


def require(holds, why):
    """End with a sentence where something does not hold."""
    if not holds:
        sys.exit(f"error: {why}")


def meant(place, link):
    """Return the name of the directory that a link means; empty where it means none that is whole."""
    with contextlib.suppress(OSError, ValueError):
        name = (place / os.readlink(str(link))).relative_to(place).parts[0]
        if (place / name / "bin" / "virtune").exists():
            return name
    return ""


def look(place, command):
    """Return what is here. Refuse where something of the names that are used is somebody else's."""
    if place.exists():
        require((place / MARK).is_file() or not os.listdir(str(place)), f"{place} is there, and no install made it")
    if os.path.lexists(str(command)):
        ours = command.is_symlink() and place in Path(os.readlink(str(command))).parents
        require(ours, f"{command} is there, and no install made it")
    now, previous = meant(place, command), meant(place, place / "previous")
    python = ".".join(platform.python_version_tuple()[:2])
    libc = "-".join(platform.libc_ver()) or "-"
    return {
        "name": os.uname().nodename,
        "platform": f"{platform.python_implementation()}-{python}-{platform.machine()}-{libc}",
        "packages": f"lib/python{python}/site-packages",
        "place": str(place),
        "command": str(command),
        "current": now,
        "version": now.split(AGAIN)[0],
        "previous": previous,
        "earlier": previous.split(AGAIN)[0],
    }


def make(place, command, name):
    """Make the directory that takes a version, in the place of what is left of an install that was killed."""
    place.mkdir(parents=True, exist_ok=True)
    (place / MARK).touch()
    new = place / name
    # somebody else may have installed it since this one looked
    meanwhile = name in (meant(place, command), meant(place, place / "previous"))
    require(not meanwhile, f"{new} was installed meanwhile: the same command looks again")
    dropped(new)
    require(not os.path.lexists(str(new)), f"{new} is there, and no install made it, or something of it still runs")
    new.mkdir()
    (new / MARK).write_text(json.dumps([name, new.stat().st_ino]))
    return {"made": str(new)}


def is_made(place):
    """Whether an install made this very directory, or nothing is lost with it, since its maker was killed at once."""
    with contextlib.suppress(OSError, ValueError):
        found = place.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return False
        mark = place / MARK
        if not os.listdir(str(place)) or (os.listdir(str(place)) == [MARK] and mark.lstat().st_size == 0):
            return True
        return bool(json.loads(mark.read_text()) == [place.name, found.st_ino])
    return False


def in_use(place):
    """Whether a program of a directory runs, such as a study: what it has yet to load must stay there."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            told = (process / "cmdline").read_bytes()
            if process.name != str(os.getpid()) and os.fsencode(str(place)) + b"/" in told:
                return True
    return False


def has_mounts(place):
    """Whether something is mounted in a directory: what that shows is elsewhere, and would be removed there."""
    above = os.fsencode(os.path.realpath(str(place)))
    for odd in (b"\\", b" ", b"\t", b"\n"):  # as the kernel writes them; the backslash first
        above = above.replace(odd, b"\\%03o" % odd[0])
    lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    return any((line.split()[4] + b"/").startswith(above + b"/") for line in lines)


def dropped(one):
    """Remove a directory that an install made, and of which nothing runs; returns whether it was removed."""
    if not is_made(one) or in_use(one) or has_mounts(one):
        return False
    shutil.rmtree(str(one), ignore_errors=True)
    return True


def drop(place, command):
    """Remove what an install made and neither the command nor `previous` means: nobody asks for it any more."""
    kept = (meant(place, command), meant(place, place / "previous"))
    there = sorted(place.iterdir()) if place.exists() else []
    return {"dropped": [one.name for one in there if one.name not in kept and dropped(one)]}


def point(link, to):
    """Let a link mean something else, in one step."""
    part = link.with_name(f".{link.name}")
    for one in (part, link):
        require(one.is_symlink() or not os.path.lexists(str(one)), f"{one} is there, and no install made it")
    link.parent.mkdir(parents=True, exist_ok=True)
    if part.is_symlink():
        part.unlink()
    part.symlink_to(to)
    part.replace(link)


def readable(new):
    """Let all users read and run what root installed, whatever its umask is."""
    for one in (new, *new.rglob("*")):
        if not one.is_symlink():
            mode = stat.S_IMODE(one.stat().st_mode)
            one.chmod(mode | 0o444 | (0o111 if mode & 0o100 else 0))


def switch(place, command, name):
    """Let the command mean this version, and keep the one before it; what is older is removed."""
    readable(place / name)
    now = meant(place, command)
    if now and now.split(AGAIN)[0] != name.split(AGAIN)[0]:
        point(place / "previous", now)
    point(command, place / name / "bin" / "virtune")
    return drop(place, command)


def back(place, command):
    """Let the command mean the version before, and remove the one that is left."""
    previous = meant(place, place / "previous")
    require(previous, "no earlier version is kept here")
    point(command, place / previous / "bin" / "virtune")
    (place / "previous").unlink()
    return drop(place, command)


def remove(place, command):
    """Remove all that was made; what somebody else put there stays, with the mark of the whole. Refused while
    something of it runs.
    """
    require(not in_use(place), "its virtune is running")
    for link in (command, place / "previous"):
        if link.is_symlink():
            link.unlink()
    gone = drop(place, command)
    if place.exists() and os.listdir(str(place)) == [MARK]:
        (place / MARK).unlink()
        place.rmdir()
    return gone


def main():
    """Do what the first word says with the paths behind it, and print what came of it as JSON."""
    os.umask(0o022)
    do, place, second, *name = sys.argv[1:]
    try:
        does = {"look": look, "make": make, "switch": switch, "drop": drop, "back": back, "remove": remove}
        found = does[do](*chosen(place, second), *name)
        print(json.dumps(found))  # noqa: T201 - what it is for
    except OSError as why:
        sys.exit(f"error: {(why.strerror or str(why)).lower()}: {why.filename or place}")


if __name__ == "__main__":
    main()
