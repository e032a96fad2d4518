# SPDX-License-Identifier: Apache-2.0
"""What is found in a host's facts: every finding fires where it should, and nowhere else."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.probe.machines import unpack

from virtune.analyse.study.host_rules import judge_host
from virtune.model.facts import FioFacts, HostFacts, Pressure, Program, Unknown
from virtune.model.remark import Weight
from virtune.probe.host import host_facts


@pytest.fixture
def bad(tmp_path: Path) -> HostFacts:
    facts = host_facts("/tmp/x", unpack("two-sockets", tmp_path))
    return replace(facts, fio=FioFacts(program=Unknown("not installed"), engines=Unknown("not installed")))


@pytest.fixture
def quiet(tmp_path: Path) -> HostFacts:
    facts = host_facts("/x", unpack("small-vm", tmp_path))
    still = tuple(Pressure(resource=name, some_percent=0.0, full_percent=0.0) for name in ("cpu", "io", "memory"))
    return replace(
        facts,
        virtualization=replace(facts.virtualization, hypervisor="none"),
        kvm=replace(facts.kvm, exists=True, opens=True, creates_vm=True),
        busy=replace(facts.busy, load_1min=0.5, pressure=still),
        disks=(),
    )


def ids(facts: HostFacts) -> list[str]:
    return [remark.id for remark in judge_host(facts)]


def test_everything_that_is_wrong_is_found_the_most_severe_first(bad: HostFacts) -> None:
    found = judge_host(bad)
    assert [remark.id for remark in found] == [
        "tool", "io_uring", "aio", "clock", "kvm", "governor", "cpu-limit", "io-limit", "busy", "scratch-memory",
        "iostats", "ksm", "turbo", "idle", "busy", "load", "swap-used",
    ]  # fmt: skip
    weights = [remark.weight for remark in found]
    assert weights == sorted(weights, key=[Weight.INVALID, Weight.WARNING, Weight.NOTE].index)


def test_a_quiet_host_has_no_findings(quiet: HostFacts) -> None:
    assert ids(quiet) == []


def test_unknown_facts_are_no_findings(tmp_path: Path) -> None:
    assert ids(host_facts("/x", tmp_path)) == ["kvm"]


def test_findings_that_depend_on_one_fact(quiet: HostFacts) -> None:
    ring, kvm = quiet.kernel.io_uring, quiet.kvm
    fio = Program(name="fio", path="/fio", version="3.33", package=Unknown("none"))
    cases = {
        "virtual": replace(quiet, virtualization=replace(quiet.virtualization, hypervisor="kvm")),
        "fio-nbd": replace(quiet, fio=FioFacts(program=fio, engines=("psync",))),
        "direct": replace(quiet, scratch=replace(quiet.scratch, direct_io=False)),
        "space": replace(quiet, scratch=replace(quiet.scratch, free_bytes=1)),
    }
    for expected, facts in cases.items():
        assert ids(facts) == [expected]
    for changed in (replace(ring, disabled=1), replace(ring, disabled=2), replace(ring, usable=False)):
        assert ids(replace(quiet, kernel=replace(quiet.kernel, io_uring=changed))) == ["io_uring"]
    for broken in (replace(kvm, exists=False), replace(kvm, opens=False), replace(kvm, creates_vm=False)):
        assert ids(replace(quiet, kvm=broken)) == ["kvm"]


def test_sentences_are_sentences(bad: HostFacts) -> None:
    for remark in judge_host(bad):
        assert remark.text == remark.text.strip()
        assert not remark.text.endswith(".")
        assert "\n" not in remark.text
