# SPDX-License-Identifier: Apache-2.0
"""OpenStack's images and flavors: what their properties say of disks, and the commands that change them."""

from pathlib import Path

import pytest

from virtune.advise.audit import audit
from virtune.dialects.openstack import OPENSTACK
from virtune.flows.domains.advise import Wish, advise
from virtune.flows.domains.domains import FoundDomain
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
    ("text", "turn", "command"),
    [
        (
            IDE, SettingChange(knob="device.bus", value="virtio"),
            "openstack image set --property hw_disk_bus=virtio 0b5d2b06-2a0e-43d6-9d2e-0f6f2c1c7f11",
        ),
        (
            SCSI, SettingChange(knob="device.packed", at="disks", value="on"),
            "openstack image set --property hw_virtio_packed_ring=true 7f8e6c2a-6c0c-4c0e-9d55-7d6bb1f9a8de",
        ),
        (
            SCSI, SettingChange(knob="device.scsi_controller", value=None),
            "openstack image unset --property hw_scsi_model 7f8e6c2a-6c0c-4c0e-9d55-7d6bb1f9a8de",
        ),
        (
            LIMITED, SettingChange(knob="disk.throttle_iops", value="2000"),
            "openstack flavor set --property quota:disk_total_iops_sec=2000 b1.large",
        ),
        (
            LIMITED, SettingChange(knob="disk.throttle_bps", value="0"),
            "openstack flavor unset --property quota:disk_total_bytes_sec b1.large",
        ),
        (
            PLAIN, SettingChange(knob="disk.throttle_iops_read", value="100"),
            "openstack flavor set --property quota:disk_read_iops_sec=100 2",
        ),
    ],
    ids=str,
)  # fmt: skip
def test_a_change_is_the_command_that_makes_it(text: bytes, turn: SettingChange, command: str) -> None:
    altered = OPENSTACK.alter(text, turn)
    assert OPENSTACK.commands is not None
    assert OPENSTACK.commands(text, altered, "x") == (command,)
    assert OPENSTACK.alter(altered, turn) == altered
    found = FoundDomain(origin="x", text=text, subject=Subject(domain=OPENSTACK.read(text)), language=OPENSTACK)
    advice = advise(found, Wish(turns=(turn,)))
    assert (advice.diff, advice.commands) == ("", (command,))


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
