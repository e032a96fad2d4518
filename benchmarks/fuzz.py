# SPDX-License-Identifier: Apache-2.0
"""Mutated inputs of every kind that virtune reads: one sentence and an exit code, whatever comes?

    nice -n 15 python -m benchmarks.fuzz [COUNT] [SEED] [KIND...]

Inputs are the recorded files of the tests, changed at random: bytes, words, numbers and lines exchanged, left out,
repeated, taken from another file; JSON values of another type; cut off, nested, in another encoding; one member of a
bundle, one cell of a store, one answer of a QEMU, one record of what virtune itself keeps on a host. Each is read by
the verb that reads its kind, in a child with 20 s of CPU time and 3 GiB of memory. What must hold: an exit code that
is documented, no traceback, no internal error, no signal, no figure that is not a number, JSON that can be read where
JSON was asked for. Prints a line for each input that breaks this, keeps
it in the directory named there, and a table in the end.
"""

import contextlib
import fcntl
import gzip
import io
import json
import math
import os
import random
import re
import resource
import sqlite3
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from tests.live_samples import HEADER, live
from tests.stub_monitor import RECORDED, counting, listening

from benchmarks.runs import load_all
from virtune import warden
from virtune.cli import run
from virtune.flows.live.top import Recorder
from virtune.model.errors import VirtuneError
from virtune.model.fleet import FleetHost, FleetRun, FleetTask
from virtune.model.stack import Stack
from virtune.plan.arms import arm_as_written, check_arms
from virtune.plan.planfile import read_plan
from virtune.store.progress import PairProgress, RunProgress

CAPTURES = Path(__file__).parents[1] / "tests" / "captures"
PATH = os.environ["PATH"]
CPU_SECONDS, MEMORY_BYTES = 20, 3 * 1024**3
DOCUMENTED = frozenset(range(6))
WRONG = re.compile(r"Traceback|internal error|\bnan\b|\binf\b", re.IGNORECASE)
LIBVIRTS = re.compile(r"libvirt refused `[a-z-]+`: internal error")
"""What libvirt itself calls so."""

NUMBERS = (
    "-1", "0", "1e999", "NaN", "9" * 30, "-9223372036854775809", "0.0000000001", "1.7e308", "", "null", "true", '"x"',
    "[]", "{}",
)  # fmt: skip
WORDS = (
    "",
    "\x1b[31m",
    "../../etc/passwd",
    "\u202e",
    "%s%n",
    "a" * 5000,
    "\x00",
    "<script>",
    "'\"`|",
    "\ud7ff",
    "{{}}",
)
NUMBER = re.compile(rb"-?\d+(\.\d+)?([eE][+-]?\d+)?")
WORD = re.compile(rb"[A-Za-z_][\w.-]{2,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of input: files to begin with, the call that reads one, and how often it is drawn."""

    name: str
    suffix: str
    seeds: tuple[bytes, ...]
    calls: tuple[tuple[str, ...], ...]
    share: int = 10
    at: str = ""
    """Where virtune itself keeps such a file, below the home of a user; its record names the file that it is in."""


def mutated(seed: bytes, other: bytes, chance: random.Random) -> bytes:
    """Return an input with one to six random changes."""
    text = seed
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        text = chance.choice(CHANGES)(text, other, chance)
    return text[: 4 * 1024**2]


def _at(text: bytes, chance: random.Random) -> int:
    return chance.randrange(len(text) + 1)


def _flip(text: bytes, _: bytes, chance: random.Random) -> bytes:
    changed = bytearray(text)
    for _time in range(chance.randrange(1, 9) if text else 0):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def _cut(text: bytes, _: bytes, chance: random.Random) -> bytes:
    start = _at(text, chance)
    return text[:start] + text[start + chance.choice((1, 7, 80, 2000)) :]


def _end(text: bytes, _: bytes, chance: random.Random) -> bytes:
    return text[: _at(text, chance)]


def _splice(text: bytes, other: bytes, chance: random.Random) -> bytes:
    start, place = _at(other, chance), _at(text, chance)
    return text[:place] + other[start : start + chance.choice((5, 80, 4000))] + text[place:]


def _repeat(text: bytes, _: bytes, chance: random.Random) -> bytes:
    start = _at(text, chance)
    part = text[start : start + chance.choice((3, 80, 1000))]
    return text[:start] + part * chance.choice((2, 3, 200)) + text[start:]


def _replaced(pattern: re.Pattern[bytes], words: Sequence[str]) -> Callable[[bytes, bytes, random.Random], bytes]:
    def change(text: bytes, _: bytes, chance: random.Random) -> bytes:
        found = list(pattern.finditer(text))
        if not found:
            return text
        one = chance.choice(found)
        return text[: one.start()] + chance.choice(words).encode(errors="replace") + text[one.end() :]

    return change


def _exchanged(text: bytes, _: bytes, chance: random.Random) -> bytes:
    """A word or number of a text in the place of another."""
    found = list((WORD if chance.random() < 0.5 else NUMBER).finditer(text))
    if len(found) < 2:
        return text
    here, there = chance.sample(found, 2)
    return text[: here.start()] + there.group() + text[here.end() :]


def _in_zip(text: bytes, _: bytes, chance: random.Random) -> bytes:
    """One member of an archive is changed, and the archive is whole."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(text)) as old, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
        names = old.namelist()
        turned = chance.choice([name for name in names if name.endswith("study.json")] * 3 + names)
        for name in names:
            content = old.read(name)
            if name == turned:
                content = mutated(content, old.read(chance.choice(names)), chance)
            new.writestr(name if chance.random() > 0.002 else (chance.choice(WORDS).strip("\x00") or "x"), content)
    return made.getvalue()


def _in_store(text: bytes, _: bytes, chance: random.Random) -> bytes:
    """One cell of a store has another content, and the file is a whole database."""
    with tempfile.NamedTemporaryFile(suffix=".sqlite") as file:
        Path(file.name).write_bytes(text)
        with contextlib.closing(sqlite3.connect(file.name)) as store:
            tables = [name for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type='table'")]
            table = chance.choice(tables)
            columns = [row[1] for row in store.execute(f'PRAGMA table_info("{table}")')]
            column = chance.choice(columns)
            rows = store.execute(f'SELECT rowid, "{column}" FROM "{table}"').fetchall()  # noqa: S608 - our own names
            if rows:
                row, value = chance.choice(rows)
                raw = value if isinstance(value, bytes) else str(value).encode()
                new: object = mutated(raw, raw, chance)
                if isinstance(value, str) and isinstance(new, bytes):
                    new = new.decode(errors="replace")
                elif isinstance(value, (int, float)):
                    new = chance.choice((-1, 2**62, 1e300, "x", None, b"\x00"))
                with contextlib.suppress(sqlite3.Error):
                    store.execute(f'UPDATE "{table}" SET "{column}"=? WHERE rowid=?', (new, row))  # noqa: S608
                    store.commit()
        return Path(file.name).read_bytes()


def _lines(text: bytes, _: bytes, chance: random.Random) -> bytes:
    lines = text.splitlines(keepends=True)
    chance.shuffle(lines)
    return b"".join(lines[: chance.randrange(len(lines) + 1)] if chance.random() < 0.5 else lines)


def _encoded(text: bytes, _: bytes, chance: random.Random) -> bytes:
    plain = text.decode(errors="replace")
    return chance.choice((plain.encode("utf-16"), b"\xef\xbb\xbf" + text, text.replace(b"\n", b"\r\n"), text[::-1]))


def _nested(text: bytes, _: bytes, chance: random.Random) -> bytes:
    place, depth = _at(text, chance), chance.choice((50, 3000))
    opening = chance.choice((b"[", b'{"a":', b"<a>", b"- "))
    return text[:place] + opening * depth + text[place:]


def _retyped(text: bytes, _: bytes, chance: random.Random) -> bytes:
    """One value of a JSON document of another type; other texts stay as they are."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return text
    holders: list[Any] = []

    def walk(value: Any) -> None:
        if isinstance(value, (dict, list)) and value:
            holders.append(value)
            for inner in value.values() if isinstance(value, dict) else value:
                walk(inner)

    walk(whole)
    if holders:
        holder = chance.choice(holders)
        key = chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        others: tuple[Any, ...] = (None, True, -1, 1e300, 10**40, math.nan, "x", "", [], {}, [1], {"a": 1}, [[]] * 99)
        holder[key] = chance.choice(others)
    return json.dumps(whole).encode()


INSIDE = {"bundle": _in_zip, "store": _in_store}
"""Kinds whose container is left whole most of the time: else nothing behind its door is ever reached."""

CHANGES = (
    _flip, _cut, _end, _splice, _repeat, _lines, _encoded, _nested, *[_retyped] * 8,
    *[_replaced(NUMBER, NUMBERS)] * 8, *[_replaced(WORD, WORDS)] * 4, *[_exchanged] * 4,
)  # fmt: skip


def _files(*patterns: str) -> tuple[bytes, ...]:
    paths = [path for pattern in patterns for path in sorted(CAPTURES.glob(pattern)) if path.is_file()]
    return tuple(path.read_bytes() for path in paths if path.name != "README.md")


def kinds(place: Path) -> tuple[Kind, ...]:
    """Return every kind of input, with what it begins with; `place` holds a store, a bundle and a recording."""
    audit = (("audit", "FILE"), ("audit", "FILE", "--json"))
    turns = ("advise", "--set", "disk.cache=none", "FILE")
    studies = tuple(
        path.read_bytes() for path in sorted((CAPTURES.parents[1] / "src/virtune/studies").glob("*.toml"))
    )
    plan = b'arms = [{name="a"}, {name="b", set={"disk.aio"="native"}}]\nrig = "simulated"\nrounds = 2\n'
    return (
        *kept_kinds(place),
        Kind(name="libvirt", suffix=".xml", seeds=_files("domains/*.xml"), calls=(*audit, turns), share=20),
        Kind(name="pve", suffix=".conf", seeds=_files("proxmox/*.conf", "vms/1*.conf"), calls=(*audit, turns)),
        Kind(name="other VMs", suffix=".cfg", seeds=_files("vms/*", "vm-bhyve/*", "nova/*", "qemu/*"), calls=audit),
        Kind(name="kubevirt", suffix=".yaml", seeds=_files("kubevirt/*.yaml"), calls=(*audit, turns), share=6),
        Kind(name="openstack", suffix=".json", seeds=_files("openstack/*.json"), calls=audit, share=4),
        Kind(
            name="fio",
            suffix=".json",
            seeds=_files("fio/*", "fio-versions/*"),
            calls=(("explain", "FILE"), ("explain", "FILE", "--json"), ("compare", "FILE", "FILE")),
            share=20,
        ),
        Kind(name="plan", suffix=".toml", seeds=(plan, *studies), calls=(("read_plan", "FILE"),)),
        Kind(
            name="inventory",
            suffix=".json",
            seeds=INVENTORIES,
            calls=(("fleet", "inventory", "-i", "FILE"),),
            share=6,
        ),
        Kind(name="bundle", suffix=".zip", seeds=((place / "b.zip").read_bytes(),), calls=(("import", "FILE"),)),
        Kind(
            name="store",
            suffix=".sqlite",
            seeds=((place / "s.sqlite").read_bytes(),),
            calls=(
                ("--store", "list"),
                ("--store", "show", "last"),
                ("--store", "derive"),
                ("--store", "show", "last", "--json"),
            ),
            share=12,
        ),
        Kind(
            name="recording",
            suffix=".jsonl",
            seeds=((place / "r.jsonl").read_bytes(),),
            calls=(("top", "--replay", "FILE", "--csv"), ("top", "--replay", "FILE", "--once", "--json")),
        ),
    )


def kept_kinds(place: Path) -> Iterator[Kind]:
    """Yield what virtune keeps for itself on a host, and the answers of a QEMU."""
    (entry,) = (place / "virtune" / "journal").iterdir()
    undo = (("apply", "undo", "--list"), ("undo", "last"), ("undo", "last", "--show"))
    for file in entry.iterdir():
        if file.name != "owner":
            seeds = (file.read_bytes(),)
            yield Kind(name=f"journal: {file.name}", suffix="", seeds=seeds, calls=undo, share=4, at=str(file))
    clean = (("host", "clean", "--scratch", f"{place}/scratch"),)
    for name, at, record in (
        ("run", "virtune-run-abc/owner", RUN | {"names": ["virtune-run-abc"]}),
        ("disk in a domain", "virtune/plugged/virtune-0badcafe.json", PLUGGED),
        ("image in Ceph", "virtune/ceph/virtune-run-abc-0123456789abcdef.json", {"place": "pool", "size_bytes": 1}),
        ("scratch image", "scratch/virtune-8388608.raw.partial.virtune.json", WITNESS),
    ):
        said = json.dumps(record | {"self": IDENTITY}).encode()
        yield Kind(name=f"record: {name}", suffix="", seeds=(said,), calls=clean, share=4, at=at)
    host = FleetHost(name="web1", target="root@web1", labels=(("rack", "3"),))
    task = FleetTask(name="run-1", host=host, part=0, expected_seconds=9.5)
    run_ = FleetRun(name="20260101-000000-run1", created="2026-01-01T00:00:00+00:00", words=("check",), tasks=(task,),
                    at_once=2, shares="shares", reference="web1")  # fmt: skip
    yield Kind(name="fleet's plan", suffix="", seeds=(TypeAdapter(FleetRun).dump_json(run_),), share=4,
               calls=(("fleet", "status", "last"), ("fleet", "status", "last", "--json")),
               at="virtune/fleet-runs/20260101-000000-run1.json")  # fmt: skip
    progress = RunProgress(study="s", title="t", done=1, total=5, until=1.8e9, pairs=(PAIR,))
    yield Kind(name="progress", suffix="", seeds=(TypeAdapter(RunProgress).dump_json(progress) + b"\n",), share=4,
               calls=(("list", "--store", f"{place}/s.sqlite"), ("list", "--json", "--store", f"{place}/s.sqlite")),
               at="s.sqlite-run-s")  # fmt: skip
    answers = tuple(json.dumps(one).encode() for one in RECORDED)
    yield Kind(name="QMP", suffix="", seeds=answers, share=3, calls=(
        ("top", "--once", "--interval", "0.2s", "--qmp", f"{place}/qmp"),
        ("top", "--once", "--json", "--interval", "0.2s", "--qmp", f"{place}/qmp"),
        ("diagnose", "--seconds", "1", "--qmp", f"{place}/qmp"),
    ))  # fmt: skip


IDENTITY = {"device": 111111, "inode": 222222, "born": 333333}
RUN = {"made_by": "virtune", "pid": 1 << 22, "started": 9, "boot": "x", **IDENTITY}
WITNESS = {"format": 2, "made_by": "virtune", "span": 8388608, **IDENTITY}
PLUGGED = {"name": "virtune-0badcafe", "uri": "test:///default", "uuid": "6695eb01-f6a4-8304-79aa-97f2502e193f",
           "domain": "test", "scratch": "/var/tmp/x", "owner": 1 << 22, "started": 9}  # fmt: skip
PAIR = PairProgress(baseline="a", candidate="b", workload="w", metric="iops", verdict="same", difference="+1 %",
                    left="3")  # fmt: skip

INVENTORIES = (
    json.dumps({"_meta": {"hostvars": {"a": {"ansible_host": "10.0.0.1"}}}, "all": {"hosts": ["a", "b"]}}).encode(),
    b"web1 rack=3\nqemu+ssh://root@kvm1/system rack=1 disk=nvme\n# a comment\nweb2\n",
    b"Host a b\n  HostName 10.0.0.1\n  Port 2222\nHost *\n  User root\n",
)


@contextlib.contextmanager
def put(kind: Kind, text: bytes, place: Path, chance: random.Random) -> Iterator[Path]:
    """Have an input where it is read, while the block runs."""
    path = place / (kind.at or f"input{kind.suffix}")
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind.name == "QMP":
        told, honest = chance.choice(RECORDED)["execute"], counting()
        path = place / "qmp"
        path.unlink(missing_ok=True)
        line = text.replace(b"\n", b" ")
        if (found := re.search(rb'"return": (.*)}', line)) and chance.random() < 0.8:
            told, line = json.loads(chance.choice(kind.seeds))["execute"], found[1]
        answer = line.decode(errors="replace")
        with listening(path, lambda command, words: answer if command == told else honest(command, words)):
            yield path
        return
    before = {file: file.read_bytes() for file in path.parent.iterdir()} if kind.name.startswith("journal") else {}
    path.write_bytes(text)
    if kind.name.startswith("record"):
        path.chmod(0o600)
        with path.open("r+b") as file, _opened(path.parent if path.name == "owner" else path) as named:
            for key, value in warden.identity(named).items():
                text = text.replace(str(IDENTITY[key]).encode(), str(value).encode())
            file.write(text)
            file.truncate()
    with path.open("rb") as held:
        if kind.name == "progress":
            fcntl.flock(held, fcntl.LOCK_EX)
        yield path
    path.unlink(missing_ok=True)
    for changed, content in before.items():
        changed.write_bytes(content)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read(call: Sequence[str], path: Path, home: Path) -> tuple[int, str, str]:
    """Call virtune in a child; returns its exit code, or minus its signal, and what it wrote."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _child(call, path, home, writer)
    os.close(writer)
    with open(reader, "rb") as said:  # noqa: PTH123 - a descriptor
        text = said.read(8 * 1024**2).decode(errors="replace")
    _, status = os.waitpid(child, 0)
    out, _, err = text.partition("\0err\0")
    return os.waitstatus_to_exitcode(status), out, err


def _child(call: Sequence[str], path: Path, home: Path, writer: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    os.environ |= {"XDG_DATA_HOME": str(home), "TMPDIR": str(home), "NO_COLOR": "1", "PATH": f"{home}/bin:{PATH}"}
    tempfile.tempdir = None
    words = [str(path) if word == "FILE" else word for word in call]
    if words[0] == "--store":
        words = [*words[1:], "--store", str(path)]
    out, err, code = io.StringIO(), io.StringIO(), 99
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = _planned(path) if words[0] == "read_plan" else run(words)
    except BaseException as error:  # noqa: BLE001 - all that gets through is the finding
        err.write(f"Traceback: {type(error).__name__}: {error}")
    os.write(writer, (out.getvalue()[:4_000_000] + "\0err\0" + err.getvalue()[:100_000]).encode(errors="replace"))
    os._exit(code)


def _planned(path: Path) -> int:
    """Read a plan file and its arms, as the verbs do before they start anything: what it says is not run."""
    try:
        options = read_plan(path.read_bytes().decode())
        check_arms([arm_as_written(one, Stack(), settings=()) for one in options.arms or ()])
    except (VirtuneError, UnicodeDecodeError) as error:
        sys.stderr.write(str(error))
        return 2
    return 0


def wrong(call: Sequence[str], code: int, out: str, err: str, text: bytes) -> str | None:
    """Return what an answer breaks; None for one that is as it should be."""
    if code not in DOCUMENTED:
        return f"ended with {code}"
    if (found := WRONG.search(LIBVIRTS.sub("", out + err))) and found.group().lower().encode() not in text.lower():
        return f"says {found.group()!r}"
    if code not in (0, 4, 5) and not (out + err).strip():
        return f"exit {code} without a word"
    if "--json" in call and out.strip():
        try:
            json.loads(out, parse_constant=_refused)
        except ValueError as error:
            return f"its JSON: {error}"
    return None


def _refused(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def made(place: Path) -> None:
    """Make the store, the bundle and the recording that are mutated."""
    kept = next(iter(sorted((CAPTURES.parent / "store" / "data").glob("*.sqlite.gz"))))
    (place / "s.sqlite").write_bytes(gzip.decompress(kept.read_bytes()))
    with contextlib.closing(sqlite3.connect(place / "s.sqlite")) as store:
        store.execute("PRAGMA journal_mode=DELETE")
    with Recorder(place / "r.jsonl", HEADER) as file:
        for second in range(1, 6):
            file.add(live(second))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        run(["show", "export", "last", "--bundle", str(place / "b.zip"), "--store", str(place / "s.sqlite")])
        run(["apply", "test", "--connect", "test:///default", "--set", "vcpu.pin@vcpu:0=0", "--yes",
             "--journal", str(place / "virtune" / "journal")])  # fmt: skip
    (entry,) = (place / "virtune" / "journal").iterdir()
    (entry / "steps").write_text("intended\ndefining\ndefined\ncommitted\n")  # libvirt's test driver does none of it
    (place / "bin").mkdir()
    for name in ("ssh", "rbd"):  # of no host and no cluster
        (place / "bin" / name).write_text("#!/bin/sh\necho no such host >&2\nexit 255\n")
        (place / "bin" / name).chmod(0o755)
    assert zipfile.is_zipfile(place / "b.zip")


def main(arguments: Sequence[str]) -> int:
    """Read mutated inputs; returns how many broke a rule."""
    numbers = [int(one) for one in arguments if one.isdigit()]
    names = [one for one in arguments if not one.isdigit()]
    count, seed = (*numbers, 1000, 1)[:2] if len(numbers) != 1 else (numbers[0], 1)
    chance, tally, broken = random.Random(seed), Counter[str](), Counter[str]()
    codes: dict[str, Counter[int]] = {}
    longest: dict[str, float] = {}
    kept = Path(tempfile.mkdtemp(prefix="fuzz-kept-"))
    load_all()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as directory:
        place = Path(directory)
        made(place)
        here = [kind for kind in kinds(place) if kind.seeds and (not names or kind.name in names)]
        for number in range(count):
            kind = chance.choices(here, [one.share for one in here])[0]
            seed_text = chance.choice(kind.seeds)
            inner = INSIDE.get(kind.name) if chance.random() < 0.85 else None
            text = (inner or mutated)(seed_text, chance.choice(kind.seeds), chance)
            call = chance.choice(kind.calls)
            before = time.monotonic()
            with put(kind, text, place, chance) as path:
                code, out, err = read(call, path, place)
            longest[kind.name] = max(longest.get(kind.name, 0.0), time.monotonic() - before)
            tally[kind.name] += 1
            codes.setdefault(kind.name, Counter())[code] += 1
            if why := wrong(call, code, out, err, text):
                broken[kind.name] += 1
                saved = kept / f"{number}{kind.suffix}"
                saved.write_bytes(text)
                print(f"{kind.name}: {' '.join(call)}: {why}: {saved}: {err.strip()[-160:]!r}", flush=True)
    print("| kind | inputs | exit codes | longest | wrong |\n|---|---|---|---|---|")
    for name in tally:
        ended = ", ".join(f"{code}: {times}" for code, times in sorted(codes[name].items()))
        print(f"| {name} | {tally[name]} | {ended} | {longest[name]:.1f} s | {broken[name]} |")
    print(f"\n{sum(tally.values())} inputs, {sum(broken.values())} wrong (seed {seed})")
    return min(1, sum(broken.values()))


if __name__ == "__main__":
    # set before NumPy is loaded: no thread may live where a child is forked
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    sys.exit(main(sys.argv[1:]))
