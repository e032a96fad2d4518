# SPDX-License-Identifier: Apache-2.0
"""KubeVirt's YAML: altered with its comments and order, and hostile YAML refused at once."""

import time
from pathlib import Path

import pytest

from virtune.dialects.kubevirt import KUBEVIRT
from virtune.model.domain import Domain, SettingChange
from virtune.model.errors import PlanError, ReadError

PLACE = Path(__file__).parents[1] / "captures" / "kubevirt"
FEDORA = (PLACE / "fedora-datavolume.yaml").read_bytes()
MANY = (PLACE / "windows-and-scratch.yaml").read_bytes()
HEAD = "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: a}\n"


def named(text: bytes, name: str) -> Domain:
    return next(one for one in KUBEVIRT.domains(text) if one.name == name)


def test_a_mark_of_the_byte_order_moves_nothing() -> None:
    mark, turn = (
        b"\xef\xbb\xbf",
        SettingChange(knob="disk.cache", at=KUBEVIRT.read(FEDORA).disks[1].target, value="none"),
    )
    assert KUBEVIRT.alter(FEDORA, turn) != FEDORA
    assert KUBEVIRT.alter(mark + FEDORA, turn) == mark + KUBEVIRT.alter(FEDORA, turn)


def test_disks_volumes_and_threads() -> None:
    domain = KUBEVIRT.read(FEDORA)
    root, data, cloudinit = domain.disks
    assert (domain.name, domain.vcpus, domain.kind) == ("fedora-web", 4, "kvm")
    assert (root.source.name, root.cache, root.discard, root.bus) == ("fedora-root", "none", "unmap", "virtio")
    assert (data.source.name, data.cache, data.io, data.line) == ("web-data", "writeback", "threads", 24)
    assert [domain.threads_of(disk) for disk in (root, data)] == [(1,), (1,)]
    assert (root.holds_data, cloudinit.holds_data) == (True, False)


def test_several_machines_of_one_text() -> None:
    assert [one.name for one in KUBEVIRT.domains(MANY)] == ["win2k22", "one-line"]
    domain = named(MANY, "win2k22")
    system, scratch, drivers = domain.disks
    assert (domain.vcpus, system.queues, system.io) == (4, 4, "native")
    assert (scratch.transient, drivers.device, domain.uuid) == (True, "cdrom", "2f7e1d2a-6d0b-4cb5-9a43-3d0d1a2b3c4d")
    assert domain.threads_of(system) == (1,)


@pytest.mark.parametrize(
    ("text", "domain", "turn", "before", "after"),
    [
        (FEDORA, "", SettingChange(knob="disk.cache", at="data", value="none"), b"cache: writeback", b"cache: none"),
        (
            FEDORA,
            "",
            SettingChange(knob="disk.aio", at="rootdisk", value="native"),
            b"# boots from here\n",
            b"# boots from here\n              io: native\n",
        ),
        (FEDORA, "", SettingChange(knob="disk.aio", at="data", value=None), b"              io: threads\n", b""),
        (
            FEDORA,
            "",
            SettingChange(knob="device.bus", at="data", value="scsi"),
            b"disk: {bus: virtio}",
            b"disk: {bus: scsi}",
        ),
        (
            MANY,
            "win2k22",
            SettingChange(knob="device.iothread", at="system", value=None),
            b"- dedicatedIOThread: true\n        disk:",
            b"- disk:",
        ),
        (MANY, "one-line", SettingChange(knob="disk.cache", at="a", value=None), b", cache: none", b""),
        (
            MANY,
            "one-line",
            SettingChange(knob="device.iothread", at="a", value="1"),
            b"disks: [{name: a",
            b"disks: [{dedicatedIOThread: true, name: a",
        ),
    ],
    ids=lambda one: f"{one.knob}-{one.at}" if isinstance(one, SettingChange) else "",
)
def test_only_the_named_words_change(
    text: bytes, domain: str, turn: SettingChange, before: bytes, after: bytes
) -> None:
    assert text.count(before) == 1
    assert KUBEVIRT.alter(text, turn, domain=domain) == text.replace(before, after)


@pytest.mark.parametrize(
    ("turn", "says"),
    [
        (SettingChange(knob="disk.aio", at="data", value="io_uring"), "no io_uring"),
        (SettingChange(knob="device.num_queues", at="data", value="2"), "one queue a vCPU"),
        (SettingChange(knob="disk.discard", at="data", value="unmap"), "always unmaps"),
        (SettingChange(knob="disk.cache", at="data", value="unsafe"), "cannot be written"),
        (SettingChange(knob="disk.cache", at="nothing", value="none"), "no disk 'nothing'"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_with_its_reason(turn: SettingChange, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        KUBEVIRT.alter(FEDORA, turn)


VM = b"{domain: {devices: {disks: [{name: root, disk: {bus: virtio}}]}}}"
ONE_NAME = b"".join(
    b"""---
apiVersion: kubevirt.io/v1
kind: %s
metadata: {name: db, namespace: %s}
spec: %s
"""
    % (kind, namespace, b"{template: {spec: %s}}" % VM if kind == b"VirtualMachine" else VM)
    for kind, namespace in ((b"VirtualMachine", b"test"), (b"VirtualMachine", b"prod"))
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (ONE_NAME, ["test/db", "prod/db"]),
        (ONE_NAME.replace(b"test", b"prod").replace(b"Machine\n", b"MachineInstanceReplicaSet\n", 1),
         ["VirtualMachineInstanceReplicaSet/prod/db", "VirtualMachine/prod/db"]),
        (ONE_NAME.replace(b"db", b"web", 1), ["web", "db"]),
    ],
    ids=["namespaces", "kinds", "names"],
)  # fmt: skip
def test_vms_of_one_name_are_told_apart_and_the_one_that_is_meant_is_changed(text: bytes, names: list[str]) -> None:
    assert [one.name for one in KUBEVIRT.domains(text)] == names
    turn = SettingChange(knob="disk.cache", at="root", value="writethrough")
    for number, name in enumerate(names):
        after = KUBEVIRT.domains(KUBEVIRT.alter(text, turn, domain=name))
        assert [one.disks[0].cache for one in after] == [
            "writethrough" if other == number else "none" for other in (0, 1)
        ]


def test_of_two_vms_with_the_same_name_neither_is_changed() -> None:
    same = ONE_NAME.replace(b"test", b"prod")
    with pytest.raises(PlanError, match="2 VMs are named 'VirtualMachine/prod/db' here"):
        KUBEVIRT.alter(
            same, SettingChange(knob="disk.cache", at="root", value="none"), domain="VirtualMachine/prod/db"
        )


LAUGHS = "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]\n" for n in range(1, 40))


@pytest.mark.parametrize(
    "hostile",
    [
        HEAD + "x0: &x0 lol\n" + LAUGHS,
        HEAD + "x: " + "[" * 100_000,
        HEAD + "x:\n" + "- " * 100_000,
        HEAD + "x: &x [*x]\nspec: *x\n" * 40,
        HEAD + "x: {" + "a: b, " * 200_000 + "}",
        HEAD + "x: *nothing\n",
        HEAD + "x: [\n",
        HEAD + "spec: {domain: {cpu: {cores: 99999999}, devices: {}}}\n",
        HEAD + "y: !!python/object/apply:os.system [true]\n",
    ],
    ids=["laughs", "brackets", "dashes", "itself", "large", "alias", "open", "cores", "python"],
)
def test_hostile_yaml_is_refused_at_once(hostile: str) -> None:
    began = time.process_time()
    with pytest.raises(ReadError):
        KUBEVIRT.domains(hostile.encode())
    assert time.process_time() - began < 2


def test_what_an_alias_shares_is_not_altered() -> None:
    disks = "[&d {name: a, disk: {bus: virtio}}, *d]"
    shared = f"{HEAD}spec: {{domain: {{devices: {{disks: {disks}}}}}}}\n"
    with pytest.raises(PlanError, match="shared by an alias"):
        KUBEVIRT.alter(shared.encode(), SettingChange(knob="disk.cache", at="a", value="none"))


@pytest.mark.parametrize(
    ("architecture", "more", "bus"),
    [
        ("", "", "sata"), ("architecture: amd64, ", "", "sata"), ("architecture: arm64, ", "", "virtio"),
        ("architecture: s390x, ", "", "virtio"), ("architecture: riscv64, ", "", None),
        ("", "preference: {name: fedora}, ", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("disk", ["disk: {}", "disk: {readonly: false}", "lun: {}"])
def test_a_disk_without_a_bus_has_that_of_its_platform(
    architecture: str, more: str, bus: str | None, disk: str
) -> None:
    devices = f"{{domain: {{devices: {{disks: [{{name: root, {disk}}}, {{name: b, disk: {{bus: scsi}}}}]}}}}}}"
    spec = f"{{{more}template: {{spec: {{{architecture}{devices[1:]}}}}}"
    text = f"apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {{name: db}}\nspec: {spec}\n".encode()
    assert [disk.bus for disk in KUBEVIRT.read(text).disks] == [bus, "scsi"]
