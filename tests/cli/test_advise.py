# SPDX-License-Identifier: Apache-2.0
"""`virtune apply advise` as a user calls it."""

import re
import subprocess
from pathlib import Path

import pytest
from tests.conftest import User
from tests.published import complaints, strictly

from virtune.dialects.libvirt.alter import LIBVIRT
from virtune.flows.domains.advise import read_turn

DOMAINS = Path(__file__).parents[1] / "captures" / "domains"


def file(name: str) -> str:
    return str(DOMAINS / f"{name}.xml")


def test_with_nothing_named_errors_and_warnings_are_fixed(user: User) -> None:
    ran = user.run("apply", "advise", file("vagrant-cache-unsafe"))
    assert "proj_ci: 1 change" in ran.stdout
    assert "disk.cache@vda = none   [power-off; risks performance]" in ran.stdout
    assert "+      <driver name='qemu' type='qcow2' cache='none' discard='unmap'/>" in ran.stdout
    assert user.run("apply", "advise", file("study3-flash")).stdout == "flash: nothing to change\n"


def test_what_no_knob_fixes_is_said(user: User) -> None:
    ran = user.run("apply", "advise", file("virt-manager-limits"))
    assert "left alone: R47 vda: total_bytes_sec=104857600" in ran.stdout


def test_a_rule_a_turn_and_the_template(user: User) -> None:
    assert "device.bus@sda = virtio" in user.run("apply", "advise", file("vagrant-sata"), "--rule", "R27").stdout
    ran = user.run(
        "advise", file("vagrant-sata"), "--set", "disk.cache@sda=none", "--set", "device.rotation_rate@sda=1"
    )
    assert "2 changes" in ran.stdout
    assert "rotation_rate='1'" in ran.stdout
    found = strictly(user.run("apply", "advise", str(DOMAINS), "--template", "flash", "--json").stdout)
    assert complaints("advice", found) == []
    assert len(found["domains"]) == 55
    assert {turn["value"] for one in found["domains"] for turn in one["turns"] if turn["knob"] == "disk.aio"} == {
        "io_uring"
    }
    for one in found["domains"]:
        assert len(one["left"]) == len(one["left_reasons"])
        assert len(one["warnings"]) == len(one["warning_rules"])
    coded = {part["reason"] for one in found["domains"] for part in one["left_reasons"]}
    assert {"no-iothread-on-bus", "not-opened-here", "durable-cache", "free-cpus-unknown"} <= coded


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "nothing to advise on"),
        ((file("vagrant-sata"), "--set", "disk.cache"), "turns no knob"),
        ((file("vagrant-sata"), "--set", "disk.chache@sda=none"), "disk.cache"),
        ((file("vagrant-sata"), "--set", "disk.cluster_size@sda=64k"), "cannot be written into a libvirt domain"),
        ((file("vagrant-sata"), "--set", "device.queue_size@sda=500"), "not a power of two"),
        ((file("vagrant-sata"), "--template", "flash", "--rule", "R01"), "cannot be together"),
    ],
)
def test_a_wish_that_cannot_be_is_refused_in_a_sentence(user: User, words: tuple[str, ...], says: str) -> None:
    assert says in user.run("apply", "advise", *words, status=2).stderr


def test_the_difference_of_a_file_of_windows_can_be_applied_to_it(user: User, tmp_path: Path) -> None:
    path = tmp_path / "w.xml"
    text = (DOMAINS / "hand-written.xml").read_bytes().replace(b"\n", b"\r\n").rstrip(b"\r\n")
    path.write_bytes(text)
    ran = user.run("apply", "advise", str(path), "--set", "disk.aio@vda=io_uring", "--json")
    diff = strictly(ran.stdout)["domains"][0]["diff"]
    subprocess.run(["patch", "--binary", str(path)], input=f"{diff}\n".encode(), check=True, capture_output=True)
    assert path.read_bytes() == LIBVIRT.alter(text, read_turn("disk.aio@vda=io_uring"))
    assert diff.splitlines()[2:] != []


def test_a_setting_without_a_disk_is_told_which_there_are(user: User) -> None:
    ran = user.run("apply", "advise", file("vagrant-sata"), "--set", "disk.cache=none", status=2)
    assert "disk.cache needs a disk: write disk.cache@DISK=none" in ran.stderr
    assert "its disks: sda" in ran.stderr


def test_the_structure_for_requirements_is_told_question_by_question(user: User) -> None:
    said = user.run("apply", "advise", "--for-requirements", "scale-out=no,own=no,virtio=yes").stdout
    assert "does the guest use virtio-blk? yes" in said
    assert "structure 4: one VM, an IOThread for each disk" in said
    assert "0.78 of bare metal's reads" in said
    rows = said.partition("\nall of them\n")[2].split("\nstructure ")[1:]
    assert [row.split(":")[0] for row in rows] == ["1", "3", "4", "2"]
    ways = ("scale-out=yes", "own=yes", "virtio=yes", "virtio=no")
    assert all(way in row for row, way in zip(rows, ways, strict=True))
    assert "be moved live" in rows[1]
    assert [line for line in said.splitlines() if line.startswith("  so:")], "one structure is left"
    some = user.run("apply", "advise", "--for-requirements", "scale-out=no").stdout.partition("\nall of them\n")[0]
    assert "may one VM have the drive for itself? not said (own=yes|no)" in some
    assert re.findall(r"with (own=.*): (structure \d)", some) == [
        ("own=yes", "structure 3"), ("own=no, virtio=yes", "structure 4"), ("own=no, virtio=no", "structure 2"),
    ]  # fmt: skip
    assert some.count("as measured with") == 3
    assert "not said" not in user.run("apply", "advise", "--for-requirements", "scale-out=yes").stdout, (
        "the rest is no matter"
    )
    assert "not a requirement" in user.run("apply", "advise", "--for-requirements", "fast=yes", status=2).stderr
    assert (
        "question of its own"
        in user.run("apply", "advise", "--for-requirements", "own=yes", "x.xml", status=2).stderr
    )
