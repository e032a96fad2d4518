# SPDX-License-Identifier: Apache-2.0
"""QEMU's command line: what is read of it is what a real QEMU has."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtune.dialects.languages import language_of
from virtune.dialects.qemu.command import QEMU, read_words
from virtune.model.domain import DomainDisk, SettingChange
from virtune.model.errors import PlanError, ReadError
from virtune.shell import run

PLACE = Path(__file__).parents[1] / "captures" / "qemu"


def test_what_libvirt_starts_and_what_is_written_by_hand() -> None:
    text = (PLACE / "libvirt.cmdline").read_bytes()
    assert language_of(text) is QEMU
    web = QEMU.read(text)
    (disk,) = web.disks
    assert (web.name, web.vcpus, web.machine, web.kind) == ("web", 4, "pc-q35-7.2", "kvm")
    assert (disk.cache, disk.io, disk.discard, disk.detect_zeroes) == ("none", "native", "unmap", "unmap")
    assert (disk.source.kind, disk.source.name, disk.queues, disk.queue_size) == ("block", "/dev/vg/web", 4, 512)
    assert web.threads_of(disk) == (1,)
    lab = QEMU.read((PLACE / "by-hand.cmdline").read_bytes())
    assert [(one.bus, one.device, one.source.name) for one in lab.disks] == [
        ("virtio", "disk", "/srv/my disk,1.qcow2"),
        ("ide", "cdrom", "/srv/iso/d.iso"),
        ("ide", "disk", "/srv/old.img"),
    ]
    assert (lab.vcpus, lab.disks[0].cache, lab.disks[0].format) == (2, "unsafe", "qcow2")
    with pytest.raises(PlanError, match="keeps the line"):
        QEMU.alter(text, SettingChange(knob="disk.cache", at="virtio-disk0", value="none"))


LINES = {
    "drive": ["-drive", "file={0},if=none,id=d,format=raw,cache={1},aio=threads,detect-zeroes=on",
              "-device", "virtio-blk-pci,drive=d,id=v,num-queues=2,queue-size=128"],
    "key=value": ["-object", "iothread,id=t",
                  "-blockdev", "driver=file,node-name=f,filename={0},cache.direct=off",
                  "-blockdev", "driver=raw,node-name=d,file=f,cache.direct=off,detect-zeroes=on",
                  "-device", "virtio-blk-pci,drive=d,id=v,num-queues=2,queue-size=128,iothread=t"],
    "inner": ["-blockdev", "driver=raw,node-name=d,detect-zeroes=on,file.driver=file,file.filename={0}",
              "-device", "virtio-blk-pci,drive=d,id=v,num-queues=2,queue-size=128,write-cache=off"],
    "json": ["-blockdev", '{{"driver":"file","filename":"{0}","node-name":"s","aio":"threads"}}',
             "-blockdev", '{{"driver":"raw","file":"s","node-name":"d","detect-zeroes":"on"}}',
             "-device", '{{"driver":"virtio-blk-pci","drive":"d","id":"v","num-queues":2,"queue-size":128}}'],
}  # fmt: skip


@pytest.mark.real
@pytest.mark.parametrize(
    ("line", "cache"),
    [*(("drive", c) for c in ("none", "writeback", "writethrough", "directsync", "unsafe")),
     ("key=value", "-"), ("inner", "-"), ("json", "-")],
)  # fmt: skip
def test_what_is_read_is_what_a_real_qemu_has(line: str, cache: str, tmp_path: Path) -> None:
    image = tmp_path / "image.raw"
    image.write_bytes(bytes(1024 * 1024))
    words = ["qemu-system-x86_64", "-S", "-nodefaults", "-display", "none", "-machine", "q35,accel=tcg"]
    words += [word.format(image, cache) for word in LINES[line]]
    asked: list[dict[str, object]] = [{"execute": "qmp_capabilities"}, {"execute": "query-block", "id": "block"}]
    asked += [
        {"execute": "qom-get", "arguments": {"path": "/machine/peripheral/v", "property": name}, "id": name}
        for name in ("num-queues", "queue-size", "write-cache")
    ]
    script = tmp_path / "qmp"
    script.write_text("".join(json.dumps(one) + "\n" for one in [*asked, {"execute": "quit"}]))
    done = run(
        ["sh", "-c", 'in=$1; shift; exec "$@" -qmp stdio < "$in"', "-", str(script), *words], timeout_seconds=30
    )
    answers = {one["id"]: one["return"] for one in map(json.loads, done.stdout.splitlines()) if "id" in one}
    (disk,) = read_words(words).disks
    (block,) = answers["block"]
    inserted = block["inserted"]
    assert inserted["file"] == disk.source.name
    assert (inserted["drv"], inserted["detect_zeroes"], inserted["ro"]) == ("raw", disk.detect_zeroes, disk.read_only)
    assert (answers["num-queues"], answers["queue-size"]) == (disk.queues, disk.queue_size)
    assert cache_in_force(inserted["cache"], writeback=answers["write-cache"]) == disk.cache


def cache_in_force(cache: dict[str, bool], *, writeback: object) -> str:
    if cache["no-flush"]:
        return "unsafe"
    on = writeback in (True, "on") or (writeback == "auto" and cache["writeback"])
    return {(True, True): "none", (False, True): "writeback", (True, False): "directsync"}.get(
        (cache["direct"], on), "writethrough"
    )


@given(st.lists(st.sampled_from(["-drive", "-blockdev", "-device", "-object", "-smp", "-hda", "{", "a=b,,c", "{}"])
                | st.text(max_size=30), max_size=8))  # fmt: skip
def test_any_words_are_read_or_refused(words: list[str]) -> None:
    found = read_words(["qemu-system-x86_64", *words])
    assert all(isinstance(disk, DomainDisk) for disk in found.disks)


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(noise: bytes) -> None:
    with contextlib.suppress(ReadError):
        assert QEMU.read(b"qemu-system-x86_64 " + noise).language == "qemu"
