# SPDX-License-Identifier: Apache-2.0
"""What virtune did not make is there afterwards, byte for byte, whatever its name is and whichever verb ran."""

import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import click
import pytest

from tests.conftest import eventually
from tests.leftovers import left_over
from virtune import cli, warden
from virtune.apply.journal import Journal
from virtune.cli import run
from virtune.flows.clean import clean
from virtune.shell import Warden

NOBODY = 65534
VERBS: dict[str, tuple[str, ...]] = {
    "clean": ("clean",),
    "clean images": ("clean", "--images"),
    "measure": ("measure", "--rig", "simulated", "--rounds", "1", "--seconds", "0.1", "-q"),
    "probe": ("probe",),
    "guard": (),
}
QUICK = ("--rounds", "1", "--seconds", "0.1", "--ramp", "0s", "-q")
OF_FLEETS = ("-i", "{root}/hosts", "-q")
EVERY: dict[str, tuple[str, ...]] = {
    "compare measure": ("--rig", "metal", "--span", "8M", *QUICK), "host probe": (),
    "host doctor": (), "host knobs": (),
    "show list": (), "show label": ("last", "--tag", "x"), "show": ("last",),
    "host check": ("--rig", "metal", "--seconds", "1s", "--span", "8M", "-q"),
    "show report": ("last", "-o", "{root}/x.html"),
    "compare": ("--rig", "storage-daemon", "--vary", "disk.aio=threads,native", "--span", "8M", *QUICK),
    "sweep": ("--rig", "simulated", "--loads", "30%", *QUICK[:4], "-q"), "tune": ("--rig", "simulated", "-q"),
    "compare study list": (), "compare study figures": (), "compare study plan": ("fio-engines",),
    "compare study run": ("fio-engines", "--dry-run"),
    "audit": ("{captures}/domains/vagrant-cache-unsafe.xml",), "explain": ("{captures}/fio/plain.json",),
    "apply advise": ("{captures}/domains/vagrant-cache-unsafe.xml", "--template", "flash"),
    "fix": ("{captures}/domains/vagrant-cache-unsafe.xml", "--dry-run", "--rig", "storage-daemon", "--rounds", "6",
            "--seconds", "50ms", "--ramp", "0", "--span", "8M", "--attempts", "1"),
    "apply": ("test", "--connect", "test:///default", "--set", "vcpu.pin@vcpu:0=0", "--yes"), "apply undo": (),
    "show derive": (), "show export": ("last", "--bundle", "{root}/x.zip"),
    "explain import": ("{captures}/fio/plain.json", "-q"),
    "compare resume": ("-q",), "top": ("--qmp", "{root}/none", "--once"),
    "watch": ("--qmp", "{root}/none", "--history", "{root}/kept", "--if", "iops > 1"),
    "diagnose": ("--run", "last"), "serve": (),
    "fleet apply": (*OF_FLEETS, "--template", "flash", "--yes"), "fleet install": OF_FLEETS, "fleet report": (),
    "fleet pack": ("nothing",),
    "fleet audit": (*OF_FLEETS, "--connect", "test:///default"), "fleet here": ("task", "--follow"),
    "fleet inventory": OF_FLEETS[:2], "fleet probe": OF_FLEETS, "fleet run": (*OF_FLEETS, "check"),
    "fleet gather": OF_FLEETS, "fleet tune": OF_FLEETS, "fleet runs": (),
    "fleet history": (), "fleet status": ("last",), "fleet undo": ("last",),
    "host guest list": (), "host guest remove": (), "host clean": ("--images",),
}  # fmt: skip
"""Words for every verb. `host guest build` is left out, which would fetch packages."""


def tree(*roots: Path) -> dict[str, object]:
    """Everything below these places: its kind, its owner, and its content or where it leads."""
    found: dict[str, object] = {}
    for path in (one for root in roots for one in (root, *root.rglob("*"))):
        status = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path)] = (stat.S_IFMT(status.st_mode), status.st_uid, status.st_ino, content)
    return found


def deep(place: Path, chance: Random) -> Path:
    """Something precious, some directories deep."""
    for _ in range(chance.randrange(4)):
        place /= chance.choice((".hidden", "deep", "owner.d", "with blank", "-rf", "ünï", "drive-x", "a\nb"))
    place.mkdir(parents=True, exist_ok=True)
    (place / chance.choice(("thesis.tex", "owner~", "core", ".git"))).write_bytes(chance.randbytes(50))
    return place


def older(place: Path, chance: Random) -> None:
    """What a virtune wrote that recorded no inode."""
    deep(place, chance)
    (place / "owner").write_text("1 2\n")


def copied(place: Path, chance: Random) -> None:
    """A copy of what a run left, which somebody looks at later."""
    made = left_over(place.with_name(f"{place.name}x"))
    deep(made, chance)
    shutil.copytree(made, place)
    shutil.rmtree(made)


def moved(place: Path, chance: Random) -> None:
    """What a run left, under a name that somebody gave it."""
    deep(left_over(place.with_name(f"{place.name}x")), chance)
    place.with_name(f"{place.name}x").rename(place)


def made_again(place: Path, chance: Random) -> None:
    """A copy that was put back: many filesystems give the inode of what was removed to the next one."""
    deep(left_over(place), chance)
    saved = (place / "owner").read_bytes()
    time.sleep(0.012)  # the kernel's clock for files has ticks of up to 10 ms
    for _ in range(20):
        inode = place.stat().st_ino
        shutil.rmtree(place)
        deep(place, chance)
        (place / "owner").write_bytes(saved)
        if place.stat().st_ino == inode:
            return


def of_another(place: Path, chance: Random) -> None:
    deep(left_over(place), chance)
    for path in (place, *place.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def with_another_s(place: Path, chance: Random) -> None:
    """What a run left, with a file of another user in it."""
    os.chown(deep(left_over(place), chance), NOBODY, NOBODY)
    os.chown(place, os.getuid(), os.getgid())
    for path in place.rglob("*"):
        if path.name != "owner":
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def forged(place: Path, chance: Random) -> None:
    deep(place, chance)
    said: object = {"made_by": "virtune", "names": [place.name], "pid": 1, "started": 2, "device": 1, "inode": 1}
    said = chance.choice((said, [], "x", {"names": 3}, None, {"made_by": "virtune", "names": [place.name]}))
    (place / "owner").write_text(json.dumps(said))


def linked_record(place: Path, chance: Random) -> None:
    deep(place, chance)
    record = place.parent / f"record-{chance.random()}"
    record.write_text("{}")
    (place / "owner").symlink_to(record)


def linked(place: Path, chance: Random) -> None:
    place.symlink_to(deep(place.parent / f"precious-{chance.random()}", chance))


def marked(place: Path, chance: Random) -> None:
    """A copy of how far a run was, or of a scratch image's witness."""
    said = {"virtune_run": 1, "study": "s", "format": 2, "made_by": "virtune", "span": 1, "device": 1, "inode": 1}
    text = json.dumps(said | {"self": {"device": 1, "inode": 1, "born": 1}}, separators=(",", ":"))
    place.write_text(f"{text}\n{chance.random()}\n")


def a_file(place: Path, chance: Random) -> None:
    place.write_bytes(chance.randbytes(50))


def hard_link(place: Path, chance: Random) -> None:
    kept = place.parent / f"precious-{chance.random()}"
    kept.write_bytes(chance.randbytes(50))
    place.hardlink_to(kept)


PLANTS: tuple[Callable[[Path, Random], object], ...] = (
    deep, older, copied, moved, made_again, of_another, with_another_s, forged, linked_record, linked, a_file, marked,
    hard_link,
)  # fmt: skip


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for temporary files, a cache and a home of our own."""
    real = Path(tempfile.mkdtemp(prefix="w", dir="/tmp"))
    link = tmp_path / "link"
    link.symlink_to(real)
    before = tempfile.tempdir
    tempfile.tempdir = str(link)  # what TMPDIR names is often a link
    for name in ("DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    try:
        yield real
    finally:
        tempfile.tempdir = before
        shutil.rmtree(real)


def planted(root: Path, places: Path, chance: Random) -> list[Path]:
    """Plant each kind under a name that virtune uses at each place that it cleans; returns where."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    caches, scratch, key = root / "cache" / "virtune", root / "scratch", f"{chance.randrange(2**64):016x}"
    names: list[tuple[Path, str]] = [
        (places, "virtune-run-{}"), (places, ".virtune-run-{}"), (places, "virtune-run-ask-{}"),
        (caches / "appliances", "{}.partial"), (caches / "appliances", f"{key}.{{}}.partial"),
        (caches / "packages", ".{}.partial"), (caches / "packages", "{}.partial"),
        (caches / "appliances" / key / "booted", f"{boot}-{{}}.partial"),
        (caches / "appliances" / key / "booted", "ffffffff-{}"),
        (scratch, "virtune-{}.raw.partial"), (scratch, "virtune-{}.raw"), (scratch, "virtune-{}.qcow2.virtune.json"),
        (scratch, "virtune-{}-passing.raw"), (scratch, "virtune-{}.raw.partial.virtune.json"),
        (root / "data" / "virtune" / "ceph", "virtune-run-{}.json"), (root / "stores", "s.sqlite-run-{}"),
    ]  # fmt: skip
    found = []
    (caches / "appliances").mkdir(parents=True)
    left_over(caches / "appliances" / key)  # what lies below what is not virtune's is not named besides
    for place, name in names:
        place.mkdir(parents=True, exist_ok=True)
        for plant in PLANTS:
            number = str(chance.randrange(10**9))
            found.append(place / name.format(number))
            plant(found[-1], chance)
            with contextlib.suppress(OSError):
                os.utime(found[-1], (1, 1), follow_symlinks=False)
    return found


def enter(verb: str, root: Path) -> None:
    if verb == "guard":
        with Warden("removal"):
            return
    words = [*VERBS[verb], *(["--scratch", str(root / "scratch")] if verb in ("clean", "clean images") else [])]
    words += ["--store", str(root / "stores" / "s.sqlite")] if verb == "measure" else []
    assert run(words) in (0, 1), "1: something is kept"


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("verb", VERBS)
def test_what_only_looks_like_virtune_s_stays_as_it_is(
    verb: str, seed: int, places: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    looks = planted(tmp_path, places, Random(seed))
    roots = [places, *(tmp_path / name for name in ("cache", "scratch", "data", "stores"))]
    before = tree(*roots)
    enter(verb, tmp_path)
    after = tree(*roots)
    assert {path: after.get(path) for path in before} == before
    said = capfd.readouterr().err
    if verb.startswith("clean"):
        ours = [path for path in looks if path.lstat().st_uid == os.getuid() and path.parent.name != "stores"]
        states = [path for path in ours if path.name.startswith("ffffffff-") and warden.doubt(path) is None]
        assert [path for path in ours if f"{path.name}: " not in said and path not in states] == []


def every_verb() -> Iterator[str]:
    for name in cli.VERBS:
        verb = cli.cli.get_command(click.Context(cli.cli), name)
        if isinstance(verb, click.Group) and name != "host":  # whose verbs have names of their own
            yield from (f"{name} {one}" for one in verb.list_commands(click.Context(verb)))
        elif name != "host":
            yield name


@pytest.mark.real
def test_no_verb_at_all_touches_what_only_looks_like_virtune_s(
    places: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(every_verb()) == {*EVERY, "host guest build"}
    planted(tmp_path, places, Random(9))
    (tmp_path / "hosts").write_text("nowhere\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ssh").write_text("#!/bin/sh\nexit 255\n")
    (tmp_path / "bin" / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    roots = [places, *(tmp_path / name for name in ("cache", "scratch", "data", "stores"))]
    before = tree(*roots)
    captures = Path(__file__).parent / "captures"
    for verb, words in EVERY.items():
        options = verb_options(verb)
        more = ["--scratch", str(tmp_path / "scratch")] if "--scratch" in options and verb != "diagnose" else []
        more += ["--store", str(tmp_path / "stores" / "s.sqlite")] if "--store" in options else []
        line = [*verb.split(), *more, *(word.format(root=tmp_path, captures=captures) for word in words)]
        status = served(line) if verb == "serve" else run(line)
        assert status in range(6), line
        after = tree(*roots)
        assert {path: after.get(path) for path in before} == before, line


def verb_options(verb: str) -> set[str]:
    found: click.Command | None = cli.cli
    left = verb.split()
    while left:
        assert isinstance(found, click.Group)
        _, found, left = found.resolve_command(click.Context(found), left)
    assert found is not None
    return {option for one in found.params for option in one.opts}


def served(line: list[str]) -> int:
    words = [sys.executable, "-m", "virtune", *line, "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as server:
        assert server.stdout is not None
        assert b"http" in server.stdout.readline()
        server.terminate()
        server.wait(60)
    return 0


@pytest.mark.parametrize("plant", [deep, copied, linked, a_file, hard_link])
def test_what_took_the_place_of_a_run_that_is_killed_stays(
    plant: Callable[[Path, Random], object], places: Path, tmp_path: Path
) -> None:
    script = "from virtune.shell import Warden\nwith Warden('moved') as run: print(run.directory); input()"
    words, env = [sys.executable, "-uc", script], dict(os.environ) | {"TMPDIR": str(places)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, env=env, text=True, **pipes) as killed:  # type: ignore[call-overload]
        directory = Path(killed.stdout.readline().strip())
        directory.rename(tmp_path / "moved")
        plant(directory, Random(3))
        before = tree(places, tmp_path / "moved")
        (guard,) = children_of(killed.pid)
        assert eventually(lambda: f"warden.py\0{warden.run_id_of(directory)}" in command_of(guard))
        killed.kill()
    assert eventually(lambda: not command_of(guard))
    assert tree(places, tmp_path / "moved") == before


def children_of(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def test_the_journal_removes_only_the_unfinished_entries_of_its_own(tmp_path: Path) -> None:
    chance, root = Random(5), tmp_path / "journal"
    root.mkdir()
    for plant in PLANTS:
        plant(root / f".new-{chance.randrange(10**9)}", chance)
    mine = left_over(root / ".new-mine")
    before = tree(root)
    Journal(root).begin(name="n", uri="u", uuid="i", domain="d", turns=(), live=(), before=b"x", after=b"x")
    after = tree(root)
    assert {path for path in before if path not in after} == {str(mine), str(mine / "owner")}
    assert all(after[path] == said for path, said in before.items() if path in after and path != str(root))
    assert warden.noted_removals() == [f"an unfinished entry of the journal {mine}"]


@pytest.mark.parametrize("where", ["through a link", "as it is"])
@pytest.mark.parametrize("kind", ["directory", "file", "tmpfs"])
def test_what_is_mounted_below_what_a_run_left_stays_and_is_named(
    where: str, kind: str, places: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if where == "as it is":
        tempfile.tempdir = str(places)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").write_text("all I have")
    directory = left_over(warden.run_directory("mounted"))
    point = directory / "deep" / "mount"
    point.parent.mkdir()
    point.touch() if kind == "file" else point.mkdir()
    bind = ["--bind", str(precious / "data" if kind == "file" else precious)]
    subprocess.run(["mount", *(["-t", "tmpfs", "x"] if kind == "tmpfs" else bind), point], check=True)
    try:
        if kind == "tmpfs":
            (point / "data").write_text("all I have")
        before = tree(precious, point)
        with Warden("below"):
            pass
        assert run(["host", "clean", "--scratch", str(tmp_path / "none")]) == 1
        assert tree(precious, point) == before
        assert f"kept: directory {directory}" in capfd.readouterr().err
    finally:
        subprocess.run(["umount", point], check=True)
    assert clean(tmp_path / "none", images=False)[0] == [f"directory {directory}"]
    assert (precious / "data").read_text() == "all I have"


def test_below_a_mount_that_appears_while_it_is_removed_nothing_is_deleted(tmp_path: Path) -> None:
    directory, precious = left_over(tmp_path / "run"), tmp_path / "precious"
    (directory / "a" / "mount").mkdir(parents=True)
    precious.mkdir()
    (precious / "data").write_text("all I have")
    script = """
import subprocess, sys
from pathlib import Path
from virtune import cli, warden
point, precious, done = Path(sys.argv[1]) / "a" / "mount", sys.argv[2], []
def late(event, arguments):
    if event == "os.listdir" and not done:
        done.append(subprocess.run(["mount", "--bind", precious, point], check=True))
sys.addaudithook(late)
print(warden.remove(Path(sys.argv[1])), len(done))
"""
    words = ["unshare", "--mount", sys.executable, "-c", script, str(directory), str(precious)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert said == "False 1\n"
    assert (precious / "data").read_text() == "all I have"
    assert warden.remove(directory)


def test_what_a_killed_run_left_is_removed_by_the_next_verb_which_says_so(
    places: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = left_over(warden.run_directory("killed"))
    (directory / "deep").mkdir()
    (directory / "deep" / "log").touch()
    (directory / "link").symlink_to(tmp_path)
    assert directory.parent == places
    enter("measure", tmp_path)
    assert f"note: a run that was killed left directory {directory}; removed" in capfd.readouterr().err
    assert list(places.iterdir()) == []


def test_what_virtune_made_is_known_when_its_disk_has_another_number(tmp_path: Path) -> None:
    """Device numbers may be others after each start of the host."""
    image, points = tmp_path / "image", [tmp_path / "first", tmp_path / "again"]
    with image.open("wb") as file:
        file.truncate(8 * 1024**2)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    with contextlib.ExitStack() as ends:
        for disk, point in zip((image, tmp_path / "copy"), points, strict=True):
            point.mkdir()
            subprocess.run(["mount", "-o", "loop", disk, point], check=True)
            ends.callback(subprocess.check_call, ["umount", "-l", point])
            if point == points[0]:
                left_over(point / "virtune-run-7")
                shutil.copytree(point / "virtune-run-7", point / "saved" / "virtune-run-7")
                os.sync()
                shutil.copyfile(image, tmp_path / "copy")
        first, again = (point / "virtune-run-7" for point in points)
        assert (first.stat().st_dev == again.stat().st_dev, first.stat().st_ino) == (False, again.stat().st_ino)
        assert warden.doubt(points[1] / "saved" / "virtune-run-7") is not None
        assert warden.is_abandoned(again)
        assert warden.remove(again)


def test_a_removal_that_is_killed_at_any_instant_is_ended_by_the_next(tmp_path: Path) -> None:
    script = """
import os, sys
from pathlib import Path
from virtune import cli, warden
def die(event, arguments, left=[int(sys.argv[2])]):
    if event in ("os.remove", "os.rename", "os.rmdir"):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), 9)
sys.addaudithook(die)
print(warden.remove(Path(sys.argv[1])))
"""
    script = script.replace("from virtune import warden", SOLE)
    for instant in range(6):
        place = left_over(tmp_path / f"virtune-run-{instant}")
        (place / "a").mkdir()
        (place / "a" / "b").touch()
        words = [sys.executable, "-I", "-c", script, str(place), str(instant)]
        ended = subprocess.run(words, check=False, capture_output=True, text=True)
        left = [path for path in tmp_path.iterdir() if path.name != "none"]
        assert (ended.returncode, len(left)) == ((-9, 1) if instant < 5 else (0, 0)), ended.stderr
        for path in left:
            os.utime(path, (1, 1))
            assert warden.is_abandoned(path), path
            assert warden.remove(path)


SOLE = f"""
import importlib.util
spec = importlib.util.spec_from_file_location("warden", {warden.__file__!r})
warden = importlib.util.module_from_spec(spec)
spec.loader.exec_module(warden)
"""
"""The guard's module by itself, as the guard has it."""
