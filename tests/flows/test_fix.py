# SPDX-License-Identifier: Apache-2.0
"""What `fix` measures of an audit, and what it takes of a measurement."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import User

from virtune.flows.domains.domains import FoundDomain, from_paths
from virtune.flows.domains.like import like_vm
from virtune.flows.run.fix import Candidate, Fixes, choose, fixes_for
from virtune.flows.stored.show import current
from virtune.model.domain import SettingChange
from virtune.model.reason import Reason
from virtune.model.remark import GATE_BY_ID, Weight
from virtune.model.study_options import StudyOptions
from virtune.store.store import Store

XML = """<domain type='kvm'><name>web1</name><vcpu>1</vcpu>
<os><type machine='pc-q35-7.2'>hvm</type></os><devices>
<disk type='file' device='disk'><driver name='qemu' type='raw' {driver}/>
<source file='{folder}/a.raw'/><target dev='vda' bus='virtio'/>{inner}</disk></devices></domain>
"""


LIMITED = "<iotune><total_iops_sec>300</total_iops_sec></iotune>"


def fixes(folder: Path, driver: str, rig: str, *, also: tuple[str, ...] = (), inner: str = "") -> Fixes:
    (folder / "a.raw").touch()
    path = folder / "web1.xml"
    path.write_text(XML.format(folder=folder, driver=driver, inner=inner))
    (found,) = from_paths([path], here=True)
    assert isinstance(found, FoundDomain)
    like = like_vm(StudyOptions(like=str(path), rig=rig))
    return fixes_for(found, found.subject.domain.disks[0], like, also=also)


def test_each_try_is_an_arm_on_top_of_what_is_needed_and_all_together_one_more(tmp_path: Path) -> None:
    found = fixes(tmp_path, "cache='unsafe'", "qemu")
    arms = {one.name: one for one in found.candidates}
    assert found.needed == (SettingChange(knob="disk.cache", at="vda", value="none"),)
    assert arms["fixes"].settings == ("disk.cache=none",)
    assert arms["R30"].settings == ("disk.cache=none", "device.iothread=iothread1")
    assert SettingChange(knob="iothread.count", value="1") in arms["R30"].turns
    assert all(set(found.needed) <= set(one.turns) for one in found.candidates)
    exported = fixes(tmp_path, "cache='none'", "vhost-user")
    assert {one.name: one.settings for one in exported.candidates}["R30"] == ("export.iothread=on",)


def test_everything_that_the_audit_says_is_measured_or_named(tmp_path: Path) -> None:
    for driver in (
        "cache='unsafe'",
        "cache='writethrough'",
        "cache='none' io='native'",
        "cache='none' discard='unmap'",
    ):
        for rig in ("qemu", "vhost-user", "storage-daemon"):
            found = fixes(tmp_path, driver, rig)
            told = " ".join((*(one.name for one in found.candidates), *found.left))
            tries = {one.rule.id for one in found.findings if one.rule.severity.value == "try"}
            assert all(rule in told for rule in tries), (driver, rig, told)
            assert not found.needed or "fixes" in told
            template = "discard@vda=unmap risks data" in told or "unmap" in driver
            assert template, "what is dropped of the template is said"
            assert ("promises durable writes, so it stays" in told) == ("through" in driver)


@pytest.mark.parametrize(
    ("driver", "also", "said", "not_said"),
    [
        ("cache='writethrough'", ("R19",), "changed all the same: R19 (--also asks for it)", "warning"),
        ("cache='writethrough' io='native'", ("R19",), "R19 (--also asks for it)", "R10"),
        ("cache='writethrough' io='native'", (), "R10 (an error or a warning", "R19"),
        ("cache='unsafe'", (), "R01 (an error or a warning, right whatever it costs)", "--also"),
        ("cache='unsafe'", ("R25",), "R01 (an error or a warning, right whatever it costs)", "R19"),
        ("cache='none'", (), "no change was measured to be better", "; "),
        ("cache='none'", (LIMITED,), "--also R47 measures without it", "error"),
    ],
)
def test_what_changes_without_a_gain_has_its_true_reason(
    user: User, tmp_path: Path, driver: str, also: tuple[str, ...], said: str, not_said: str
) -> None:
    limited = LIMITED in also
    found = fixes(tmp_path, driver, "storage-daemon", also=() if limited else also, inner=LIMITED if limited else "")
    limit = ("--set", "disk.throttle_iops=300") if limited else ()
    user.run("compare", "--rig", "simulated", "--arm", "now:", "--arm", "a:", *limit, "--rounds", "6", "--seed", "3")
    with Store(user.home / "virtune" / "virtune.sqlite") as store:
        why = choose(*current(store, store.find("last")), replace(found, candidates=())).why
    assert said in why
    assert not_said not in why
    if "R19" in also:
        assert SettingChange(knob="disk.cache", at="vda", value="none") in found.needed, "over what R10 would have"
        assert not any("it stays" in one or "disk.cache" in one for one in found.left), found.left


def candidate(name: str, *settings: str) -> Candidate:
    return Candidate(name=name, turns=(SettingChange(knob="x", value=name),), settings=settings, why="")


@pytest.mark.parametrize(
    ("arms", "chosen"),
    [
        (("a:disk.aio=io_uring", "b:disk.aio=native"), {"a", "b"}),
        (("a:disk.throttle_iops=50", "b:disk.throttle_iops=60"), {None}),
        (("a:disk.cache=unsafe,disk.aio=io_uring",), {None}),
    ],
)
def test_what_is_surely_better_is_taken_and_nothing_that_promises_less(
    user: User, arms: tuple[str, ...], chosen: set[str | None], tmp_path: Path
) -> None:
    words = [word for arm in ("now:disk.cache=none", *arms) for word in ("--arm", arm)]
    user.run("compare", "--rig", "simulated", *words, "--rounds", "12", "--seed", "3")
    found = fixes(tmp_path, "cache='none'", "qemu")
    every = Fixes(
        disk=found.disk, findings=(), needed=(), left=(),
        candidates=tuple(candidate(arm.partition(":")[0]) for arm in arms),
    )  # fmt: skip
    with Store(user.home / "virtune" / "virtune.sqlite") as store:
        record, result = current(store, store.find("last"))
    choice = choose(record, result, every)
    assert (choice.candidate and choice.candidate.name) in chosen
    assert choice.why
    assert "page cache" not in choice.why
    remark = GATE_BY_ID["page-cache"].remark(weight=Weight.WARNING, text="the page cache the rest")
    cached = replace(
        record,
        trials=tuple(
            replace(one, measurement=one.measurement and replace(one.measurement, remarks=(remark,)))
            if one.trial.arm == "now" and one.trial.round > 2
            else one
            for one in record.trials
        ),
    )
    told = choose(cached, result, every).why
    assert ("trials of now and" in told) == (chosen != {None})
    if chosen == {"a", "b"}:
        for unsure in ({"a"}, {"b"}, {"a", "b"}):
            perhaps = replace(
                result,
                verdicts=tuple(
                    replace(one, reason=Reason.UNLESS_LASTING if one.candidate in unsure else Reason.BETTER_SIDE)
                    for one in result.verdicts
                ),
            )
            choice = choose(record, perhaps, every)
            assert choice.candidate is not None
            assert (choice.candidate.name in unsure) == (unsure == chosen) == ("perhaps better" in choice.why)
            assert "certain" not in choice.why
