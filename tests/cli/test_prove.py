# SPDX-License-Identifier: Apache-2.0
"""`virtune diagnose --prove`: a planted limit is confirmed, one that is none is refuted, and noise decides nothing.

The limit is a throttle of the simulated rig, which does 36k IOPS without one.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.published import schema

from virtune.cli import run
from virtune.flows.run.prove import untested
from virtune.model.bottleneck import Bottleneck, Cause, DataPath, Diagnosis
from virtune.model.stack import Device, Stack
from virtune.model.verdict import ProofOutcome, ProofReason

WORKLOAD = "rw=randread,bs=4k,iodepth=32"


class Called:
    """virtune in this process, with a store of its own."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home, self.capsys = home, capsys

    def __call__(self, *words: str, status: int = 0) -> str:
        found = run([*words, "--store", str(self.home / "store.sqlite")])
        said = self.capsys.readouterr()
        assert found == status, said.err
        return said.err if status else said.out

    def measure(self, *settings: str, rig: str = "simulated", workload: str = WORKLOAD) -> None:
        sets = [word for one in settings for word in ("--set", one)]
        words = ("--rounds", "3", "--seconds", "1", "--ramp", "0", "--seed", "1", "-q")
        place = ("--scratch", str(self.home / "scratch"))
        self("measure", "--rig", rig, *sets, "--workload", workload, *words, *place)

    def prove(self, *more: str, rounds: str = "30") -> Any:
        found = json.loads(self("diagnose", "--run", "last", "--prove", "--json", "--rounds", rounds, *SEED, *more))
        Draft202012Validator(schema("diagnose")).validate(found)
        (disk,) = found["disks"]
        return disk


SEED = ("--seed", "2", "-q")


@pytest.fixture
def virtune(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Called:
    return Called(tmp_path, capsys)


def test_a_planted_limit_is_confirmed_by_its_removal(virtune: Called) -> None:
    virtune.measure("disk.throttle_iops=5000")
    disk = virtune.prove()
    proof = disk["proof"]
    assert (disk["bottleneck"]["cause"], proof["outcome"], proof["reason"]) == ("throttle", "confirmed", "as-said")
    assert (proof["arm"], proof["metric"]) == ("no-limit", "iops")
    assert 6 < proof["change"]["low"] < 7.2 < proof["change"]["high"] < 9, "36k for 5k"
    assert proof["expected"] == {"ratio": 1.03, "falls": False, "share": None}
    study = json.loads(virtune("show", "last", "--json"))
    assert study["study"]["id"] == proof["study"]
    assert "is a limit that was set the limit of simulated?" in virtune("show", "last")
    assert [arm["name"] for arm in study["arms"]] == ["as-is", "no-limit"]
    assert study["comparisons"][0]["verdict"] == "better"


def test_the_verdict_is_kept_and_shown_again(virtune: Called) -> None:
    virtune.measure("disk.throttle_iops=5000")
    proof = virtune.prove()["proof"]
    verdict = "confirmed: limited by a limit that was set"
    shown = virtune("show", "last")
    assert verdict in shown
    assert f"replaced by {proof['replaced_by']}" in shown
    assert verdict in virtune("compare", "resume", "last", "-q"), "also by a proof that is gone on with"
    page = virtune.home / "proof.html"
    virtune("show", "report", "last", "-o", str(page))
    assert verdict in page.read_text()
    virtune.measure("disk.throttle_iops=5000")
    assert "confirmed" not in virtune("show", "last"), "any other study has none"


def test_a_limit_that_holds_nothing_back_is_refuted(virtune: Called) -> None:
    virtune.measure("disk.throttle_iops=38000")
    disk = virtune.prove(rounds="40")
    assert disk["bottleneck"]["cause"] == "throttle", "what was done is near the limit"
    assert (disk["proof"]["outcome"], disk["proof"]["reason"]) == ("refuted", "less-than-said")
    assert disk["proof"]["change"]["high"] < 1.03


def test_noise_decides_nothing(virtune: Called) -> None:
    virtune.measure("disk.throttle_iops=36000", rig="simulated:noisy")
    disk = virtune.prove(rounds="6")
    assert disk["bottleneck"]["cause"] == "throttle"
    assert (disk["proof"]["outcome"], disk["proof"]["reason"]) == ("undecided", "noise")
    assert disk["proof"]["change"]["low"] < 1.03 < disk["proof"]["change"]["high"]


def test_one_io_at_a_time_is_confirmed_by_more_of_them(virtune: Called) -> None:
    virtune.measure(workload="rw=randread,bs=4k,iodepth=1")
    disk = virtune.prove()
    proof = disk["proof"]
    assert (disk["bottleneck"]["cause"], proof["outcome"], proof["arm"]) == ("depth", "confirmed", "deeper")
    assert 2 < proof["change"]["low"] < proof["change"]["high"] < 4, "they wait for one another"
    study = json.loads(virtune("show", "last", "--json"))
    assert [arm["options"] for arm in study["arms"]] == [{}, {"iodepth": "4"}]
    assert study["basis"]["command"] is None, "no options of `compare` say this"
    assert "to repeat it" not in virtune("show", "last")
    as_is, deeper = json.loads(virtune("diagnose", "--run", "last", "--json"))["disks"]
    assert (as_is["bottleneck"]["cause"], deeper["bottleneck"]["cause"]) == ("depth", "undecidable")


def test_where_nothing_is_accused_nothing_runs(virtune: Called) -> None:
    virtune.measure(workload="rw=randread,bs=4k,iodepth=4,rate_iops=500")
    proof = virtune.prove()["proof"]
    assert (proof["outcome"], proof["reason"], proof["study"]) == ("untested", "nothing-accused", "")
    assert "not bound by the disk" in proof["why"]
    assert "virtune sweep" in proof["by_hand"]
    virtune.measure()
    assert virtune.prove()["proof"]["reason"] == "nothing-accused"
    said = virtune("diagnose", "--run", "last", "--prove")
    assert "not tested: nothing is accused" in said
    assert len(json.loads(virtune("show", "list", "--json"))["studies"]) == 2, "nothing was run"


def test_the_verdict_is_written_to_every_output(virtune: Called) -> None:
    virtune.measure("disk.throttle_iops=5000")
    report, page, notes = (virtune.home / name for name in ("proof.txt", "proof.html", "proof.md"))
    words = ("diagnose", "--run", "last:1", "--prove", "--rounds", "8", *SEED)
    said = virtune(*words, "--report", str(page), "--markdown", str(notes))
    answer = "confirmed: limited by a limit that was set"
    assert answer in said
    assert "the size is not" in said
    assert "virtune show 2" in said
    assert answer in page.read_text()
    assert "Is a limit that was set what limits simulated" in page.read_text()
    assert answer in notes.read_text()
    assert "5,000 of the 5,000 that are allowed" in notes.read_text()
    assert "| as-is | no-limit |" in notes.read_text()
    virtune.measure("disk.throttle_iops=5000")
    virtune(*words[:2], "last", *words[3:], "--report", str(report))
    assert answer in report.read_text()


def test_what_is_to_be_proven_must_be_said(virtune: Called) -> None:
    assert "--rounds is for --run with --prove" in virtune("diagnose", "sql1", "--rounds", "9", status=2)
    assert "there is no store" in virtune("diagnose", "--run", "last", "--prove", status=2)
    place = ("--scratch", str(virtune.home / "scratch"))
    arms = ("--set", "disk.throttle_iops=5000", "--vary", "disk.aio=threads,native")
    virtune("compare", "--rig", "simulated", *arms, "--rounds", "3", "--seed", "1", "-q", *place)
    assert "has 2 diagnoses, and --prove tests one" in virtune("diagnose", "--run", "last", "--prove", status=2)
    for few in ("1", "5"):
        said = virtune("diagnose", "--run", "last:1", "--prove", "--rounds", few, status=2)
        assert f"no {few} rounds decide a proof: 6 are the fewest that can" in said
    found = json.loads(virtune("diagnose", "--run", "last:1", "--prove", "--json", "--rounds", "8", *SEED))
    assert found["disks"][0]["bottleneck"]["of"] == 3, "the accusation is of all rounds"


def test_no_vm_and_no_disk_of_the_users_is_touched() -> None:
    found = Bottleneck(cause=Cause.DEVICE, evidence=("planted",), experiment="look at it")
    accused = Diagnosis(disk="a", workload="w", seconds=1.0, path=DataPath(iops=1.0), found=found, layers=None)
    for stack in (Stack(rig="libvirt", domain="web1"), Stack(rig="qemu", device=Device(vfio_pci="0000:01:00.0"))):
        proof = untested(accused, stack)
        assert proof is not None
        assert (proof.outcome, proof.reason) == (ProofOutcome.UNTESTED, ProofReason.NOT_OURS)
        assert "look at it" in proof.by_hand
    assert untested(accused, Stack()) is None
