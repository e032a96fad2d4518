# SPDX-License-Identifier: Apache-2.0
"""virtune called as its users call it, in a place of its own, and a look at what it left there."""

import contextlib
import gc
import gzip
import importlib
import os
import pkgutil
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).parents[1]
PATIENCE_SECONDS = 15.0
"""How long the guard may take to remove what a run left; it takes 0.1 s and, where all are deaf, some 5 s."""

KEPT = "20261122-184255-3883"
"""A comparison that is in the store from the beginning."""

SWEPT_LATER = (".virtune-run-", "virtune-run-ask-")
"""Directories that have no guard: of a run that was killed while it made its own, which the first `clean` or run a
minute later removes, and of a question to QEMU, which the next one removes."""

_SHORT = ("--rounds", "2", "--seconds", "0.5", "--ramp", "0.1", "-q")


@dataclass(frozen=True)
class Call:
    """One verb as it is called, and about how long it takes on an idle machine. `loads` are those with a scratch."""

    name: str
    words: tuple[str, ...]
    seconds: float
    loads: bool = False
    stores: bool = False
    share: int = 3
    """How many of 300 calls are of this kind."""
    domain: bool = False
    """Whether it needs a running libvirt domain of somebody's."""


def _compare(name: str, rig: str, seconds: float, share: int, *more: str) -> Call:
    words = ("compare", "--rig", rig, "--arm", "a:", "--arm", "b:disk.aio=native", *more, *_SHORT)
    return Call(f"compare {name}", words, seconds, loads=True, stores=True, share=share, domain="{uri}" in more)


CALLS = (
    _compare("nbd", "storage-daemon", 6, 30),
    _compare("fuse", "storage-daemon", 6, 15, "--set", "disk.export=fuse"),
    _compare("qcow2", "storage-daemon", 6, 15, "--set", "disk.format=qcow2"),
    _compare("vhost-user", "vhost-user", 6, 30),
    _compare("qemu", "qemu", 20, 12),
    _compare("libvirt", "libvirt:guest1", 20, 12, "--connect", "{uri}"),
    _compare("simulated", "simulated", 1.5, 30),
    Call("measure metal", ("measure", "--rig", "metal", "--workload", "rw=randread,bs=4k,iodepth=8", *_SHORT), 4,
         loads=True, stores=True, share=48),
    Call("study run", ("study", "run", "fio-engines", "--quick", "-q"), 60, loads=True, stores=True, share=6),
    Call("tune", ("tune", "--vary", "disk.aio=threads,native,io_uring", "--budget", "3m", "-q"), 30,
         loads=True, stores=True, share=12),
    Call("tune simulated", ("tune", "--rig", "simulated", "--vary", "disk.aio=threads,native,io_uring", "-q"), 8,
         loads=True, stores=True, share=12),
    Call("sweep", ("sweep", "--rig", "vhost-user", "--loads", "30%,90%", "--rounds", "2", "--seconds", "0.5"), 12,
         loads=True, stores=True, share=12),
    Call("compare --check-data", ("compare", "--rig", "vhost-user", "--check-data", "--arm", "a:", "--arm",
                                  "b:disk.aio=native", *_SHORT), 8, loads=True, stores=True, share=12),
    Call("diagnose --run", ("diagnose", "--run", KEPT), 2.0, stores=True),
    Call("serve", ("serve", "--port", "0"), 3.0, stores=True, share=6),
    Call("derive", ("derive",), 3.0, stores=True, share=6),
    Call("export --bundle", ("export", KEPT, "--bundle", "-"), 2.0, stores=True, share=6),
    Call("check", ("check", "--seconds", "10s", "-q"), 12, loads=True, stores=True, share=10),
    Call("resume", ("resume", "-q"), 6, stores=True, share=12),
    Call("import", ("import", "{fio}/plain.json", "--quiet"), 1.5, stores=True, share=8),
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
        self.uri = ""
        self._domain: Callable[[], tuple[str, str]] | None = None
        self.env = dict(os.environ) | {
            "TMPDIR": str(self.temporary),
            "NO_COLOR": "1",
            "XDG_DATA_HOME": f"{home}/data",
        }
        self.mark = f"TMPDIR={self.temporary}".encode()

    def words(self, call: Call) -> list[str]:
        """The command line of a call."""
        captures = ROOT / "tests" / "captures"
        places = {"home": self.home, "captures": captures, "fio": captures / "fio", "uri": self.uri}
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
        """What a run that is over left: processes, directories with its sockets, mounts and loop devices."""
        home = str(self.home)
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if home in line]
        backing = Path("/sys/block").glob("loop*/loop/backing_file")
        loops = [path.parts[3] for path in backing if home in path.read_text()]
        files = (path.name for path in self.temporary.iterdir() if not path.name.startswith(SWEPT_LATER))
        return [*self.processes(), *files, *mounts, *loops]

    def litter(self) -> list[str]:
        """Files in the scratch directory that are neither an image with its witness nor the lock."""
        found = {path.name for path in self.scratch.iterdir()} if self.scratch.is_dir() else set()
        whole = {name for name in found if f"{name}.virtune.json" in found}
        return sorted(found - whole - {f"{name}.virtune.json" for name in whole} - {"virtune.lock"})

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
        packed = ROOT / "tests" / "store" / "data" / "older-method.sqlite.gz"
        self.store.write_bytes(gzip.decompress(packed.read_bytes()))

    def unfinished(self) -> bool:
        """Whether the newest study has trials left."""
        with contextlib.closing(sqlite3.connect(self.store)) as db:
            newest = db.execute("select finished from studies order by rowid desc limit 1").fetchone()
            return newest is not None and not newest[0]

    def fork_and_wait(self, start: "Start", *words: str, ok: tuple[int, ...] = (0, 1)) -> str:
        """Run a command line to its end, begun by `start`; return what it said."""
        child = start(self, words)
        code = child.wait(600)
        said = child.said()
        assert "Traceback" not in said, said
        assert code in ok, (words, code, said)
        return said

    def load_all(self) -> None:
        """Load all of virtune, so that a forked child need not."""
        import virtune

        for module in pkgutil.walk_packages(virtune.__path__, "virtune."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
        for name in ("scipy.special", "numpy"):
            importlib.import_module(name)
        gc.collect()
        gc.freeze()  # a child's collector need not touch, and so copy, what was there before it

    @contextlib.contextmanager
    def with_domain(self) -> Iterator[None]:
        """Boot a libvirt domain `guest1` by a libvirtd of our own, as somebody's VM that virtune measures in."""
        from tests.libvirt.inside import inside
        from tests.libvirtd import libvirtd

        # QEMU's monitor socket lies below it, and a socket's path may have 107 characters
        home = Path(tempfile.mkdtemp(prefix="lv", dir="/tmp"))
        try:
            with libvirtd(home) as daemon, inside(daemon, "guest1") as guest:
                self.uri, self._domain = daemon.uri, guest.configurations
                yield
        finally:
            shutil.rmtree(home, ignore_errors=True)

    def domain_as_it_is(self) -> str:
        """The live and the inactive configuration of the domain."""
        assert self._domain is not None
        return "\n".join(self._domain())


class Child(Protocol):
    """A virtune that runs."""

    def wait(self, timeout: float) -> int: ...

    def said(self) -> str: ...


class Start(Protocol):
    """A way to start virtune."""

    def __call__(self, runs: Runs, words: Sequence[str]) -> Child: ...
