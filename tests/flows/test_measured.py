# SPDX-License-Identifier: Apache-2.0
"""`--from STUDY`: what was measured to be better is in the changed configuration, or named with the reason."""

from dataclasses import replace

import pytest
from tests.conftest import User
from tests.knob_values import stack_with
from tests.report.records import record as kept_record

from virtune.advise.measured import changes
from virtune.analyse.study.summarise import summarise
from virtune.dialects.languages import language_of
from virtune.flows.domains.advise import Wish, advise
from virtune.flows.domains.domains import FoundDomain
from virtune.flows.domains.measured import better_arm
from virtune.model.errors import PlanError
from virtune.model.finding import Subject
from virtune.model.reason import Reason
from virtune.model.rig import RIGS
from virtune.model.stack import Stack

LIBVIRT = """<domain type='kvm'><name>web1</name><vcpu>2</vcpu>
<os><type machine='pc-q35-7.2'>hvm</type></os><devices>
<disk type='file' device='disk'><driver name='qemu' type='raw' cache='none'/>
<source file='/images/a.raw'/><target dev='vda' bus='{bus}'/></disk>{more}</devices></domain>
"""
CONTROLLER = "<controller type='scsi' index='0' model='virtio-scsi'/>"
PROXMOX = "scsihw: virtio-scsi-single\nscsi0: local-lvm:vm-101-disk-0,size=8G\nname: web1\ncores: 2\n"
VMS = {
    "virtio": LIBVIRT.format(bus="virtio", more=""),
    "scsi": LIBVIRT.format(bus="scsi", more=CONTROLLER),
    "proxmox": PROXMOX,
    "qemu": "qemu-system-x86_64 -name web1 -smp 2 -drive file=/images/a.raw,format=raw,if=none,id=d"
    " -device virtio-blk-pci,drive=d,id=x",
}
THERE = {("scsi", "device.bus")}
"""What the VM has already."""


def found(text: str) -> FoundDomain:
    language = language_of(text.encode())
    (domain,) = language.domains(text.encode())
    return FoundDomain(origin="a file", text=text.encode(), subject=Subject(domain=domain), language=language)


class Better:
    """What a study measured: one stack better than another."""

    def __init__(self, before: Stack, after: Stack, **now: str) -> None:
        self.before, self.after, self.now = before, after, now

    def template(self, subject: Subject) -> object:
        return changes(subject, subject.disks[0], self.before, self.after, now=self.now)


@pytest.mark.parametrize("vm", VMS)
def test_each_setting_that_was_better_is_changed_or_named(vm: str) -> None:
    text, place = VMS[vm].encode(), found(VMS[vm])
    for rig in ("storage-daemon", "qemu"):
        for knob in sorted(RIGS[rig].applies):
            before, after = stack_with(rig, knob)
            advice = advise(place, Wish(measured=Better(before, after)))  # type: ignore[arg-type]
            told = advice.turns or advice.left or before == after or knob == "disk.export" or (vm, knob) in THERE
            assert told, f"{rig} {knob}"
            assert advice.turns or advice.after == text, f"{rig} {knob}"


def test_a_setting_that_is_another_than_in_the_study_is_left() -> None:
    before, after = stack_with("qemu", "disk.aio")
    advice = advise(found(VMS["virtio"]), Wish(measured=Better(before, after, **{"disk.aio": "other"})))  # type: ignore[arg-type]
    assert not advice.turns
    assert "was not measured" in advice.left[0].text


FAST = (
    "--rounds",
    "18",
    "--seconds",
    "200ms",
    "--ramp",
    "0",
    "--span",
    "64M",
    "--rig",
    "storage-daemon",
    "--attempts",
    "1",
)


@pytest.mark.real
def test_from_a_vm_to_a_measured_better_configuration_of_it(user: User) -> None:
    limited = "<iotune><total_iops_sec>300</total_iops_sec></iotune>"
    text = VMS["virtio"].replace("bus='virtio'/>", f"bus='virtio'/>{limited}")
    (user.home / "web1.xml").write_text(text)
    (user.home / "two.xml").write_text(text.replace("</devices>", "<disk type='file'><source file='/b'/>"
                                       "<target dev='vdb' bus='virtio'/></disk></devices>"))  # fmt: skip
    arms = ("--arm", "free:disk.throttle_iops=100000", "--arm", "zeroes:disk.detect_zeroes=on")
    user.run("compare", "--like", "web1.xml", "--scratch", str(user.home), *arms, *FAST)
    advised = user.run("apply", "advise", "--from", "last", "web1.xml")
    assert "free: better under randread-4k" in advised.stderr
    assert (
        "-<source file='/images/a.raw'/><target dev='vda' bus='virtio'/><iotune><total_iops_sec>300" in advised.stdout
    )
    assert "<total_iops_sec>100000" in advised.stdout
    assert "<total_iops_sec>100000" in user.run("apply", "advise", "--from", "last", "two.xml").stdout
    for words, status, said in (
        (("--from", "last:zeroes", "web1.xml"), 0, "detect_zeroes='on'"),
        (("--from", "last:none", "web1.xml"), 2, "no arm 'none'"),
        (("--from", "last", "--disk", "vdz", "web1.xml"), 2, "has no disk 'vdz'"),
        (("--disk", "vda", "web1.xml"), 2, "--disk belongs to --from"),
        (("--from", "last", "--template", "flash", "web1.xml"), 2, "cannot be together"),
    ):
        ran = user.run("apply", "advise", *words, status=status)
        assert said in ran.stdout + ran.stderr


def test_a_study_that_shows_nothing_better_changes_nothing(user: User) -> None:
    (user.home / "web1.xml").write_text(VMS["virtio"])
    user.run("compare", "--rig", "simulated", "--arm", "a:", "--arm", "b:", "--rounds", "6")
    refused = user.run("apply", "advise", "--from", "last", "web1.xml", status=2)
    assert "no advice rests on invented figures" in refused.stderr


def test_an_arm_that_is_perhaps_better_has_to_be_named() -> None:
    kept = kept_record(12)
    result = summarise(kept)
    (verdict,) = result.verdicts
    assert better_arm(kept, result, "")[0] == "native"
    perhaps = replace(result, verdicts=(replace(verdict, reason=Reason.UNLESS_LASTING),))
    with pytest.raises(PlanError, match="native is perhaps better") as refused:
        better_arm(kept, perhaps, "")
    assert "`--from s:native`".replace("s:", f"{kept.study.id}:") in (refused.value.hint or "")
    assert better_arm(kept, perhaps, "native")[1].startswith("native: perhaps better under ")
