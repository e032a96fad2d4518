# SPDX-License-Identifier: Apache-2.0
"""`--like VM[:DISK]`: what a configuration says of a disk is in the settings, or named with the reason why not."""

from dataclasses import fields, replace
from pathlib import Path

import pytest
from tests.conftest import User
from tests.published import complaints, strictly

from virtune.dialects.languages import language_of
from virtune.flows.domains.like import like_vm
from virtune.flows.run.question import Question, study_for
from virtune.flows.run.tune import tuning_study
from virtune.model.contradictions import contradictions
from virtune.model.domain import Controller, DiskSource, Domain, DomainDisk, DomainThread
from virtune.model.errors import PlanError, ReadError, UsageError
from virtune.model.finding import ImageView
from virtune.model.stack import Stack
from virtune.model.study import StudyKind
from virtune.model.study_options import StudyOptions
from virtune.plan.arms import apply_settings
from virtune.plan.like import Likeness, Looked, carried, likeness

CAPTURES = Path(__file__).parents[1] / "captures"
RIGS = ("qemu", "vhost-user", "storage-daemon", "libvirt:other")

DISK = DomainDisk(target="vda", line=3, bus="virtio", format="qcow2", source=DiskSource(kind="file", name="/a/b"))
SCSI = Controller(kind="scsi", index=0, line=9, model="virtio-scsi")
VM = Domain(name="web1", uuid=None, kind="kvm", line=1, vcpus=2, disks=(DISK,), threads=(DomainThread(number=1),))

OF_DISK = {
    "device": "lun", "bus": "sata", "format": "raw", "cache": "directsync", "io": "io_uring", "discard": "unmap",
    "io_default": "io_uring",
    "detect_zeroes": "on", "copy_on_read": "on", "iothread": 1, "mapping": (1, 2), "queues": 3, "queue_size": 64,
    "ioeventfd": "off", "metadata_cache_bytes": 2**20, "limits": (("total_iops_sec", 9),), "limits_group": "g",
    "rotation_rate": 1, "backing": 2, "read_only": True, "shareable": True, "transient": True,
    "options": frozenset({"throttlefilters"}),
}  # fmt: skip
"""Another value of each attribute of a disk that changes what the disk does."""

NAMES_OF_DISK = {"target", "line", "source", "driver", "controller"}
"""Where it stands and what it is called; the source's storage is another matter."""

UNSEEN = {"werror", "rerror", "refused"}
"""What becomes of an error, and what does not start: no load shows it."""

OF_VM = {
    "vcpus": 3, "machine": "pc-i440fx-7.2", "emulator": "/no/qemu", "io_weight": 200, "pins": (("emulator", "1"),),
    "memory_nodes": "1",
    "threads": (DomainThread(number=1, poll_max_ns=0),), "language": "proxmox",
}  # fmt: skip

NOT_OF_THE_DISK = {
    "name", "uuid", "kind", "line", "arch", "threads_elsewhere", "threads_line", "kvm_hidden", "guest_agent",
    "host_devices", "disks", "controllers", "written", "elsewhere", "refused",
}  # fmt: skip
OF_IMAGE = {"cluster_bytes": 2**21, "extended_l2": True, "backing": True}


def of(vm: Domain = VM, disk: DomainDisk = DISK, image: ImageView | None = None) -> Likeness:
    at = Looked(domain=replace(vm, disks=(disk,)), disk=disk, image=image or ImageView())
    return likeness(at)


def test_every_attribute_of_a_disk_and_its_vm_is_a_setting_or_named() -> None:
    assert OF_DISK.keys() | NAMES_OF_DISK | UNSEEN == {one.name for one in fields(DomainDisk)}
    assert OF_VM.keys() | NOT_OF_THE_DISK == {one.name for one in fields(Domain)}
    threaded = replace(DISK, iothread=1)
    plain, in_thread = of(), of(disk=threaded)
    for name, value in OF_DISK.items():
        assert of(disk=replace(DISK, **{name: value})) != plain, name  # type: ignore[arg-type]
    for name, value in OF_VM.items():
        assert of(replace(VM, **{name: value}), threaded) != in_thread, name  # type: ignore[arg-type]
    for name, value in OF_IMAGE.items():
        assert of(image=ImageView(**{name: value})) != plain, name  # type: ignore[arg-type]
    scsi, changes = (
        replace(VM, controllers=(SCSI,)),
        {"model": "lsilogic", "queues": 4, "iothread": 1, "mapping": (1,)},
    )
    for name, value in changes.items():
        other = replace(VM, controllers=(replace(SCSI, **{name: value}),))  # type: ignore[arg-type]
        assert of(other, replace(DISK, bus="scsi")) != of(scsi, replace(DISK, bus="scsi")), name


def recorded() -> list[tuple[Domain, DomainDisk]]:
    """Every disk of every recorded VM that QEMU runs, of all languages."""
    found = []
    for path in sorted(one for one in CAPTURES.rglob("*") if one.is_file() and one.stat().st_size < 200_000):
        try:
            text = path.read_bytes()
            domains = language_of(text).domains(text)
        except ReadError:
            continue
        found += [(vm, disk) for vm in domains if vm.runs_qemu for disk in vm.disks if disk.is_disk]
    return found


def test_each_recorded_disk_becomes_a_stack_of_every_rig_and_nothing_is_lost() -> None:
    every = recorded()
    assert len({vm.language for vm, _ in every}) >= 5
    assert len(every) > 100
    for vm, disk in every:
        whole = likeness(Looked(domain=vm, disk=disk))
        for rig in RIGS:
            taken = carried(whole, rig)
            stack, _ = apply_settings(Stack(), [f"rig={rig}", *taken.settings])
            assert contradictions(stack) == ()
            off = "export.iothread=off" in taken.settings  # of an export, which else has one
            assert len(taken.settings) + len(taken.left) == len(whole.settings) + len(whole.left) + off
            assert stack.in_iothread == bool(vm.threads_of(disk)) or stack.export == "nbd"
            assert all(one.why for one in taken.left)


def test_the_users_settings_take_the_place_of_the_vms() -> None:
    whole = of(disk=replace(DISK, cache="writeback", queues=4))
    taken = carried(whole, "qemu", instead=("disk.cache=none",))
    assert not any(word.startswith("disk.cache") for word in taken.settings)
    assert "device.num_queues=4" in taken.settings
    exported = carried(whole, "vhost-user", instead=("export.num_queues=1",))
    assert not any("num_queues" in word for word in exported.settings)
    assert "disk.format=qcow2: what lies on a target or a scratch volume is raw" in [
        one.text for one in carried(whole, "qemu", target=True).left
    ]


XML = """<domain type='{kind}'><name>web1</name><vcpu>1</vcpu><iothreads>1</iothreads>
<os><type machine='pc-q35-7.2'>hvm</type></os><devices>
<disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='{cache}' iothread='1' queue_size='64'/>
<source file='{folder}/a.qcow2'/><target dev='vda' bus='virtio'/>
<iotune><total_iops_sec>3000</total_iops_sec><total_iops_sec_max>4000</total_iops_sec_max></iotune></disk>
{more}</devices></domain>
"""
SECOND = "<disk type='block' device='disk'><source dev='/dev/vg/b'/><target dev='vdb' bus='virtio'/></disk>"


def written(
    folder: Path, *, kind: str = "kvm", more: str = "", at: str | None = None, cache: str = "writethrough"
) -> Path:
    path = folder / "web:1.xml"
    path.write_text(XML.format(kind=kind, folder=at or folder, more=more, cache=cache))
    return path


def test_a_file_is_found_with_a_colon_in_its_name_and_its_scratch_image_lies_beside_the_disk(tmp_path: Path) -> None:
    vm = like_vm(StudyOptions(like=str(written(tmp_path)), rig="qemu"))
    assert vm.scratch == tmp_path
    assert {"disk.cache=writethrough", "device.iothread=iothread1", "disk.throttle_iops=3000"} <= set(vm.settings)
    assert "limit total_iops_sec_max=4000: bursts and sizes of a limit cannot be set here yet" in [
        one.text for one in vm.left
    ]
    named = like_vm(StudyOptions(like=f"{written(tmp_path, more=SECOND)}:vda", rig="qemu"))
    assert named.settings == vm.settings


def test_a_proxmox_vm_is_named_by_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "qemu-server"
    place.mkdir()
    monkeypatch.setenv("VIRTUNE_PROXMOX", str(place))
    (place / "101.conf").write_text("scsihw: virtio-scsi-single\nscsi0: local-lvm:vm-101-disk-0,iothread=1,size=8G\n")
    with pytest.raises(PlanError, match="the volume local-lvm:vm-101-disk-0") as refused:
        like_vm(StudyOptions(like="101", rig="qemu"))
    assert "--scratch DIR" in (refused.value.hint or "")
    vm = like_vm(StudyOptions(like="101:scsi0", rig="qemu", scratch=tmp_path))
    assert {"device.bus=virtio-scsi", "disk.aio=io_uring", "disk.cache=none"} <= set(vm.settings)
    (tmp_path / "storage.cfg").write_text("lvm: local-lvm\n\tvgname pve\n")
    vm = like_vm(StudyOptions(like="101:scsi0", rig="qemu", scratch=tmp_path))
    assert "disk.aio=native" in vm.settings


@pytest.mark.parametrize(
    ("word", "more", "kind", "at", "said"),
    [
        ("{}:vdz", "", "kvm", None, "has no disk 'vdz'"),
        ("{}", SECOND, "kvm", None, "has the disks vda, vdb"),
        ("{}:vdb", SECOND, "kvm", None, "block device /dev/vg/b"),
        ("{}", "", "xen", None, "is run by xen, and test disks are QEMU's"),
        ("{}", "", "kvm", "/no/such/place", "there is no such directory here"),
        ("/no/such/file.xml", "", "kvm", None, "no file"),
    ],
)
def test_what_cannot_be_is_one_sentence_with_a_hint(
    word: str, more: str, kind: str, at: str | None, said: str, tmp_path: Path
) -> None:
    path = written(tmp_path, kind=kind, more=more, at=at)
    with pytest.raises((UsageError, PlanError), match=said) as refused:
        like_vm(StudyOptions(like=word.format(path), rig="qemu"))
    assert refused.value.hint


def test_a_comparison_begins_with_the_vm_as_it_is_and_compares_with_it(tmp_path: Path) -> None:
    like = str(written(tmp_path))

    def asked(*vary: str, settings: tuple[str, ...] = ()) -> Question:
        return Question(kind=StudyKind.COMPARE, like=like, rig="qemu", vary=vary, settings=settings)

    study = study_for(asked("disk.cache=none"))
    assert ([arm.name for arm in study.arms], study.baseline) == (["now", "cache=none"], "now")
    assert [arm.stack.disk.cache for arm in study.arms] == ["writethrough", "none"]
    assert all(arm.stack.device.queue_size == 64 for arm in study.arms)
    assert study.scratch == str(tmp_path)
    assert "web1:vda" in study.likeness[0]
    assert "total_iops_sec_max" in study.likeness[1]
    same = study_for(asked("disk.cache=none,writethrough"))
    assert same.baseline == "cache=writethrough"
    assert len(same.arms) == 2
    other = study_for(asked("disk.cache=none,writethrough", settings=("device.queue_size=256",)))
    assert {arm.stack.device.queue_size for arm in other.arms} == {256}


def test_a_search_has_the_vm_as_its_baseline(tmp_path: Path) -> None:
    like = str(written(tmp_path, cache="directsync"))
    options = StudyOptions(like=like, rig="vhost-user", vary=("disk.aio",), span=2**26)
    study, _ = tuning_study(options)
    baseline = study.arm(study.baseline)
    assert (baseline.stack.disk.aio, baseline.stack.disk.cache) == ("threads", "directsync")
    assert {arm.stack.disk.throttle_iops for arm in study.arms} == {3000}
    assert "web1:vda" in study.likeness[0]


@pytest.mark.real
def test_the_settings_of_a_vm_are_seen_in_the_guest_that_stands_for_it(user: User) -> None:
    path = written(user.home)
    short = ("--rounds", "1", "--seconds", "200ms", "--ramp", "100ms", "--span", "64M", "--json")
    ran = user.run("compare", "measure", "--like", f"{path}:vda", "--rig", "qemu", *short)
    found = strictly(ran.stdout)
    assert complaints("result", found) == []
    assert "not carried over from it" in ran.stderr
    assert "web1:vda" in found["patterns"][0]
    checks = {one["setting"]: one["found"] for one in found["arms"][0]["in_force"]}
    assert (checks["device.queue_size"], checks["disk.throttle_iops"]) == ("64", "3000")
