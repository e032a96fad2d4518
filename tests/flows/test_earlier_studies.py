# SPDX-License-Identifier: Apache-2.0
"""An audit says what kept studies of this host found of the very change that it thinks worth trying, and no other."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.analyse.threshold_studies import study

from virtune.advise.audit import audit
from virtune.dialects.libvirt.domain import read_domain
from virtune.flows.stored.earlier_studies import Past
from virtune.model.evidence import StudyRecord
from virtune.model.finding import HostView, Subject
from virtune.model.remark import EMULATED
from virtune.model.stack import Disk, Stack
from virtune.model.workload import job
from virtune.probe.cpu import cpu_facts
from virtune.store.store import Store

DOMAIN = """<domain type='kvm'><name>g</name><vcpu>2</vcpu><iothreads>1</iothreads><devices>
<disk type='block' device='disk'><driver name='qemu' type='raw' cache='{cache}' io='threads' discard='unmap'
  detect_zeroes='{zeroes}' iothread='1'/><source dev='/dev/vg/g'/><target dev='vda' bus='virtio'/></disk>
</devices></domain>"""
HERE = json.dumps({"host": {"cpu": {"model": cpu_facts().model}}})
BUFFERED, DIRECT = Stack(disk=Disk(cache="writeback")), Stack(disk=Disk(cache="none"))
BASE, MORE = [100.0 + n % 3 for n in range(10)], [150.0 + n % 3 for n in range(10)]


def kept(first: Stack, second: Stack, *, facts: str = HERE, finished: bool = True) -> StudyRecord:
    record = study(BASE, MORE)
    arms = tuple(replace(arm, stack=stack) for arm, stack in zip(record.study.arms, (first, second), strict=True))
    return replace(record, study=replace(record.study, arms=arms), facts=facts, finished=finished)


def said(
    place: Path, record: StudyRecord, *, cache: str = "writeback", zeroes: str = "off", domain: str = DOMAIN
) -> dict[str, str]:
    """What was said of each finding, by its rule."""
    store = place / "store.sqlite"
    with Store(store) as opened:
        opened.add_whole(record, [[] for _ in record.trials])
    subject = Subject(
        domain=read_domain(domain.format(cache=cache, zeroes=zeroes).encode()), host=HostView(kernel=(6, 1))
    )
    past = Past(store)
    return {one.rule.id: " | ".join(past.says(one, subject)) for one in audit(subject)}


def test_a_verdict_on_that_change_is_given_with_its_interval(tmp_path: Path) -> None:
    text = said(tmp_path, kept(BUFFERED, DIRECT))["R18"]
    assert text.startswith("measured on this host: better so, IOPS +4")
    assert text.endswith("(w, storage-daemon, study s)")


def test_the_other_way_round_it_is_turned_round(tmp_path: Path) -> None:
    text = said(tmp_path, kept(DIRECT, BUFFERED))["R18"]
    assert text.startswith("measured on this host: worse so, IOPS -3")


def test_of_another_knob_that_the_study_turned_too_nothing_is_said(tmp_path: Path) -> None:
    other = Stack(disk=Disk(cache="none", aio="io_uring"))
    assert said(tmp_path, kept(BUFFERED, other)) == {"R18": ""}


@pytest.mark.parametrize(
    "record",
    [
        kept(BUFFERED, DIRECT, facts=json.dumps({"host": {"cpu": {"model": "another"}}})),
        kept(BUFFERED, DIRECT, facts=""),
        kept(BUFFERED, DIRECT, finished=False),
        kept(replace(BUFFERED, rig="metal"), replace(DIRECT, rig="metal")),
        kept(Stack(disk=Disk(cache="writeback", format="qcow2")), Stack(disk=Disk(format="qcow2"))),
    ],
    ids=["another host", "unknown host", "unfinished", "no QEMU", "another format"],
)
def test_of_what_is_no_study_of_this_disk_here_nothing_is_said(tmp_path: Path, record: StudyRecord) -> None:
    assert said(tmp_path, record) == {"R18": ""}


def test_figures_of_an_emulated_guest_are_no_evidence(tmp_path: Path) -> None:
    record = kept(BUFFERED, DIRECT)
    remark = EMULATED.remark(text="TCG")
    trials = tuple(
        replace(one, measurement=replace(one.measurement, remarks=(remark,)) if one.measurement else None)
        for one in record.trials
    )
    assert said(tmp_path, replace(record, trials=trials)) == {"R18": ""}


def test_threads_and_zeroes_are_settings_too(tmp_path: Path) -> None:
    looking = Stack(disk=Disk(cache="none", detect_zeroes="on"))
    assert "better so" in said(tmp_path, kept(looking, DIRECT), cache="none", zeroes="on")["R26"]


def test_queues_that_the_load_never_used_are_no_evidence(tmp_path: Path) -> None:
    one = Stack(export="vhost-user-blk", disk=Disk(cache="none"))
    record = kept(one, replace(one, num_queues=2))
    few = DOMAIN.replace("discard='unmap'", "discard='unmap' queues='1'")
    assert said(tmp_path, record, cache="none", domain=few)["R34"] == ""
    clones = tuple(
        replace(one, jobs=tuple(job(part.name, {"numjobs": "2"}) for part in one)) for one in record.study.workloads
    )
    (tmp_path / "store.sqlite").unlink()
    record = replace(record, study=replace(record.study, workloads=clones))
    assert "better so" in said(tmp_path, record, cache="none", domain=few)["R34"]


def test_without_a_store_there_is_no_past(tmp_path: Path) -> None:
    subject = Subject(
        domain=read_domain(DOMAIN.format(cache="writeback", zeroes="off").encode()), host=HostView(kernel=(6, 1))
    )
    (tmp_path / "noise").write_bytes(b"no store at all" * 1000)
    for name in ("none", "noise"):
        assert [Past(tmp_path / name).says(one, subject) for one in audit(subject)] == [()]
    assert not (tmp_path / "none").exists()
