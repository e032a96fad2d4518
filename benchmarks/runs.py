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
from typing import Any, Protocol

import psycopg
from tests.libvirt.inside import inside
from tests.libvirt.tiny import UP, boot_tiny
from tests.libvirtd import libvirtd, plain
from tests.postgres import Server, server

from benchmarks.fleet_stub import record
from benchmarks.many import name_of
from virtune.model.errors import DatabaseUrl, StorePlace
from virtune.report.json.listing import LIST

ROOT = Path(__file__).parents[1]
PATIENCE_SECONDS = 15.0
"""How long the guard may take to remove what a run left; it takes 0.1 s and, where all are deaf, some 5 s."""

KEPT = "20261122-184255-3883"
"""A comparison that is in the store from the beginning."""

SWEPT_LATER = (".virtune-run-", "virtune-run-ask-")
"""Directories that have no guard: of a run that was killed while it made its own, which the first `clean` or run a
minute later removes, and of a question to QEMU, which the next one removes."""

_JOURNAL = ("--journal", "{home}/changes")
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
    domain: str = ""
    """The running libvirt domain of somebody's that it is about."""
    undo: tuple[str, ...] = ()
    """What is called after it was killed, so that the domain is as it was before."""
    fresh: str = ""
    """Where it writes what it must have whole when it is called again: a new store, `file` or `database`."""


def _compare(name: str, rig: str, seconds: float, share: int, *more: str) -> Call:
    words = ("compare", "--rig", rig, "--arm", "a:", "--arm", "b:disk.aio=native", *more, *_SHORT)
    domain = "guest1" if "{uri}" in more else ""
    return Call(f"compare {name}", words, seconds, loads=True, stores=True, share=share, domain=domain)


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
    _compare("simulated, PostgreSQL", "simulated", 2, 6, "--store", "{postgres}"),
    Call("derive, PostgreSQL", ("derive", "--store", "{postgres}"), 3.0, share=4),
    Call("import of a bundle", ("import", "{home}/b.zip", "--store", "{fresh}"), 1.5, fresh="file", share=8),
    Call("import of a bundle, PostgreSQL", ("import", "{home}/b.zip", "--store", "{fresh}"), 1.5, fresh="database",
         share=8),
    Call("fleet run", ("fleet", "run", "-i", "{hosts}/hosts", "-q", "--store", "{fresh}", "check"), 4.0, fresh="file",
         share=8),
    Call("fleet gather", ("fleet", "gather", "-i", "{hosts}/hosts", "-q", "--store", "{fresh}"), 2.0, fresh="file",
         share=8),
    Call("fleet gather, PostgreSQL", ("fleet", "gather", "-i", "{hosts}/hosts", "-q", "--store", "{fresh}"), 2.0,
         fresh="database", share=8),
    Call("apply --restart", ("apply", "tiny", "--connect", "{uri}", "--set", "disk.cache@vda=none", "--yes",
                             "--restart", "--healthy", f"console:^{UP}$", "--timeout", "20", *_JOURNAL), 8,
         domain="tiny", undo=("undo", "--restart", *_JOURNAL), share=12),
    Call("apply --replug", ("apply", "guest1", "--connect", "{uri}", "--set", "disk.aio@vdb=io_uring", "--yes",
                            "--replug", "vdb", "--timeout", "20", *_JOURNAL), 5,
         domain="guest1", undo=("undo", "--replug", *_JOURNAL), share=12),
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
        self.server: Server | None = None
        self._domain: Callable[[str], str] | None = None
        self._fresh = 0
        self.env = dict(os.environ) | {
            "TMPDIR": str(self.temporary),
            "NO_COLOR": "1",
            "XDG_DATA_HOME": f"{home}/data",
            "PATH": f"{home}/hosts:{os.environ['PATH']}",  # its `ssh` replays what hosts said
        }
        self.mark = f"TMPDIR={self.temporary}".encode()

    def words(self, call: Call, fresh: StorePlace | None = None) -> list[str]:
        """The command line of a call; `fresh` is its new store."""
        captures = ROOT / "tests" / "captures"
        places = {"home": self.home, "captures": captures, "fio": captures / "fio", "uri": self.uri, "fresh": fresh,
                  "hosts": self.home / "hosts"}  # fmt: skip
        if self.server is not None:
            places["postgres"] = self.server.url("kept")
        words = [word.format(**places) for word in call.words]
        if call.loads:
            words += ["--scratch", str(self.scratch), "--span", "64M"]
        if call.words[0] == "clean":
            words += ["--scratch", str(self.scratch)]
        return [*words, "--store", str(self.store)] if call.stores and "--store" not in words else words

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

    def new_store(self, kind: str) -> StorePlace:
        """A store for one call, which is made when it is first written."""
        self._fresh += 1
        if kind == "file":
            return self.home / f"fresh-{self._fresh}.sqlite"
        assert self.server is not None
        return self.server.new_database("fresh")

    def kept(self) -> int:
        """How many trials the stores hold; raises AssertionError for one that is damaged."""
        return self.trials_in(self.store) + (self.trials_in(self.server.url("kept")) if self.server else 0)

    def trials_in(self, store: StorePlace) -> int:
        """How many trials a store holds; raises AssertionError where it is damaged or still used."""
        if isinstance(store, DatabaseUrl):
            with psycopg.connect(store.text) as server:
                others = "select count(*) from pg_stat_activity where application_name = 'virtune'"
                deadline = time.monotonic() + PATIENCE_SECONDS
                while (left := server.execute(others).fetchone()) != (0,):
                    assert time.monotonic() < deadline, f"{left} connections were left"
                    time.sleep(0.05)
                assert server.execute("select count(*) from pg_locks where locktype = 'advisory'").fetchone() == (0,)
                there = server.execute("select to_regclass('virtune.trials')").fetchone() != (None,)
                return _count(server.execute("select count(*) from virtune.trials").fetchone()) if there else 0
        if not store.exists():
            return 0
        with contextlib.closing(sqlite3.connect(store)) as db:
            assert db.execute("pragma integrity_check").fetchone() == ("ok",)
            assert db.execute("pragma foreign_key_check").fetchone() is None
            tables = {name for (name,) in db.execute("select name from sqlite_master")}
            return _count(db.execute("select count(*) from trials").fetchone()) if "trials" in tables else 0

    def fill(self) -> None:
        """Put studies of an earlier virtune into the store, to have something to show; one is in a bundle."""
        packed = ROOT / "tests" / "store" / "data" / "older-method.sqlite.gz"
        self.store.write_bytes(gzip.decompress(packed.read_bytes()))
        self.run("show", "export", KEPT, "--bundle", str(self.home / "b.zip"), "--store", str(self.store))

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

    def with_hosts(self) -> None:
        """Have a fleet of four hosts, as far as an `ssh` goes that replays what they said."""
        (place := self.home / "hosts").mkdir()
        record(place, 4, 6)
        for host in (place / "hosts").read_text().split():
            study = name_of(0, int(host.removeprefix("host")))
            (place / f"{host}.list").write_text(f'{{"schema": "{LIST}", "studies": [{{"id": "{study}"}}]}}')
        ssh = place / "ssh"
        listed = 'case $* in\n*"list --json"*) cat "$place/$host.list" ;;\n'
        ssh.write_text(ssh.read_text().replace("case $* in\n", listed))

    @contextlib.contextmanager
    def with_server(self) -> Iterator[None]:
        """Start a PostgreSQL server with a store that holds studies."""
        with server() as self.server:
            self.server.new_database("kept")
            self.run("explain", "import", str(self.home / "b.zip"), "--store", self.server.url("kept").text)
            yield

    @contextlib.contextmanager
    def with_domains(self) -> Iterator[None]:
        """Boot domains by a libvirtd of our own: `guest1`, somebody's VM that virtune measures in, with a disk `vdb`
        to spare, and `tiny`, which is powered off and on in a second.
        """
        # QEMU's monitor socket lies below it, and a socket's path may have 107 characters
        home = Path(tempfile.mkdtemp(prefix="lv", dir="/tmp"))
        try:
            with libvirtd(home) as daemon, inside(daemon, "guest1"):
                (spare := home / "spare.raw").write_bytes(bytes(4 * 1024**2))
                daemon.virsh("attach-disk", "guest1", str(spare), "vdb", "--driver", "qemu", "--subdriver", "raw",
                             "--cache", "writeback", "--live", "--config")  # fmt: skip
                boot_tiny(daemon, "tiny")
                self.uri = daemon.uri
                # a restart gives all that lives another number
                self._domain = lambda name: "\n".join(
                    (
                        daemon.xml(name),
                        daemon.virsh("domstate", name),
                        *(one for one in plain(daemon.xml(name, live=True)) if name != "tiny" or "<driver" in one),
                    )
                )
                yield
        finally:
            shutil.rmtree(home, ignore_errors=True)

    def domain_as_it_is(self, name: str) -> str:
        """The inactive configuration of a domain, its state, and the live one without what is numbered anew."""
        assert self._domain is not None
        return self._domain(name)


def _count(row: tuple[Any, ...] | None) -> int:
    assert row is not None
    return int(row[0])


def load_all() -> None:
    """Load all of virtune, so that a forked child need not."""
    import virtune

    for module in pkgutil.walk_packages(virtune.__path__, "virtune."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("scipy.special", "numpy"):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a child's collector need not touch, and so copy, what was there before it


class Child(Protocol):
    """A virtune that runs."""

    def wait(self, timeout: float) -> int: ...

    def said(self) -> str: ...


class Start(Protocol):
    """A way to start virtune."""

    def __call__(self, runs: Runs, words: Sequence[str]) -> Child: ...
