# SPDX-License-Identifier: Apache-2.0
"""A structure's share of bare metal on this host, from kept studies: planted figures, and what is no evidence."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.analyse.threshold_studies import study

from virtune.analyse.study.summarise import structure_of
from virtune.cli import run
from virtune.flows.stored.earlier_studies import own_shares
from virtune.model.evidence import StudyRecord
from virtune.model.remark import EMULATED
from virtune.model.stack import Device, Stack
from virtune.probe.cpu import cpu_facts
from virtune.store.store import Store

METAL = Stack(rig="metal")
MANY, ONE = Stack(rig="qemu", guests=4), Stack(rig="qemu")
THREADED, PASSED = (
    Stack(rig="qemu", device=one) for one in (Device(iothread="io1"), Device(vfio_pci="0000:01:00.0"))
)
HERE = json.dumps({"host": {"cpu": {"model": cpu_facts().model}}})
BARE, VIRTUAL = [1000.0 + n % 3 for n in range(10)], [790.0 + n % 3 for n in range(10)]


def kept(stack: Stack, *, name: str = "s", facts: str = HERE, bare: Stack = METAL) -> StudyRecord:
    record = study(BARE, VIRTUAL)
    arms = tuple(replace(arm, stack=one) for arm, one in zip(record.study.arms, (bare, stack), strict=True))
    return replace(record, study=replace(record.study, id=name, arms=arms), facts=facts)


def store_of(place: Path, *records: StudyRecord) -> Path:
    with Store(place / "store.sqlite") as store:
        for record in records:
            store.add_whole(record, [[] for _ in record.trials])
    return place / "store.sqlite"


@pytest.mark.parametrize(
    ("stack", "structure"),
    [(MANY, "structure-1"), (ONE, "structure-2"), (PASSED, "structure-3"), (THREADED, "structure-4"), (METAL, None)],
)
def test_a_stack_is_one_of_the_study_s_structures(stack: Stack, structure: str | None) -> None:
    assert structure_of(stack) == structure


def test_the_share_is_of_the_rounds_that_both_had(tmp_path: Path) -> None:
    (found,) = own_shares(store_of(tmp_path, kept(MANY)), "structure-1")
    assert (found.rounds, found.study, found.emulated) == (10, "s", False)
    assert found.ratio.low < 0.7902 < found.ratio.high
    assert found.ratio.high - found.ratio.low < 0.01


def test_the_newest_study_with_that_structure_counts(tmp_path: Path) -> None:
    old, new = kept(MANY, name="2026-01-01"), kept(MANY, name="2026-02-02")
    new = replace(new, study=replace(new.study, created="2026-02-02T00:00:00+00:00"))
    old = replace(old, study=replace(old.study, created="2026-01-01T00:00:00+00:00"))
    (found,) = own_shares(store_of(tmp_path, old, new, kept(ONE, name="2026-03-03")), "structure-1")
    assert found.study == "2026-02-02"


@pytest.mark.parametrize(
    "record",
    [
        kept(ONE),
        kept(MANY, bare=ONE),
        kept(MANY, facts=json.dumps({"host": {"cpu": {"model": "another"}}})),
        kept(MANY, facts=""),
    ],
    ids=["another structure", "no bare metal", "another host", "unknown host"],
)
def test_what_is_no_share_of_this_host_is_not_told(tmp_path: Path, record: StudyRecord) -> None:
    assert own_shares(store_of(tmp_path, record), "structure-1") == ()
    assert own_shares(tmp_path / "none.sqlite", "structure-1") == ()


def test_it_is_told_beside_the_published_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    remark = EMULATED.remark(text="TCG")
    record = kept(THREADED)
    trials = tuple(
        replace(one, measurement=replace(one.measurement, remarks=(remark,)) if one.measurement else None)
        for one in record.trials
    )
    store = store_of(tmp_path, replace(record, trials=trials, attempts=trials))
    words = ["apply", "advise", "--for-requirements", "scale-out=no,own=no,virtio=yes", "--store", str(store)]
    assert run(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "published: 0.78 of bare metal's reads" in said
    assert "measured here: 0.79 [0.79, 0.79] of this host's disk without QEMU, in IOPS under w (10 rounds, " in said
    assert "so this is the emulator's share" in said
    assert run([*words[:3], "scale-out=yes", *words[4:]]) == 0
    assert "measured here" not in capsys.readouterr().out
