# SPDX-License-Identifier: Apache-2.0
"""What a host's own Python runs to install virtune there, put an older one back, or remove it: standard library only.

It is sent over SSH and never a module of the program that is installed. Everything that it makes is below one
directory with a mark, and one link `~/.local/bin/virtune` into that; it touches nothing else. Each directory in there
has a mark that names it, and only such a one is removed. A version is complete before `current` is switched to it in
one step, so an install that is killed leaves what ran before.
"""

import contextlib
import hashlib
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
from pathlib import Path

MARK = "made-by-virtune-fleet-install"

AGAIN = "~again"
"""Ends the directory of a version that was installed while it was there already: what runs stays until then."""


class NotDone(Exception):  # noqa: N818 - a sentence for a person
    """Why nothing was done."""


def data() -> Path:
    """Return the directory of all versions."""
    named = os.environ.get("XDG_DATA_HOME", "")
    return (Path(named) if named.startswith("/") else Path("~/.local/share").expanduser()) / "virtune-fleet"


def link() -> Path:
    """Return the command that users and the fleet call."""
    return Path("~/.local/bin/virtune").expanduser()


def require(holds: bool, why: str) -> None:  # noqa: FBT001 - as an assertion
    """Refuse what does not hold, for this reason."""
    if not holds:
        raise NotDone(why)


def place_of(name: str) -> "str | None":
    """Return the directory that `current` or `previous` means: a version, or a version installed again."""
    with contextlib.suppress(OSError):
        return (data() / name).readlink().name
    return None


def version_of(name: str) -> "str | None":
    """Return the version that `current` or `previous` means."""
    found = place_of(name)
    return found and found.removesuffix(AGAIN)


def in_use(place: Path) -> bool:
    """Whether a program of a directory runs, such as a study: what it has yet to load must stay there."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(place).encode() + b"/" in (process / "cmdline").read_bytes():
                return True
    return False


def make(place: Path) -> None:
    """Make a directory with the mark that names it: its name and its inode, which a copy and a restored one lack. The
    device is not in it, since that of some filesystems is another one after each start of the host.
    """
    drop(place)
    require(
        not os.path.lexists(str(place)), f"{place} is there, and was not made by `virtune fleet install`, or is used"
    )
    place.mkdir(mode=0o700)
    (place / MARK).write_text(json.dumps([place.name, place.stat().st_ino]))


def is_made(place: Path) -> bool:
    """Whether an install made this very directory, or nothing is lost with it, since its maker was killed at once."""
    with contextlib.suppress(OSError, ValueError):
        found = place.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return False
        mark = place / MARK
        if (os.listdir(str(place)) == [MARK] and mark.lstat().st_size == 0) or not os.listdir(str(place)):
            return True
        return bool(json.loads(mark.read_text()) == [place.name, found.st_ino])
    return False


def has_mounts(place: Path) -> bool:
    """Whether something is mounted in a directory: what that shows is elsewhere, and would be removed there."""
    above = os.fsencode(os.path.realpath(str(place)))
    for odd in (b"\\", b" ", b"\t", b"\n"):  # as the kernel writes them; the backslash first
        above = above.replace(odd, b"\\%03o" % odd[0])
    lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    return any((line.split()[4] + b"/").startswith(above + b"/") for line in lines)


def drop(place: Path) -> None:
    """Remove a directory that an install made, and of which nothing runs."""
    if is_made(place) and not in_use(place) and not has_mounts(place):
        shutil.rmtree(place, ignore_errors=True)


def look() -> "dict[str, object]":
    """Return what is here."""
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "implementation": platform.python_implementation(),
        "machine": platform.machine(),
        "libc": list(platform.libc_ver()),
        "current": version_of("current"),
        "previous": version_of("previous"),
        "command": str(link()),
    }


def require_ours() -> None:
    """Refuse where something of the names that we use is somebody else's."""
    base = data()
    if base.exists() and not (base / MARK).exists():
        raise NotDone(f"{base} is there, and was not made by `virtune fleet install`")
    found = link()
    if (found.exists() or found.is_symlink()) and not (found.is_symlink() and base in found.readlink().parents):
        raise NotDone(f"{found} is there, and was not made by `virtune fleet install`")


def switch(name: str, version: str) -> None:
    """Let a link mean a version, in one step."""
    part = data() / f".{name}"
    for one in (part, data() / name):
        require(one.is_symlink() or not one.exists(), f"{one} is there, and was not made by `virtune fleet install`")
    part.unlink(missing_ok=True)
    part.symlink_to(version)
    part.replace(data() / name)


def begin() -> "dict[str, object]":
    """Make the directory that takes the wheels."""
    require_ours()
    incoming = data() / "incoming"
    data().mkdir(parents=True, exist_ok=True)
    (data() / MARK).touch()
    make(incoming)
    return {"incoming": str(incoming)}


def install(version: str, sums: "dict[str, str]") -> "dict[str, object]":
    """Install a version from the wheels that came, and switch to it."""
    require_ours()
    incoming, before = data() / "incoming", place_of("current")
    target = data() / (f"{version}{AGAIN}" if before == version else version)
    try:
        for name, digest in sums.items():
            arrived = hashlib.sha256((incoming / name).read_bytes()).hexdigest()
            require(arrived == digest, f"{name} did not arrive as it was sent")
        require(not in_use(target), f"{target.name} is left from an earlier install, and something of it still runs")
        make(target)
        run([sys.executable, "-m", "venv", "--without-pip", str(target)])
        pip = next(name for name in sums if name.startswith("pip-"))
        python = str(target / "bin" / "python")
        words = ["install", "--quiet", "--no-index", "--no-cache-dir", "--disable-pip-version-check", "--find-links"]
        run([python, f"{incoming / pip}/pip", *words, str(incoming), f"virtune=={version}"])
        said = run([str(target / "bin" / "virtune"), "--version"]).split()[-1:]
        require(said == [version], f"what was installed calls itself {' '.join(said)}")
        if before is not None and version_of("current") != version:
            switch("previous", before)
        switch("current", target.name)
    except BaseException:
        if place_of("current") != target.name:
            drop(target)
        raise
    finally:
        drop(incoming)
    link().parent.mkdir(parents=True, exist_ok=True)
    if not link().is_symlink():
        link().symlink_to(data() / "current" / "bin" / "virtune")
    for old in data().iterdir():  # of the versions before the previous one nobody asks any more
        if old.name not in (target.name, place_of("previous")):
            drop(old)
    return look()


def back() -> "dict[str, object]":
    """Switch to the version before, and remove the one that is left."""
    require_ours()
    current, previous = place_of("current"), place_of("previous")
    if previous is None or not (data() / previous / "bin" / "virtune").exists():
        raise NotDone("no earlier version is kept here")
    switch("current", previous)
    (data() / "previous").unlink()
    if current not in (None, previous):
        drop(data() / str(current))
    return look()


def remove() -> "dict[str, object]":
    """Remove all that was made; studies stay, and so does what somebody else put there, with the mark of the whole.
    Refused while something of it runs.
    """
    require_ours()
    require(not in_use(data()), "its virtune is running")
    if link().is_symlink():
        link().unlink()
    for name in ("current", "previous", ".current", ".previous"):
        if (data() / name).is_symlink():
            (data() / name).unlink()
    for one in data().iterdir() if data().exists() else ():
        drop(one)
    if data().exists() and os.listdir(str(data())) == [MARK]:
        (data() / MARK).unlink()
        data().rmdir()
    return look()


def run(words: "list[str]") -> str:
    """Run a program to its end; its last line is the reason where it fails."""
    env = {name: text for name, text in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=1800, env=env)
    if done.returncode:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise NotDone(lines[-1] if lines else f"{words[0]} ended with {done.returncode}")
    return done.stdout


def main() -> None:
    """Do what the first argument says, and print what is here then; the last line of stderr is why not."""
    asked = json.loads(sys.argv[1])
    try:
        doing = {"look": look, "begin": begin, "back": back, "remove": remove}
        found = install(asked["version"], asked["sums"]) if asked["do"] == "install" else doing[asked["do"]]()
        print(json.dumps(found))  # noqa: T201 - what it is for
    except NotDone as why:
        sys.exit(f"error: {why}")
    except OSError as why:
        sys.exit(f"error: {(why.strerror or str(why)).lower()}: {why.filename or data()}")


if __name__ == "__main__":
    main()
