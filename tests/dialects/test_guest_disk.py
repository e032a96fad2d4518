# SPDX-License-Identifier: Apache-2.0
"""A stack as a guest's disk: a real QEMU takes the line, and libvirt's own schema the element."""

import json
import platform
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tests.beside import qemu_beside

from virtune.dialects.libvirt.disk import disk_xml
from virtune.dialects.qemu.guest import (
    guest_arguments,
    guest_command_line,
    machine_arguments,
    mapping_text,
)
from virtune.dialects.qemu.images import image_line, key_of
from virtune.model.stack import Device, Disk, Machine, Stack
from virtune.model.text import Bytes
from virtune.shell import find, run

IOTHREAD = Stack(export="vhost-user-blk", num_queues=2, poll_max_ns=0, disk=Disk(aio="native"))
STACKS = {
    "as it is": Stack(),
    "writeback": Stack(disk=Disk(cache="writeback", aio="io_uring")),
    "every write": Stack(disk=Disk(cache="directsync")),
    "thread and queues": IOTHREAD,
    "limited": Stack(disk=Disk(throttle_iops=500, throttle_bps=Bytes(10_000_000))),
    "qcow2": Stack(
        export="vhost-user-blk",
        disk=Disk(format="qcow2", l2_cache_size=Bytes(1048576), cluster_size=Bytes(65536), lazy_refcounts=True),
    ),
    "chain": Stack(disk=Disk(format="qcow2", aio="native", backing_depth=2)),
    "data file": Stack(rig="qemu", disk=Disk(format="qcow2", data_file=True)),
    "encrypted": Stack(rig="qemu", disk=Disk(format="qcow2", encryption="luks")),
    "as plugged": Stack(
        rig="qemu", device=Device(iothread="io1", num_queues=2, queue_size=256, packed=False), disk=Disk(aio="native")
    ),
    "spread": Stack(rig="qemu", device=Device(iothread_vq_mapping="io1:0+io2:1-2", num_queues=3), thread_pool_max=8),
    "on ahci": Stack(rig="qemu", device=Device(bus="ahci")),
    "on scsi": Stack(rig="qemu", device=Device(bus="virtio-scsi", iothread="io1")),
    "on scsi with queues": Stack(rig="qemu", device=Device(bus="virtio-scsi", scsi_num_queues=4)),
    "in a machine": Stack(rig="qemu", machine=Machine(type="q35", vcpus=3, memory=Bytes(128 * 1024**2))),
    "on nvme": Stack(rig="qemu", device=Device(bus="nvme"), disk=Disk(cache="writeback")),
    "zeroes": Stack(disk=Disk(discard="unmap", detect_zeroes="unmap")),
}
SIZE = 8 * 1024**2


def image_of(stack: Stack, directory: Path) -> Path:
    image = directory / "a disk, of <ours> & 'theirs'.img"
    if (key := key_of(stack.disk, image)) is not None:
        key.write_text("a passphrase")
    if line := image_line(stack, image=str(image), size_bytes=SIZE):
        quick = line.replace("luks,", "luks,encrypt.iter-time=10,")  # else QEMU takes long to open it
        run(["sh", "-c", quick], timeout_seconds=20)
    else:
        image.write_bytes(bytes(SIZE))
    return image


@pytest.mark.real
@pytest.mark.parametrize("name", STACKS)
def test_a_real_qemu_takes_the_line_and_shows_its_settings(name: str, tmp_path: Path) -> None:
    stack = STACKS[name]
    words = guest_arguments(stack, image=str(image_of(stack, tmp_path)), size_bytes=SIZE)
    script = tmp_path / "qmp.in"
    device = "/machine/peripheral/" + ("disk0" if stack.rig == "qemu" else "virtio-disk0")
    asked = ["write-cache", *(["num-queues"] if stack.device.bus == "virtio-blk" else []), "iothread"]
    if stack.device.bus == "nvme":
        asked = []
    if stack.device.iothread_vq_mapping:
        asked.append("iothread-vq-mapping")
    script.write_text(
        "".join(
            json.dumps(line) + "\n"
            for line in (
                {"execute": "qmp_capabilities"},
                {"execute": "query-named-block-nodes", "arguments": {"flat": True}, "id": "nodes"},
                *(
                    {"execute": "qom-get", "arguments": {"path": device, "property": p}, "id": p}
                    for p in asked
                    if p != "iothread" or (stack.in_iothread and stack.device.bus == "virtio-blk")
                ),
                {"execute": "quit"},
            )
        )
    )
    output = tmp_path / "qmp.out"
    output.touch()
    quiet = ["-machine", "q35,accel=tcg", "-nodefaults", "-no-user-config", "-S", "-display", "none"]
    monitor = ["-chardev", f"pipe,id=m,path={tmp_path / 'qmp'}", "-mon", "chardev=m,mode=control"]
    program = qemu_beside() if stack.device.iothread_vq_mapping else find(f"qemu-system-{platform.machine()}")
    run([program, *quiet, *monitor, *machine_arguments(stack), *words], timeout_seconds=30, stdin="")
    replies = {r["id"]: r for r in map(json.loads, output.read_text().splitlines()) if "id" in r}
    nodes = {node["node-name"]: node for node in replies["nodes"]["return"]}
    file = nodes["file0"]
    assert file["drv"] == "file"
    assert file["cache"]["direct"] == (stack.disk.cache in ("none", "directsync"))
    assert file["cache"]["no-flush"] == (stack.disk.cache == "unsafe")
    assert nodes["format0"]["drv"] == stack.disk.format
    assert ("limit0" in nodes) == (stack.disk.throttle_iops is not None)
    if "write-cache" in asked:
        assert replies["write-cache"]["return"] == ("off" if stack.disk.cache == "directsync" else "on")
    if queues := stack.num_queues or stack.device.num_queues:
        assert replies["num-queues"]["return"] == queues
    if stack.device.iothread_vq_mapping:
        shown = replies["iothread-vq-mapping"]["return"]
        assert mapping_text(shown, queues=True) == stack.device.iothread_vq_mapping
    elif "iothread" in replies:
        assert replies["iothread"]["return"] == f"/objects/{stack.device.iothread or 'iothread0'}"


def test_the_line_can_be_pasted() -> None:
    line = guest_command_line(guest_arguments(IOTHREAD, image="/a b/c'd.img", size_bytes=SIZE))
    assert line.count(" \\\n") == 3
    shown = run(["sh", "-c", f'for word in {line}; do printf "%s\\n" "$word"; done'], timeout_seconds=5).stdout
    assert shown.splitlines() == list(guest_arguments(IOTHREAD, image="/a b/c'd.img", size_bytes=SIZE))


def domain(name: str) -> str:
    image = "/var/lib/a <b> & 'c'.img"
    xml = disk_xml(STACKS[name], image=image)
    devices = f"<devices><emulator>/usr/bin/qemu-system-x86_64</emulator>\n{xml.controller}{xml.disk}\n</devices>"
    head = "<name>x</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>"
    return f"<domain type='kvm'>{head}{xml.domain}<os><type arch='x86_64'>hvm</type></os>{devices}</domain>"


@pytest.mark.real
@pytest.mark.parametrize("name", [name for name in STACKS if STACKS[name].device.bus != "nvme"])
def test_libvirts_own_schema_takes_the_element(name: str, tmp_path: Path) -> None:
    stack, text = STACKS[name], domain(name)
    root = ET.fromstring(text)  # noqa: S314 - our own text
    source = root.find("devices/disk/source")
    assert source is not None
    assert source.get("file") == "/var/lib/a <b> & 'c'.img"
    if "<poll" in text:
        # libvirt 9.0's schema does not know <poll>, which came with 9.4; the rest must pass all the same
        for thread in root.findall("iothreadids/iothread"):
            thread.remove(thread[0])
    if stack.device.iothread_vq_mapping:
        # nor several threads for one disk, which came with 10.0
        driver = root.find("devices/disk/driver")
        assert driver is not None
        assert [[queue.get("id") for queue in one] for one in driver[0]] == [["0"], ["1", "2"]]
        driver.remove(driver[0])
    text = ET.tostring(root, encoding="unicode")
    path = tmp_path / "domain.xml"
    path.write_text(text)
    run([find("virt-xml-validate"), str(path), "domain"], timeout_seconds=20)


def test_a_thread_comes_with_its_number_and_how_it_polls() -> None:
    xml = disk_xml(IOTHREAD, image="/disk.img", iothread=3, block_device=True, target="vdb")
    assert "iothread='3'" in xml.disk
    assert "<source dev='/disk.img'/>" in xml.disk
    assert "<iothread id='3'><poll max='0'/></iothread>" in xml.domain
    assert "libvirt 9.4" in xml.notes[0]


def test_a_scsi_disk_hangs_on_a_controller_that_has_its_queues_and_its_thread() -> None:
    xml = disk_xml(STACKS["on scsi"], image="/x")
    assert "iothread" not in xml.disk
    assert "<target dev='sda' bus='scsi'/>" in xml.disk
    controller = ET.fromstring(xml.controller)  # noqa: S314 - our own text
    assert controller.attrib == {"type": "scsi", "index": "0", "model": "virtio-scsi"}
    assert [driver.attrib for driver in controller] == [{"iothread": "1"}]
    queues = ET.fromstring(disk_xml(STACKS["on scsi with queues"], image="/x").controller)  # noqa: S314 - our own
    assert [driver.attrib for driver in queues] == [{"queues": "4"}]
    assert disk_xml(STACKS["as plugged"], image="/x").controller == ""


def test_what_of_a_machine_was_asked_for_is_written_and_nothing_else() -> None:
    assert machine_arguments(STACKS["as plugged"]) == ()
    assert machine_arguments(STACKS["in a machine"]) == ("-machine", "q35", "-smp", "3", "-m", "134217728B")
    pages = Machine(memory=Bytes(256 * 1024**2), hugepages=Bytes(2 * 1024**2), cpu="host")
    assert machine_arguments(Stack(rig="qemu", machine=pages)) == (
        *("-cpu", "host", "-m", "268435456B", "-object"),
        "memory-backend-memfd,id=memory0,size=268435456,hugetlb=on,hugetlbsize=2097152,prealloc=on,share=on",
        *("-machine", "memory-backend=memory0"),
    )


def test_what_libvirt_has_no_words_for_is_said() -> None:
    with pytest.raises(ValueError, match="without an image in a file"):
        disk_xml(Stack(disk=Disk(backend="null-co")), image="")
    with pytest.raises(ValueError, match="not written for libvirt"):
        disk_xml(STACKS["on nvme"], image="/x")
