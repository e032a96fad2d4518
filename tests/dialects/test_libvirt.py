# SPDX-License-Identifier: Apache-2.0
"""Domain XML of many makers is read; hostile XML is refused or handled, quickly and in little memory."""

import contextlib
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtune.dialects.libvirt.domain import may_be_domain, read_domain
from virtune.dialects.text.xml import BYTES_MAX, read_document
from virtune.model.domain import disk_of
from virtune.model.errors import ReadError

DOMAINS = Path(__file__).parents[1] / "captures" / "domains"
FILES = sorted(DOMAINS.glob("*.xml"))


def captured(name: str) -> bytes:
    return (DOMAINS / f"{name}.xml").read_bytes()


def domain(*disks: str, rest: str = "") -> bytes:
    return (
        f"<domain type='kvm'><name>d</name><vcpu>2</vcpu>{rest}<devices>{''.join(disks)}</devices></domain>".encode()
    )


def test_there_are_domains_of_every_maker() -> None:
    makers = {path.name.partition("-")[0] for path in FILES}
    assert len(FILES) >= 40
    assert makers >= {"virt", "proxmox", "nova", "ovirt", "vagrant", "kubevirt", "boxes"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_captured_domain_is_read(path: Path) -> None:
    found = read_domain(path.read_bytes())
    assert found.name
    assert found.vcpus >= 1
    assert [disk for disk in found.disks if disk.target and disk.bus]
    assert all(disk.line > 1 or path.stem == "one-line" for disk in found.disks)


def test_a_tuned_domain_is_read_in_all_its_words() -> None:
    found = read_domain(captured("virt-manager-tuned"))
    (disk,) = found.disks
    assert (disk.target, disk.bus, disk.source.kind, disk.source.name) == ("vda", "virtio", "block", "/dev/nvme0n1p4")
    assert (disk.cache, disk.io, disk.discard, disk.detect_zeroes) == ("none", "native", "unmap", "off")
    assert (disk.iothread, disk.queues, found.threads_of(disk)) == (1, 4, (1,))
    assert (found.pin("iothread:1"), found.pin("vcpu:2"), found.pin("emulator")) == ("0-1", "4", "0-1")
    assert found.machine == "pc-q35-7.2"


def test_what_lies_elsewhere_is_found() -> None:
    scsi = read_domain(captured("ovirt-scsi"))
    assert scsi.threads_of(scsi.disks[0]) == (1,)
    assert read_domain(captured("virt-manager-snapshots")).disks[0].backing == 3
    assert read_domain(captured("virt-install-default")).disks[0].backing is None
    assert read_domain(captured("kubevirt-supplemental-pool")).disks[0].mapping == (1, 2)
    assert dict(read_domain(captured("virt-manager-limits")).disks[0].limits)["total_iops_sec"] == 2000
    assert read_domain(captured("nova-rbd")).disks[0].source.protocol == "rbd"
    assert read_domain(captured("status-of-a-running-one")).name == "run1"
    written = read_domain(captured("hand-written"))
    assert (written.name, written.disks[0].source.name) == ("Größe & Maß", '/data/a <b> "c".raw')
    polled = read_domain(captured("qemu-commandline"))
    assert (polled.threads[0].poll_max_ns, polled.written) == (0, frozenset({"iothreadids/iothread/poll"}))


def test_what_is_not_written_is_not_made_up_and_a_stack_gets_qemus_defaults() -> None:
    disk = read_domain(captured("virt-install-default")).disks[0]
    assert (disk.cache, disk.io, disk.queues, disk.iothread) == (None, None, None, None)
    stack = disk_of(disk)
    assert stack is not None
    assert (stack.cache, stack.aio, stack.format, stack.discard) == ("writeback", "threads", "qcow2", "unmap")
    assert disk_of(read_domain(captured("nova-rbd")).disks[0]) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "no XML"),
        (b"<domain>", "no XML"),
        (b"\xff\xfe<\0d\0", "UTF-16"),
        (b"<?xml version='1.0' encoding='latin-1'?><domain/>", "latin-1"),
        (b"<domain><name>\xc3\x28</name></domain>", "no XML"),
        (b"<!DOCTYPE domain><domain/>", "document type"),
        (b"<!DOCTYPE d [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><domain><name>&e;</name></domain>", "document type"),
        (b"<!DOCTYPE d SYSTEM 'http://127.0.0.1:1/x.dtd'><domain/>", "document type"),
        (b"<domain><name>&undefined;</name></domain>", "no XML"),
        (b"<network><name>default</name></network>", "it is not a libvirt domain"),
        (domain("<disk><driver queues='many'/><target dev='vda'/></disk>"), "queues='many' is not a whole number"),
        (domain("<disk type='magic'><source x='y'/><target dev='vda'/></disk>"), "magic"),
        (domain(rest="<iothreads>99999999999</iothreads>"), "more than a host can have"),
        (domain(rest="<iothreads>-1</iothreads>"), "not a whole number"),
        (b"<domain>" + b"<a>" * 600 + b"</a>" * 600 + b"</domain>", "nested"),
        (b"<domain>" + b"<a/>" * 200_000 + b"</domain>", "elements"),
        (b" " * (BYTES_MAX + 1), "larger"),
    ],
    ids=lambda value: repr(value[:40]),
)
def test_what_is_broken_or_hostile_is_refused_in_a_sentence(text: bytes, says: str) -> None:
    with pytest.raises(ReadError, match=says) as caught:
        read_domain(text)
    assert len(caught.value.message) < 200


LAUGHS = b"<!DOCTYPE l [<!ENTITY a 'ha'>" + b"".join(
    b"<!ENTITY %c '%s'>" % (98 + n, b"&%c;" % (97 + n) * 10) for n in range(20)
) + b"]><domain><name>&u;</name></domain>"  # fmt: skip
DISK = (
    "<disk type='file'><driver name='qemu' type='raw'/><source file='/d/{0}'/><backingStore/>"
    "<target dev='vd{0}'/></disk>"
)
HOSTILE = {
    "billion laughs": lambda: LAUGHS,
    "100 MB": lambda: b"<domain><name>" + b"x" * 100_000_000 + b"</name></domain>",
    "10,000 disks": lambda: domain(*(DISK.format(number) for number in range(10_000))),
    "a million attributes": lambda: b"<domain " + b" ".join(b"a%d=''" % n for n in range(350_000)) + b"/>",
    "new lines only": lambda: b"<domain>" + b"\n" * (BYTES_MAX - 100) + b"</domain>",
    "unclosed quotes": lambda: b"<domain a='" + b'<b c="' * 500_000,
}
"""Each made when it is read: every worker reads this file."""


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_xml_costs_little_time_and_memory(name: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.xml"
    path.write_bytes(HOSTILE[name]())
    program = (
        "import sys; from virtune.dialects.libvirt.domain import read_domain; "
        "from virtune.dialects.text.xml import BYTES_MAX; from virtune.model.errors import ReadError\n"
        "try: read_domain(open(sys.argv[1], 'rb').read(BYTES_MAX + 1))\n"
        "except ReadError as error: print(error)\n"
        "print(next(int(line.split()[1]) // 1024 for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    assert done.returncode == 0, done.stderr[-500:]
    assert int(done.stdout.split()[-1]) < 200, done.stdout[-300:]
    assert spent < 2


def test_reading_takes_time_in_proportion() -> None:
    def seconds(elements: int) -> float:
        text = b"<domain>" + b"<a></a>" * elements + b"</domain>"
        begun = time.process_time()
        read_document(text)
        return time.process_time() - begun

    def best(elements: int) -> float:
        return min(seconds(elements) for _ in range(3))

    # work that grows with the square would take a hundred times as long
    assert best(40_000) < 50 * max(best(4_000), 0.002)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(noise: bytes) -> None:
    text = captured("virt-install-default")
    for hostile in (noise, text[: len(noise) * 3] + noise + text[len(noise) * 4 :]):
        with contextlib.suppress(ReadError):
            assert read_domain(hostile).vcpus >= 0


def test_other_objects_of_libvirt_are_known_as_such() -> None:
    assert not may_be_domain(b"<network><name>default</name></network>")
    assert not may_be_domain(b"<html/>")
    assert not may_be_domain(b"<!-- <domain> --><pool/>")
    assert not may_be_domain(b"<domains/>")
    assert may_be_domain(b"<domain/>")
    assert may_be_domain(
        b"\xef\xbb\xbf<?xml version='1.0'?>\n<!-- a <network> -->\n<domstatus state='running'><domain"
    )
