# SPDX-License-Identifier: Apache-2.0
"""A fleet from nothing to its answer and back: install, probe, run, gather, report, remove; the odd host is named.

Four hosts on one real disk, of which `c` may read from it only a sixteenth as often: its control group says so, as
an administrator's limit would. All are measured by fio, and their studies are gathered into PostgreSQL.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.fleet.installed import MARK, made, older, places
from tests.fleet.machines import SOURCE, Machine, Machines, machines
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
"""The hosts that get their virtune by an install, once for all tests here."""

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


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Four hosts: `a` and `d` have this virtune already, and of the two without one `b` is given an older one."""
    place = tmp_path_factory.mktemp("chain")
    with machines(place, *READS, reads=READS) as found:
        for name in BARE:
            (found.by_name[name].place / "bin" / "virtune").unlink()
        (place / "hosts").write_text("".join(f"{name} shares=disk\n" for name in READS))
        older(found.by_name["b"])
        yield found


def inventory(fleet: Machines) -> list[str]:
    """The options that name the hosts."""
    return ["-i", str(fleet.place / "hosts"), "--ssh-config", str(fleet.config)]


@pytest.fixture(scope="module")
def installed(fleet: Machines, tmp_path_factory: pytest.TempPathFactory) -> Document:
    """What an install says that replaces an older version on `b`, without a network: in place for all tests here."""
    wheels = str(make_wheelhouse(tmp_path_factory.mktemp("wheels")))
    bare = [word for name in BARE for word in ("--host", name)]
    asked = ["fleet", "install", "--json", *inventory(fleet), *bare, "--wheelhouse", wheels, "--upgrade"]
    command = [sys.executable, "-P", "-m", "virtune", *asked, "--", *places(fleet)]
    env = os.environ | {"PYTHONPATH": str(SOURCE), "XDG_DATA_HOME": str(fleet.place / "home")}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-1500:]
    found: Document = json.loads(done.stdout)
    return found


@pytest.fixture
def chain(
    fleet: Machines, installed: Document, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Chain:
    """The verbs of the fleet, on hosts that all have this virtune."""
    assert len(installed["hosts"]) == len(BARE)
    monkeypatch.setenv("XDG_DATA_HOME", str(fleet.place / "home"))
    return Chain(fleet, inventory(fleet), capfd)


def test_it_is_installed_without_a_network_and_in_place_of_an_older_version(
    fleet: Machines, installed: Document
) -> None:
    assert complaints("fleet-install", installed) == []
    assert [tuple(one.values()) for one in installed["hosts"]] == [
        ("b", "installed", "0.0.9", __version__),
        ("c", "installed", None, __version__),
    ]
    b = fleet.by_name["b"]
    assert made(b) == ["0.0.9", __version__, MARK, "previous"]
    assert command_of(b).resolve() == b.place / "opt" / __version__ / "bin" / "virtune"


def test_four_hosts_are_measured_and_the_odd_one_is_named_with_its_reason(chain: Chain) -> None:
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


def gathered_once(chain: Chain, url: str, tasks: list[Document]) -> None:
    """What a run has brought here is what the host has, and is brought no second time."""
    (study,) = [one["study"] for one in tasks if one["host"] == "a"]
    there = chain.fleet.by_name["a"].place / "data" / "virtune" / "virtune.sqlite"
    with Store(there, reading=True) as theirs, Store(DatabaseUrl(url), reading=True, host="a") as ours:
        assert ours.get(study) == theirs.get(study)
    gathered = chain.says("gather", *chain.hosts, "--host", "a", "--store", url)
    assert gathered["hosts"][0]["studies"] == []


def test_the_older_version_comes_back_and_what_is_in_use_is_not_removed(chain: Chain) -> None:
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
    assert command_of(b).resolve() == b.place / "opt" / "0.0.9" / "bin" / "virtune"
    assert [tuple(one.values()) for one in found["hosts"]] == [("c", "remove", __version__, None)]
    assert made(c) == []
    assert not (c.place / "bin" / "virtune").is_symlink()


def command_of(machine: Machine) -> Path:
    """What its users and the fleet call."""
    return machine.place / "bin" / "virtune"


@contextlib.contextmanager
def running(program: Path) -> Iterator[None]:
    """Have a program run."""
    with subprocess.Popen([program, "600"]) as process:
        try:
            yield
        finally:
            process.kill()
