# SPDX-License-Identifier: Apache-2.0
"""virtune called as its users call it, in a place of its own, and a look at what it left there."""

import contextlib
import gzip
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PATIENCE_SECONDS = 15.0
"""How long the guard may take to remove what a run left; it takes 0.1 s and, where all are deaf, some 5 s."""

KEPT = "20261122-184255-3883"
"""A comparison that is in the store from the beginning."""

_SHORT = ("--rounds", "2", "--seconds", "0.5", "--ramp", "0.1", "-q")


@dataclass(frozen=True)
class Call:
    """One verb as it is called, and about how long it takes on an idle machine. `loads` are those with a scratch."""

    name: str
    words: tuple[str, ...]
    seconds: float
    loads: bool = False
    stores: bool = False


def _compare(name: str, rig: str, seconds: float, *more: str) -> Call:
    words = ("compare", "--rig", rig, "--arm", "a:", "--arm", "b:disk.aio=native", *more, *_SHORT)
    return Call(f"compare {name}", words, seconds, loads=True, stores=True)


CALLS = (
    _compare("nbd", "storage-daemon", 6),
    _compare("fuse", "storage-daemon", 6, "--set", "disk.export=fuse"),
    _compare("qcow2", "storage-daemon", 6, "--set", "disk.format=qcow2"),
    _compare("vhost-user", "vhost-user", 6),
    _compare("qemu", "qemu", 20),
    _compare("simulated", "simulated", 1.5),
    Call("measure metal", ("measure", "--rig", "metal", "--workload", "rw=randread,bs=4k,iodepth=8", *_SHORT), 4,
         loads=True, stores=True),
    Call("tune", ("tune", "--vary", "disk.aio=threads,native,io_uring", "--budget", "3m", "-q"), 30,
         loads=True, stores=True),
    Call("tune simulated", ("tune", "--rig", "simulated", "--vary", "disk.aio=threads,native,io_uring", "-q"), 8,
         loads=True, stores=True),
    Call("check", ("check", "--seconds", "10s", "-q"), 12, loads=True, stores=True),
    Call("resume", ("resume", "-q"), 6, stores=True),
    Call("import", ("import", "{fio}/plain.json", "--quiet"), 1.5,
         stores=True),
    Call("show", ("show", KEPT), 1.5, stores=True),
    Call("show --json", ("show", KEPT, "--json"), 1.5, stores=True),
    Call("report", ("report", KEPT, "-o", "{home}/page.html"), 2.5, stores=True),
    Call("list", ("list",), 1.0, stores=True),
    Call("explain", ("explain", "{fio}/plain.json"), 1.0),
    Call("audit", ("audit", "{captures}/domains", "--fail-on", "never"), 2.0),
    Call("advise", ("advise", "{captures}/domains/vagrant-cache-unsafe.xml"), 1.0),
    Call("apply", ("apply", "test", "--connect", "test:///default", "--set", "vcpu.pin@vcpu:0=0", "--yes",
                   "--journal", "{home}/journal"), 2.0),
    Call("undo --list", ("undo", "--list", "--journal", "{home}/journal"), 1.0),
    Call("probe", ("probe",), 2.0),
    Call("knobs", ("knobs",), 1.0),
    Call("appliance list", ("appliance", "list"), 1.0),
    Call("clean", ("clean",), 1.0),
)  # fmt: skip
"""Every verb, and those that load on every rig that needs no machine of somebody else's."""


class Runs:
    """Calls virtune with a store, a scratch directory and a temporary directory of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.temporary, self.scratch, self.store = home / "t", home / "scratch", home / "store.sqlite"
        self.temporary.mkdir()
        self.env = dict(os.environ) | {"TMPDIR": str(self.temporary), "NO_COLOR": "1"}
        self.mark = f"TMPDIR={self.temporary}".encode()

    def words(self, call: Call) -> list[str]:
        """The command line of a call."""
        captures = ROOT / "tests" / "captures"
        places = {"home": self.home, "captures": captures, "fio": captures / "fio"}
        words = [word.format(**places) for word in call.words]
        if call.loads:
            words += ["--scratch", str(self.scratch), "--span", "64M"]
        if call.words[0] == "clean":
            words += ["--scratch", str(self.scratch)]
        return [*words, "--store", str(self.store)] if call.stores else words

    def start(
        self, words: Sequence[str], *, before: str = "", env: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        """Start virtune; `before` is what its shell does first, ulimits say."""
        argv = [sys.executable, "-m", "virtune", *words]
        if before:
            argv = ["bash", "-c", f'{before}; exec "$@"', "sh", *argv]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            argv, env=self.env if env is None else env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe
        )

    def run(self, *words: str, ok: tuple[int, ...] = (0,)) -> str:
        """Run it to its end and return what it said."""
        child = self.start(words)
        out, err = child.communicate(timeout=600)
        said = (out + err).decode(errors="replace")
        assert "Traceback" not in said, said
        assert child.returncode in ok, (words, child.returncode, said)
        return said

    def processes(self) -> list[str]:
        """Every process that runs of ours started, found by the directory that they were given."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                variables = (entry / "environ").read_bytes().split(b"\0") if entry.name.isdigit() else []
                if self.mark in variables:
                    found.append(f"{entry.name} {(entry / 'comm').read_text().strip()}")
        return found

    def remains(self) -> list[str]:
        """What a run that is over left: processes, and directories with its sockets."""
        return [*self.processes(), *(path.name for path in self.temporary.iterdir())]

    def wait_for_nothing(self) -> tuple[float, list[str]]:
        """Wait until nothing is left, for as long as the guard may take; return how long it took and what stayed."""
        begun = time.monotonic()
        while self.remains() and time.monotonic() - begun < PATIENCE_SECONDS:
            time.sleep(0.02)
        return time.monotonic() - begun, self.remains()

    def kept(self) -> int:
        """How many trials the store holds; raises AssertionError for one that is damaged."""
        if not self.store.exists():
            return 0
        with contextlib.closing(sqlite3.connect(self.store)) as db:
            assert db.execute("pragma integrity_check").fetchone() == ("ok",)
            assert db.execute("pragma foreign_key_check").fetchone() is None
            tables = {name for (name,) in db.execute("select name from sqlite_master")}
            return int(db.execute("select count(*) from trials").fetchone()[0]) if "trials" in tables else 0

    def fill(self) -> None:
        """Put studies of an earlier virtune into the store, so that there is something to show."""
        packed = ROOT / "tests" / "store" / "data" / "format-1-method-7.sqlite.gz"
        self.store.write_bytes(gzip.decompress(packed.read_bytes()))
