# SPDX-License-Identifier: Apache-2.0
"""Audits of several hosts over real ssh, and every way in which a host can fail."""

import contextlib
import json
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import eventually
from tests.fleet.machines import Machines, machines
from tests.flows.hostile_bundles import little_memory, of_small_values, of_zeros
from tests.guide import EXAMPLES
from tests.published import complaints

from virtune import __version__
from virtune.cli import run
from virtune.flows.stored.import_bundle import rows_bundle
from virtune.store.store import Store

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("fleet")]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Three hosts: `a` and `b` alike but for their VMs, `c` with another virtune."""
    with machines(tmp_path_factory.mktemp("fleet"), "a", "b", "c") as found:
        vm = (EXAMPLES / "web1.xml").read_text()
        for name in ("a", "b"):
            vms = found.by_name[name].var / "vms"
            vms.mkdir()
            (vms / "web1.xml").write_text(vm if name == "a" else vm.replace("cache='unsafe'", "cache='none'"))
        (found.by_name["b"].var / "vms" / "broken.xml").write_text("<domain><name>x</name>")
        old = found.by_name["c"].place / "bin" / "virtune"
        old.unlink()
        old.write_text("#!/bin/sh\necho virtune, version 0.0.9\n")
        old.chmod(0o755)
        yield found


def test_an_audit_shows_which_rule_found_what_on_which_host(
    fleet: Machines, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = ["fleet", "audit", "--ssh-config", str(fleet.config), "--host", "a", "--host", "b", "/var/tmp/vms"]
    page = tmp_path / "audit.html"
    assert run([*asked, "--json", "--html", str(page)]) == 4
    found = json.loads(capfd.readouterr().out)
    assert complaints("fleet-audit", found) == []
    assert [one["domains"][0]["domain"] for one in found["hosts"]] == ["a/web1", "b/web1"]
    rules = {one["rule"]: one for one in found["rules"]}
    unsafe = [one for one in rules.values() if one["hosts"] == ["a"]]
    assert unsafe, "only a has cache=unsafe"
    assert unsafe[0]["without"] == ["b"]
    assert any(one["hosts"] == ["a", "b"] for one in rules.values())
    assert found["hosts"][1]["unread"][0]["origin"] == "b: /var/tmp/vms/broken.xml"
    text = page.read_text()
    assert "audit of 2 hosts" in text
    assert "a/web1" in text
    assert "2 of 2 answered" in text
    assert '<figure id="rules-by-hosts"' in text
    assert "facts that differ between hosts" in text
    both = (fleet.by_name["a"], fleet.by_name["b"])
    assert eventually(lambda: not any(one.sessions() for one in both), seconds=60), "a connection is left open"
    assert not [kept for one in both for kept in (one.place / "data").iterdir()], "an audit of files keeps nothing"


def test_every_failure_is_one_line_and_concerns_its_host_only(
    fleet: Machines, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "hosts").write_text("a\ntwin\nwrongkey\nnewkey\nstranger\nc\ndown ssh=b\n")
    fleet.by_name["b"].link("down")
    try:
        words = ["-i", str(tmp_path / "hosts"), "--ssh-config", str(fleet.config), "--fail-on", "never"]
        assert run(["fleet", "audit", *words, "/var/tmp/vms"]) == 1
    finally:
        fleet.by_name["b"].link("up")
    out = capfd.readouterr().out
    said = {line.split(": ")[1]: line for line in out.splitlines() if line.startswith("failed: ")}
    assert "calls itself 'a', as a does: one host twice, or two hosts of one name" in said["twin"]
    assert "its host key is not the one in known_hosts" in said["wrongkey"]
    assert f"its host key is not known (`ssh -F {fleet.config} newkey` once shows it and asks" in said["newkey"]
    assert "ssh is not let in without a question (add your key there; ssh-agent has to hold one" in said["stranger"]
    assert f"has virtune 0.0.9, and this is {__version__}" in said["c"]
    assert "it does not answer" in said["down"]
    assert "a/web1" in out
    assert out.splitlines()[-1] == "1 host answered, 6 failed"


def test_a_connection_that_is_cut_is_noticed_and_a_missing_virtune_is_named(
    fleet: Machines, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    slow, begun = tmp_path / "slow", tmp_path / "begun"
    version = f'[ "$1" != --version ] || exec echo virtune, version {__version__}'
    slow.write_text(f"#!/bin/sh\n{version}\necho $$ >> {begun}\nexec sleep 600\n")
    slow.chmod(0o755)
    asked = ["fleet", "probe", "--ssh-config", str(fleet.config), "--host", "c"]

    def cut() -> None:
        if eventually(begun.exists, seconds=60):
            for pid in fleet.by_name["c"].sessions():
                os.kill(pid, 9)

    cutter = threading.Thread(target=cut)
    cutter.start()
    try:
        assert run([*asked, "--virtune", str(slow)]) == 1
    finally:
        cutter.join()
    assert "failed: c: the connection was lost" in capfd.readouterr().out
    assert run([*asked, "--virtune", str(slow), "--timeout", "200ms"]) == 1
    assert "failed: c: no end after 0.2 s" in capfd.readouterr().out
    for pid in begun.read_text().split():  # what a cut connection leaves on a host goes on there
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), 9)
    assert run([*asked, "--virtune", "/nowhere/virtune"]) == 1
    said = capfd.readouterr().out
    assert "`/nowhere/virtune` is not installed there" in said
    assert "(`virtune fleet install` brings it there;" in said
    slow.write_text(f"#!/bin/sh\n{version}\nprintf 'error: it broke\\n\\nhint: mend it\\n' >&2; exit 3\n")
    assert run([*asked, "--virtune", str(slow)]) == 1
    assert "failed: c: it broke (mend it)" in capfd.readouterr().out


HOSTILE = """#!/bin/sh
case "$1 $2" in
"--version ") echo virtune, version {version} ;;
"list --json") echo '{{"schema": "virtune/list/2", "studies": [{{"id": "{study}"}}], "damaged": []}}' ;;
*) cat {bundle} ;;
esac
"""


def test_a_bundle_of_a_hostile_host_costs_that_host_and_little_memory(
    fleet: Machines, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    there = fleet.by_name["a"].place / "data" / "virtune" / "virtune.sqlite"
    words = ["--arm", "a:rig=simulated", "--arm", "b:rig=simulated,disk.aio=io_uring", "--rounds", "2", "--quiet"]
    assert run(["compare", *words, "--scratch", str(tmp_path), "--store", str(there)]) == 0
    with Store(there, reading=True) as store:
        study = store.find("last")
        good = rows_bundle(store, study)
    for number, (name, made) in enumerate((("b", of_zeros), ("c", of_small_values))):
        bundle, program = tmp_path / f"{name}.zip", fleet.by_name[name].place / "bin" / "virtune"
        bundle.write_bytes(made(good, random.Random(number)))
        program.unlink()
        program.write_text(HOSTILE.format(version=__version__, study=study, bundle=bundle))
        program.chmod(0o755)
    hosts = [word for name in "abc" for word in ("--host", name)]
    asked = ["fleet", "gather", "--ssh-config", str(fleet.config), *hosts, "--store", str(tmp_path / "all.sqlite")]
    capfd.readouterr()
    with little_memory():
        assert run([*asked, "--json"]) == 1
    found = json.loads(capfd.readouterr().out)
    assert [one["name"] for one in found["hosts"]] == ["a"]
    assert {one["name"] for one in found["failed"]} == {"b", "c"}
    assert all("is not a bundle that can be imported" in one["because"] for one in found["failed"])
    with Store(tmp_path / "all.sqlite", reading=True) as store, Store(there, reading=True) as theirs:
        assert store.hosts() == ("a",)
        assert store.find(study) == study
        assert store.get(study) == theirs.get(study)
