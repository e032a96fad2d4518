# SPDX-License-Identifier: Apache-2.0
"""A real libvirt takes every setting that virtune writes for a disk, and refuses what virtune says that it does."""

import subprocess
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import pytest
from tests.libvirt_settings import AS_IT_STANDS, DOMAIN, REFUSED, STANDS, TAKEN
from tests.libvirtd import Libvirtd

from virtune.dialects.libvirt import alter as unchecked
from virtune.dialects.libvirt.alter import LIBVIRT
from virtune.flows.domains.advise import read_turn
from virtune.model.domain import SettingChange
from virtune.model.errors import PlanError
from virtune.model.knob import Choice, Knob, Number, Size, Switch
from virtune.model.knobs import BY_ID

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("libvirt")]

PLACES = ("vda", "sda", "sdb", "", "scsi:0", "iothread:1", "vcpu:1", "vcpu:9")
BY_QEMU = ("disk.throttle_iops_max", "disk.throttle_group")
"""What libvirt writes and QEMU then refuses, or what only a group of several changes shows."""

NEWER = ("device.iothread_vq_mapping", "disk.discard_no_unref", "iothread.poll_max_ns", "vcpu.pin@vcpu:9")
"""What libvirt 9.0 drops without a word; newer ones refuse it."""


def taken(daemon: Libvirtd, text: bytes, folder: Path) -> str:
    """What libvirt says against a domain; nothing when it takes it."""
    file = folder / "domain.xml"
    file.write_bytes(text)
    words = ["virsh", "-q", "-c", daemon.uri, "domxml-to-native", "qemu-argv", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    return done.stderr.strip() if done.returncode else ""


def require_taken(daemon: Libvirtd, texts: Mapping[str, bytes], folder: Path) -> None:
    """Hold that libvirt takes every domain, by one virsh for all; the words say which it does not take."""
    commands = []
    for number, text in enumerate(texts.values()):
        file = folder / f"{number}.xml"
        file.write_bytes(text)
        commands.append(f"domxml-to-native qemu-argv {file}")
    words = ["virsh", "-q", "-c", daemon.uri, "; ".join(commands)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200)
    if done.returncode or done.stderr.strip() or done.stdout.count("qemu-system-x86_64") < len(texts):
        said = {words: taken(daemon, text, folder) for words, text in texts.items()}
        assert not {words: one for words, one in said.items() if one}
        assert not done.stderr, done.stderr


def values(knob: Knob) -> tuple[str, ...]:
    match knob.domain:
        case Choice(values=words):
            return words
        case Number(low=low, high=high):
            return tuple(str(number) for number in (low, 4, 5000) if low <= number <= high)
        case Size(low=low):
            return (str(max(low, 4096)),)
        case Switch():
            return ("on", "off")
    return ("0", "1")


def test_what_is_written_is_taken(daemon: Libvirtd, tmp_path: Path) -> None:
    assert taken(daemon, DOMAIN, tmp_path) == ""
    written = {}
    for knob, place in product(LIBVIRT.says, PLACES):
        for value in values(BY_ID[knob]):
            try:
                text = LIBVIRT.alter(DOMAIN, SettingChange(knob=knob, at=place, value=value))
            except PlanError:
                continue
            written[f"{knob}@{place}={value}"] = text
    assert len(written) > 100
    for words in TAKEN:
        written[words] = LIBVIRT.alter(DOMAIN, *map(read_turn, words.split()))
    require_taken(daemon, written, tmp_path)


def test_what_is_said_of_a_domain_as_it_stands_libvirt_says_too(daemon: Libvirtd, tmp_path: Path) -> None:
    require_taken(daemon, STANDS, tmp_path)
    for words, (text, _) in AS_IT_STANDS.items():
        assert taken(daemon, text, tmp_path) != "", words


def test_what_is_refused_libvirt_would_refuse(daemon: Libvirtd, tmp_path: Path) -> None:
    refused = 0
    for words in REFUSED:
        if words.startswith((*BY_QEMU, *NEWER)):
            continue
        text = DOMAIN
        try:
            for turn in map(read_turn, words.split()):
                text = unchecked.alter(text, turn)
        except PlanError:  # a place or a number that is not even written
            continue
        refused += 1
        assert taken(daemon, text, tmp_path) != "", words
    assert refused > 12
