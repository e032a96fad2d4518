# SPDX-License-Identifier: Apache-2.0
"""Nova's own file: the cache and the discard of all disks of a kind, and where the rest is said."""

from pathlib import Path

import pytest

from virtune.dialects.nova import NOVA
from virtune.model.domain import SettingChange
from virtune.model.errors import PlanError

PLACE = Path(__file__).parents[1] / "captures" / "nova"
LOCAL = (PLACE / "compute-local.conf").read_bytes()
CEPH = (PLACE / "compute-ceph.conf").read_bytes()


def test_a_disk_stands_for_all_of_its_kind() -> None:
    domain = NOVA.read(LOCAL)
    assert [(one.target, one.cache, one.discard) for one in domain.disks] == [
        ("file", "unsafe", "unmap"),
        ("block", "none", "unmap"),
        ("network", "none", "unmap"),
        ("mount", "none", "unmap"),
    ]
    assert (domain.kind, domain.disks[0].line) == ("kvm", 14)
    assert NOVA.read(CEPH).disks[2].cache == "writeback"


@pytest.mark.parametrize(
    ("text", "turn", "before", "after"),
    [
        (LOCAL, SettingChange(knob="disk.cache", at="file", value="none"), b"file=unsafe,", b"file=none,"),
        (LOCAL, SettingChange(knob="disk.cache", at="mount", value="none"), b"block=none", b"block=none,mount=none"),
        (LOCAL, SettingChange(knob="disk.discard", at="file", value=None), b"hw_disk_discard = unmap\n", b""),
        (CEPH, SettingChange(knob="disk.cache", at="network", value="none"),
         b'"network=writeback"', b'"network=none"'),
        (CEPH, SettingChange(knob="disk.cache", at="network", value=None),
         b'disk_cachemodes="network=writeback"\n', b""),
        (
            CEPH,
            SettingChange(knob="disk.discard", at="network", value="unmap"),
            b"inject_password = false\n",
            b"inject_password = false\nhw_disk_discard = unmap\n",
        ),
    ],
    ids=str,
)  # fmt: skip
def test_only_the_named_words_change(text: bytes, turn: SettingChange, before: bytes, after: bytes) -> None:
    assert text.count(before) == 1
    assert NOVA.alter(text, turn) == text.replace(before, after)


def test_a_new_line_follows_what_goes_on_with_the_last_setting() -> None:
    text = b"[libvirt]\nvirt_type = kvm\ncpu_models = Haswell,\n  Skylake\n\n[other]\n"
    altered = NOVA.alter(text, SettingChange(knob="disk.discard", at="file", value="unmap"))
    assert altered == text.replace(b"  Skylake\n", b"  Skylake\nhw_disk_discard = unmap\n")


def test_what_an_image_or_a_flavor_says_is_refused_with_the_command() -> None:
    with pytest.raises(PlanError, match="openstack image set --property hw_disk_bus=virtio"):
        NOVA.alter(LOCAL, SettingChange(knob="device.bus", at="file", value="virtio"))
    with pytest.raises(PlanError, match="openstack flavor set --property quota:disk_total_iops_sec"):
        NOVA.alter(LOCAL, SettingChange(knob="disk.throttle_iops", at="file", value="500"))
