# SPDX-License-Identifier: Apache-2.0
"""OpenStack's images and flavors: what their properties say of disks, and the commands that change them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtune.advise.audit import audit
from virtune.dialects.openstack import OPENSTACK
from virtune.dialects.text.json import read_object, remove_member, set_member
from virtune.dialects.text.lines import read_page
from virtune.model.domain import SettingChange
from virtune.model.errors import PlanError, ReadError
from virtune.model.finding import Subject

PLACE = Path(__file__).parents[1] / "captures" / "openstack"
SCSI, IDE, LIMITED, PLAIN = (
    (PLACE / f"{name}.json").read_bytes() for name in ("image-scsi", "image-ide", "flavor-limited", "flavor-plain")
)


def found(text: bytes) -> list[tuple[str, str]]:
    return [(one.rule.id, one.at) for one in audit(Subject(domain=OPENSTACK.read(text)))]


def test_what_is_wrong_is_named_and_nothing_about_a_good_one() -> None:
    assert found(SCSI) == []
    assert found(PLAIN) == []
    assert found(IDE) == [("R85", "disks"), ("R27", "disks")]
    assert found(LIMITED) == [("R47", "disks")]
    assert found(SCSI.replace(b'    "hw_scsi_model": "virtio-scsi",\n', b"")) == [("R86", "disks")]


@pytest.mark.parametrize(
    ("text", "turn", "before", "after", "command"),
    [
        (
            IDE, SettingChange(knob="device.bus", value="virtio"),
            b'"hw_disk_bus": "ide"', b'"hw_disk_bus": "virtio"',
            "openstack image set --property hw_disk_bus=virtio 0b5d2b06-2a0e-43d6-9d2e-0f6f2c1c7f11",
        ),
        (
            SCSI, SettingChange(knob="device.packed", at="disks", value="on"), b'"os_require_quiesce": "yes"\n',
            b'"os_require_quiesce": "yes",\n    "hw_virtio_packed_ring": "true"\n',
            "openstack image set --property hw_virtio_packed_ring=true 7f8e6c2a-6c0c-4c0e-9d55-7d6bb1f9a8de",
        ),
        (
            SCSI, SettingChange(knob="device.scsi_controller", value=None),
            b'    "hw_scsi_model": "virtio-scsi",\n', b"",
            "openstack image unset --property hw_scsi_model 7f8e6c2a-6c0c-4c0e-9d55-7d6bb1f9a8de",
        ),
        (
            LIMITED, SettingChange(knob="disk.throttle_iops", value="2000"),
            b'_iops_sec": "500"', b'_iops_sec": "2000"',
            "openstack flavor set --property quota:disk_total_iops_sec=2000 b1.large",
        ),
        (
            LIMITED, SettingChange(knob="disk.throttle_bps", value="0"),
            b',\n    "quota:disk_total_bytes_sec": "104857600"', b"",
            "openstack flavor unset --property quota:disk_total_bytes_sec b1.large",
        ),
        (
            PLAIN, SettingChange(knob="disk.throttle_iops_read", value="100"), b'"properties": {}',
            b'"properties": {"quota:disk_read_iops_sec": "100"}',
            "openstack flavor set --property quota:disk_read_iops_sec=100 2",
        ),
    ],
    ids=str,
)  # fmt: skip
def test_only_the_property_changes(
    text: bytes, turn: SettingChange, before: bytes, after: bytes, command: str
) -> None:
    assert text.count(before) == 1
    altered = OPENSTACK.alter(text, turn)
    assert altered == text.replace(before, after)
    assert OPENSTACK.commands is not None
    assert OPENSTACK.commands(text, altered, "x") == (command,)


@pytest.mark.parametrize(
    ("text", "turn", "says"),
    [
        (SCSI, SettingChange(knob="disk.throttle_iops", value="1"), "is the flavor's"),
        (PLAIN, SettingChange(knob="device.bus", value="virtio"), "is the image's"),
        (PLAIN, SettingChange(knob="device.packed", at="vda", value="on"), "no disk 'vda'"),
        (IDE, SettingChange(knob="device.bus", value="nvme"), "cannot be written here"),
        (PLAIN, SettingChange(knob="disk.throttle_iops", value="many"), "is no limit"),
        (IDE, SettingChange(knob="disk.cache", value="none"), "nova.conf"),
        (IDE, SettingChange(knob="disk.aio", value="io_uring"), "Nova chooses it by itself"),
    ],
)
def test_what_cannot_be_said_is_refused_with_its_place(text: bytes, turn: SettingChange, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        OPENSTACK.alter(text, turn)


@pytest.mark.parametrize(
    "text",
    [
        b'{"disk_format": "raw", "properties": "a=\'b\'"}',
        b'{"disk_format": "raw", "properties": {"a": }}',
        b'{"disk_format": "raw", "properties"',
        b'{"disk_format": ' + b"[" * 100_000,
        b'{"disk_format": "raw", "properties": {' + b'"a":{' * 50_000,
    ],
)
def test_what_is_no_such_thing_is_said(text: bytes) -> None:
    with pytest.raises(ReadError):
        OPENSTACK.read(text)


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.none(), st.lists(st.text()))), st.text())
def test_any_object_is_altered_in_one_member_only(members: dict[str, object], name: str) -> None:
    import json

    for indent in (None, 2):
        page = read_page(json.dumps(members, indent=indent).encode())
        changed = set_member(page, read_object(page), name, "x")
        assert json.loads(changed) == members | {name: "x"}
        without = remove_member(page, read_object(page), name)
        assert json.loads(without) == {key: value for key, value in members.items() if key != name}
        if name not in members and members:
            again = read_page(changed)
            assert remove_member(again, read_object(again), name) == page.text.encode()
