# SPDX-License-Identifier: Apache-2.0
"""A fleet from nothing to its answer: install, probe, run, gather, report; the host that was planted odd is named.

Four hosts on one real disk, of which `c` may read from it only a sixteenth as often: its control group says so, as
an administrator's limit would. All are measured by fio, and their studies are gathered into PostgreSQL.
"""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.fleet.installed import MARK, made, older, places
from tests.fleet.machines import Machines, machines
from tests.fleet.wheels import make_wheelhouse
from tests.postgres import server
from tests.published import complaints

from virtune import __version__
from virtune.cli import run
from virtune.model.errors import DatabaseUrl
from virtune.store.store import Store

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("fleet")]

READS = {"a": 800, "b": 800, "c": 50, "d": 800}
"""How often a second each host may read: far less than the disk and a busy CPU can, so that the figures are known.

Three are alike: by how far two differ on a busy machine, a third of theirs is not surely odd."""

BARE = ("b", "c")
"""The hosts that get their virtune by an install, which costs more than all else here."""

STUDY = ["measure", "--rig", "metal", "--workload", "rw=randread,bs=4k,iodepth=8", "--rounds", "6",
         "--seconds", "300ms", "--ramp", "0", "--attempts", "1", "--span", "8M"]  # fmt: skip
Document = dict[str, Any]


@dataclass
class Chain:
    """The fleet, and how its verbs are called."""

    fleet: Machines
    hosts: list[str]
    capfd: pytest.CaptureFixture[str]

    def says(self, verb: str, *words: str, status: int = 0) -> Document:
        """Return the document of a verb."""
        self.capfd.readouterr()
        assert run(["fleet", verb, "--json", *words]) == status, self.capfd.readouterr().out[-1500:]
        found: Document = json.loads(self.capfd.readouterr().out)
        assert complaints(f"fleet-{verb}", found) == []
        return found


@pytest.fixture
def chain(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Chain]:
    """Four hosts: `a` and `d` have this virtune already, and of the two without one `b` is given an older one."""
    place = tmp_path_factory.mktemp("chain")
    monkeypatch.setenv("XDG_DATA_HOME", str(place / "home"))
    with machines(place, *READS, reads=READS) as fleet:
        for name in BARE:
            (fleet.by_name[name].place / "bin" / "virtune").unlink()
        (place / "hosts").write_text("".join(f"{name} shares=disk\n" for name in READS))
        yield Chain(fleet, ["-i", str(place / "hosts"), "--ssh-config", str(fleet.config)], capfd)


def test_four_hosts_from_nothing_to_the_odd_one_and_its_reason(chain: Chain, tmp_path: Path) -> None:
    wheels, b = make_wheelhouse(tmp_path), chain.fleet.by_name["b"]
    command = older(b)
    install_everywhere(chain, wheels, command)
    facts = chain.says("probe", *chain.hosts)
    assert [one["calls_itself"] for one in facts["hosts"]] == list(READS)
    assert facts["hosts"][0]["facts"]["kernel.release"] == os.uname().release
    assert not [one for one in facts["differences"] if one["key"].startswith("kernel.")], "one machine, one kernel"
    with server() as database:
        store = ["--store", database.new_database("fleet").text]
        found = chain.says("run", *chain.hosts, *store, *STUDY)
        assert {one["host"]: one["state"] for one in found["tasks"]} == dict.fromkeys(READS, "finished")
        gathered_once(chain, store[1], found["tasks"])
        (level,) = chain.says("report", *store)["levels"]
        assert [one["host"] for one in level["hosts"] if one["odd"]] == ["c"], json.dumps(level["hosts"])
        assert level["ranks"][-1]["host"] == "c"
        reasons = {one["key"]: (one["value"], one["usual"]) for one in level["traits"]}
        value, usual = reasons["limits.io"]
        assert ("=50" in value, "=800" in usual) == (True, True)
        assert run(["fleet", "report", *store]) == 0
        assert "odd: c is -" in chain.capfd.readouterr().out
    take_it_away(chain, command)


def install_everywhere(chain: Chain, wheels: Path, command: Path) -> None:
    """Install on hosts without a network, and replace an older version there."""
    bare = [word for name in BARE for word in ("--host", name)]
    asked = ["install", *chain.hosts, *bare, "--wheelhouse", str(wheels), "--upgrade", "--", *places(chain.fleet)]
    assert [tuple(one.values()) for one in chain.says(*asked)["hosts"]] == [
        ("b", "installed", "0.0.9", __version__),
        ("c", "installed", None, __version__),
    ]
    b = chain.fleet.by_name["b"]
    assert made(b) == ["0.0.9", __version__, MARK, "previous"]
    assert command.resolve() == b.place / "opt" / __version__ / "bin" / "virtune"


def gathered_once(chain: Chain, url: str, tasks: list[Document]) -> None:
    """What a run has brought here is what the host has, and is brought no second time."""
    (study,) = [one["study"] for one in tasks if one["host"] == "a"]
    there = chain.fleet.by_name["a"].place / "data" / "virtune" / "virtune.sqlite"
    with Store(there, reading=True) as theirs, Store(DatabaseUrl(url), reading=True, host="a") as ours:
        assert ours.get(study) == theirs.get(study)
    gathered = chain.says("gather", *chain.hosts, "--host", "a", "--store", url)
    assert gathered["hosts"][0]["studies"] == []


def take_it_away(chain: Chain, command: Path) -> None:
    """The older version comes back, and is replaced only when that is asked; what is in use is not removed."""
    b, c = (chain.fleet.by_name[name] for name in BARE)
    asked = ["install", *chain.hosts, "--host", "b"]
    told = ["--", *places(chain.fleet)]
    (done,) = chain.says(*asked, "--back", *told)["hosts"]
    assert tuple(done.values()) == ("b", "back", __version__, "0.0.9")
    assert made(b) == ["0.0.9", MARK]
    asked += ["--host", "c"]
    found = chain.says(*asked, *told, status=1)
    hint = "--upgrade replaces it, and --back puts it back"
    assert found["failed"] == [{"name": "b", "because": "has virtune 0.0.9 already", "hint": hint}]
    assert [tuple(one.values()) for one in found["hosts"]] == [("c", "kept", __version__, __version__)]
    program = b.place / "opt" / "0.0.9" / "bin" / "sleep"
    shutil.copy("/bin/sleep", program)
    with running(program):  # as a study does
        found = chain.says(*asked, "--remove", *told, status=1)
    assert [one["because"] for one in found["failed"]] == ["its virtune is running"]
    assert made(b) == ["0.0.9", MARK]
    assert command.resolve() == b.place / "opt" / "0.0.9" / "bin" / "virtune"
    assert [tuple(one.values()) for one in found["hosts"]] == [("c", "remove", __version__, None)]
    assert made(c) == []
    assert not (c.place / "bin" / "virtune").is_symlink()


@contextlib.contextmanager
def running(program: Path) -> Iterator[None]:
    """Have a program run."""
    with subprocess.Popen([program, "600"]) as process:
        try:
            yield
        finally:
            process.kill()
