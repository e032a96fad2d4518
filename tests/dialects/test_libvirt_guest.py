# SPDX-License-Identifier: Apache-2.0
"""What domain XML says of a guest's reach and power, and which turns it does not have yet; on real files."""

from pathlib import Path

import pytest

from virtune.apply.health import Sign, read_sign
from virtune.dialects.libvirt.alter import LIBVIRT, unmet
from virtune.dialects.libvirt.domain import (
    after_power_off,
    boot_disks,
    disk_text,
    has_agent,
    has_console,
    read_domain,
)
from virtune.model.domain import SettingChange
from virtune.model.errors import ReadError, UsageError

DOMAINS = Path(__file__).parents[1] / "captures" / "domains"
FILES = sorted(DOMAINS.glob("*.xml"))


def text_of(name: str) -> bytes:
    return (DOMAINS / f"{name}.xml").read_bytes()


def wrapped(inside: str, rest: str = "") -> bytes:
    return f"<domain type='kvm'><name>g</name>{rest}<devices>{inside}</devices></domain>".encode()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_one_disk_s_element_is_that_disk(path: Path) -> None:
    text = path.read_bytes()
    for disk in read_domain(text).disks:
        written = disk_text(text, disk.target)
        assert written.encode() in text
        (again,) = read_domain(wrapped(written)).disks
        assert (again.target, again.source, again.cache) == (disk.target, disk.source, disk.cache)
    assert boot_disks(text) <= {disk.target for disk in read_domain(text).disks}
    assert after_power_off(text) == "destroy"


def test_what_a_guest_boots_from_is_what_has_an_order_or_comes_first() -> None:
    disk = "<disk type='file'><source file='/{0}'/><target dev='{0}' bus='virtio'/>{1}</disk>"
    cdrom = "<disk type='file' device='cdrom'><source file='/i'/><target dev='sda' bus='sata'/></disk>"
    assert boot_disks(wrapped(cdrom + disk.format("vda", "") + disk.format("vdb", ""))) == {"vda"}
    ordered = disk.format("vda", "") + disk.format("vdb", "<boot order='1'/>")
    assert boot_disks(wrapped(ordered)) == {"vdb"}
    assert boot_disks(wrapped(cdrom)) == frozenset()


def test_how_a_guest_is_reached_and_what_its_power_off_does() -> None:
    agent = "<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>"
    assert has_agent(wrapped(agent))
    assert not has_agent(wrapped(agent.replace("org.qemu.guest_agent.0", "com.redhat.spice.0")))
    assert has_console(wrapped("<console type='pty'/>"))
    assert not has_console(wrapped("<serial type='file'><source path='/x'/></serial>"))
    assert after_power_off(wrapped("", "<on_poweroff>restart</on_poweroff>")) == "restart"
    with pytest.raises(ReadError, match="no disk 'vdz'"):
        disk_text(wrapped(""), "vdz")


def test_a_turn_is_met_once_it_was_made() -> None:
    text = text_of("virt-manager-linux")
    target = read_domain(text).disks[0].target
    turns = [
        SettingChange(knob="disk.cache", at=target, value="directsync"),
        SettingChange(knob="device.iothread", at=target, value="1"),
        SettingChange(knob="iothread.count", value="1"),
        SettingChange(knob="disk.throttle_iops", at=target, value="500"),
        SettingChange(knob="device.queue_size", at=target, value="512"),
    ]
    assert unmet(text, turns) == tuple(turns)
    assert unmet(LIBVIRT.alter(text, *turns), turns) == ()
    gone = SettingChange(knob="disk.cache", at=target, value=None)
    assert unmet(LIBVIRT.alter(text, *turns), [gone]) == (gone,)


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("guest-agent", Sign(kind="guest-agent")),
        ("ping", Sign(kind="ping")),
        ("ping:fe80::1%br0", Sign(kind="ping", detail="fe80::1%br0")),
        ("console:login: $", Sign(kind="console", detail="login: $")),
    ],
)
def test_a_sign_of_health_is_read(text: str, sign: Sign) -> None:
    assert read_sign(text) == sign


@pytest.mark.parametrize(
    "text", ["", "agent", "guest-agent:x", "ping:", "ping:-c1", "ping:a b", "console:", "console:["]
)
def test_what_is_no_sign_of_health_is_said(text: str) -> None:
    with pytest.raises(UsageError):
        read_sign(text)
