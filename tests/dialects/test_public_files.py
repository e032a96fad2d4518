# SPDX-License-Identifier: Apache-2.0
"""The comparison of two languages of one VM finds what differs, what is missed and what is refused."""

from pathlib import Path

import pytest
from benchmarks.public_files import main

XML = """<domain type='{kind}'><name>a</name><vcpu>1</vcpu><os><type>hvm</type></os><devices>
<disk type='file' device='disk'><driver name='qemu' type='{form}'/><source file='/srv/a.img'/>
<target dev='vda' bus='virtio'/></disk></devices></domain>
"""
LINE = """LC_ALL=C \\
/usr/bin/qemu-system-x86_64 \\
-name guest=a \\
-accel kvm \\
-blockdev '{"driver":"file","filename":"/srv/a.img","node-name":"s"}' \\
-blockdev '{"driver":"qcow2","node-name":"f","file":"s"}' \\
-device '{"driver":"virtio-blk-pci","drive":"f","id":"virtio-disk0"}'
"""


def counted(place: Path, capsys: pytest.CaptureFixture[str], *, form: str = "qcow2", line: str = LINE) -> list[str]:
    tests = place / "libvirt" / "tests" / "qemuxmlconfdata"
    tests.mkdir(parents=True)
    (tests / "a.xml").write_text(XML.format(kind="kvm", form=form))
    (tests / "a.x86_64-latest.args").write_text(line)
    main(place, 9)
    return capsys.readouterr().out.splitlines()[3:]


def test_what_agrees_is_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert counted(tmp_path, capsys) == ["| QEMU line against libvirt XML | 1 | 0 | 0 | 1 | 0 |  |"]


def test_a_field_that_differs_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert counted(tmp_path, capsys, form="raw") == [
        "| QEMU line against libvirt XML | 0 | 0 | 1 | 0 | 1 | format 1 |",
        "QEMU line against libvirt XML: a.x86_64-latest.args virtio#1: format is raw, read as qcow2",
    ]


def test_a_disk_that_is_missed_or_a_line_that_is_refused_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missed = counted(tmp_path / "a", capsys, line=LINE.replace('"driver":"virtio-blk-pci"', '"driver":"virtio-net"'))
    assert missed[0] == "| QEMU line against libvirt XML | 0 | 0 | 1 | 0 | 1 | missed 1 |"
    refused = counted(tmp_path / "b", capsys, line="ls\n")
    assert refused[0] == "| QEMU line against libvirt XML | 0 | 0 | 1 | 0 | 0 |  |"
