# SPDX-License-Identifier: Apache-2.0
"""What libvirt made of a domain is told from what it dropped, and from what somebody else changed."""

from pathlib import Path

from virtune.dialects.libvirt.alter import LIBVIRT, dropped, foreign
from virtune.model.domain import SettingChange

TEXT = (Path(__file__).parents[1] / "captures" / "domains" / "vagrant-sata.xml").read_bytes()
ASKED = LIBVIRT.alter(
    TEXT,
    SettingChange(knob="disk.cache", at="sda", value="none"),
    SettingChange(knob="iothread.count", value="1"),
    SettingChange(knob="iothread.poll_max_ns", at="iothread:1", value="7"),
)


def test_nothing_is_missing_from_what_was_asked() -> None:
    assert dropped(before=TEXT, asked=ASKED, found=ASKED) == ()
    assert foreign(asked=ASKED, found=ASKED) == ()


def test_what_is_missing_is_named() -> None:
    kept = LIBVIRT.alter(
        TEXT,
        SettingChange(knob="disk.cache", at="sda", value="none"),
        SettingChange(knob="iothread.count", value="1"),
    )
    assert dropped(before=TEXT, asked=ASKED, found=kept) == (
        "<iothreadids/iothread/poll>",
        "<iothreadids/iothread>",
        "<iothreadids>",
        "iothreadids/iothread id='1'",
        "iothreadids/iothread/poll max='7'",
    )
    assert "devices/disk[sda]/driver cache='none'" in dropped(before=TEXT, asked=ASKED, found=TEXT)


def test_order_addresses_and_controllers_are_libvirts_own() -> None:
    moved = ASKED.replace(b"bus='0' target='0' unit='0'", b"bus='1' target='1' unit='1'")
    moved = moved.replace(
        b"</devices>", b"<controller type='pci' index='9'><target port='0x9'/></controller></devices>"
    )
    assert moved != ASKED
    assert foreign(asked=ASKED, found=moved) == ()


def test_another_s_change_is_foreign() -> None:
    theirs = ASKED.replace(b"<vcpu placement='static'>2<", b"<vcpu placement='static'>4<")
    assert foreign(asked=ASKED, found=theirs) == ("<vcpu> '2'", "<vcpu> '4'")
