# SPDX-License-Identifier: Apache-2.0
"""QEMU's command line: what is read of it is what a real QEMU has."""

import contextlib
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pasted import PREFIXES, pasted

from virtune.advise.audit import audit
from virtune.dialects import proxmox
from virtune.dialects.languages import language_of
from virtune.dialects.libvirt.domain import read_domain
from virtune.dialects.qemu.command import QEMU, monitor_sockets, name_and_id, read_words
from virtune.model.domain import DomainDisk, SettingChange
from virtune.model.errors import PlanError, ReadError
from virtune.model.finding import Subject
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
        ("sata", "cdrom", "/srv/iso/d.iso"),  # q35 has no IDE
        ("sata", "disk", "/srv/old.img"),
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
    assert cache_mode_of(inserted["cache"], writeback=answers["write-cache"]) == disk.cache


def cache_mode_of(cache: dict[str, bool], *, writeback: object) -> str:
    if cache["no-flush"]:
        return "unsafe"
    on = writeback in (True, "on") or (writeback == "auto" and cache["writeback"])
    return {(True, True): "none", (False, True): "writeback", (True, False): "directsync"}.get(
        (cache["direct"], on), "writethrough"
    )


DATABASE = r"""#!/bin/bash
# the database
qemu-system-x86_64 \
  -name db -enable-kvm \
  -drive file=/a.img,if=none,id=a,format=raw,cache=unsafe \
  -device virtio-blk-pci,drive=a \
  -drive file=/b.img,if=virtio \
  -blockdev driver=file,node-name=f,\
filename=/c.img \
  -device virtio-scsi-pci,id=s \
  -device scsi-hd,drive=f,bus=s.0
kvm -hda /d.img \
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_each_disk_is_on_the_line_of_a_script_that_opens_it(end: str) -> None:
    first, second = QEMU.domains(DATABASE.replace("\n", end).encode())
    assert {disk.source.name: disk.line for disk in first.disks} == {"/a.img": 5, "/b.img": 7, "/c.img": 8}
    assert (first.line, [one.line for one in first.controllers]) == (3, [10])
    assert (second.line, second.disks[0].line) == (12, 12)
    assert {one.rule.id: one.line for one in audit(Subject(domain=first)) if one.at == "a"}["R01"] == 5


def test_a_start_in_a_log_and_words_that_have_a_line_each_are_found_again() -> None:
    start = "2025-11-03 09:12:44.101+0000: starting up libvirt version: 9.0.0\nLC_ALL=C \\\n"
    log = "".join(f"{start}/usr/bin/kvm \\\n-hda {image}\n" for image in ("/a.img", "/b.img"))
    assert [(one.line, one.disks[0].line) for one in QEMU.domains(log.encode())] == [(3, 4), (7, 8)]
    listed = QEMU.read(b"qemu-system-x86_64\n-m\n1G\n-hda\n/a.img\n")
    assert (listed.line, listed.disks[0].line) == (1, 4)


LOG = """2025-11-03 09:12:44.101+0000: starting up libvirt version: 9.0.0, package: 9.0.0-4, qemu version: 7.2.0
LC_ALL=C \\
PATH=/usr/bin \\
/usr/bin/qemu-system-x86_64 \\
-name guest=web,debug-threads=on \\
-machine pc-q35-7.2,usb=off \\
-accel kvm \\
-smp 1,maxcpus=4,sockets=4 \\
-uuid c7a5fdbd-edaf-9455-926a-d65c16db1809 \\
-object '{"qom-type":"iothread","id":"iothread2"}' \\
-object '{"qom-type":"throttle-group","id":"t","limits":{"iops-total":100,"bps-total":0}}' \\
-blockdev '{"driver":"file","filename":"/srv/my web.raw","node-name":"s","cache":{"direct":true}}' \\
-blockdev '{"node-name":"f","driver":"raw","file":"s","cache":{"direct":true}}' \\
-blockdev '{"driver":"throttle","node-name":"l","throttle-group":"t","file":"f"}' \\
-device '{"driver":"virtio-blk-pci","drive":"l","id":"virtio-disk0","iothread":"iothread2","write-cache":"on"}' \\
-device '{"driver":"ide-hd","bus":"ide.0","drive":"s","id":"sata0-0-0"}' \\
-device '{"driver":"scsi-block","drive":"s","id":"lun"}' \\
-msg timestamp=on
2025-11-03 09:20:01.101+0000: shutting down, reason=shutdown, it's done
"""


def test_libvirt_s_log_is_read_without_what_stands_around_the_command() -> None:
    """Every line of it ends in a backslash, and none is indented: all options were lost, without a word."""
    started_again = LOG.replace('iops-total":100', 'iops-total":200')
    text = (LOG + started_again).encode()
    assert language_of(text) is QEMU
    (web,) = QEMU.domains(text)
    assert (web.name, web.kind, web.vcpus, web.machine) == ("web", "kvm", 1, "pc-q35-7.2")
    disk, sata, lun = web.disks
    assert (disk.source.name, disk.format, disk.cache, disk.limits) == (
        "/srv/my web.raw", "raw", "none", (("total_iops_sec", 200),),
    )  # fmt: skip
    assert (sata.bus, lun.bus, lun.device) == ("sata", "scsi", "lun")
    assert web.threads_of(disk) == (2,)


@pytest.mark.parametrize(
    "front",
    [
        "#!/bin/bash\nset -e\n# it's the web server\n",
        "sudo -E ",
        "IMAGE=/srv/a.raw HOME=/root exec ",
        "exec nice -n 5 taskset -c 0-3 /usr/bin/",
        "cd /srv\r\n",
    ],
)
def test_what_stands_in_front_of_the_program_is_passed_over(front: str) -> None:
    text = f"{front}qemu-system-x86_64 -m 4G -hda a#b.qcow2 >/dev/null 2>&1 &\n".encode()
    assert [one.source.name for one in language_of(text).read(text).disks] == ["a#b.qcow2"]


@pytest.mark.parametrize(
    "text",
    [
        "sudo modprobe kvm\n",
        "name = 'qemu-system-x86_64'\n",
        "qemu-img create a.raw 1G\nqemu-system-x86_64 -m 1G\n",
        "kvm: 1\n",
        "kvm = 1\n",
        "echo 'it\n",
        "A=1\n",
    ],
)
def test_another_command_first_is_no_vm(text: str) -> None:
    assert not QEMU.knows(text.encode())


def test_words_are_told_apart_in_every_form_in_which_a_line_is_kept() -> None:
    words = ["/usr/bin/kvm", "-name", "a b", "-drive", "file=/srv/a.raw,if=virtio", "-snapshot", "-m", "1G"]
    quoted = " ".join(words).replace("a b", "'a b'")
    for text in (
        "\0".join(words) + "\0",  # /proc/PID/cmdline
        "\n".join(words) + "\n",  # the same with line feeds
        quoted,
        quoted.replace(" -", " \\\r\n-"),
        quoted.replace(" -", "\n  -"),  # pasted without its backslashes
        quoted.replace("file=/srv/a.raw,if=virtio", '{"a":1}').replace("-drive", "-blockdev") + " -drive " + words[4],
    ):
        assert QEMU.knows(text.encode()), text
        (found,) = QEMU.domains(text.encode())
        assert (found.name, found.kind, [one.source.name for one in found.disks]) == ("a b", "kvm", ["/srv/a.raw"]), (
            text
        )


def disk_of_words(*words: str) -> DomainDisk:
    (disk,) = read_words(["qemu-system-x86_64", *words]).disks
    return disk


def nodes(*chain: str, device: str = "virtio-blk-pci") -> DomainDisk:
    """A disk of the last node of a chain, each above the one before it."""
    words = [word for node in chain for word in ("-blockdev", node)]
    name = next(part for part in chain[-1].split(",") if part.startswith("node-name=")).partition("=")[2]
    return disk_of_words(*words, "-device", f"{device},drive={name},id=d")


@pytest.mark.parametrize(
    ("chain", "discard"),
    [
        (("file,node-name=s,filename=a,discard=unmap", "raw,node-name=f,file=s"), None),
        (("file,node-name=s,filename=a,discard=unmap", "raw,node-name=f,file=s,discard=unmap"), "unmap"),
        (("file,node-name=s,filename=a", "raw,node-name=f,file=s,discard=unmap"), None),
        (("file,node-name=s,filename=a,discard=unmap", "raw,node-name=f,file=s,discard=ignore"), "ignore"),
        (("raw,node-name=f,discard=unmap,file.driver=file,file.filename=a",), "unmap"),
        (("raw,node-name=f,discard=unmap,file.driver=file,file.filename=a,file.discard=ignore",), "ignore"),
        (("file,node-name=s,filename=a,discard=on",), "unmap"),
        (
            ("file,node-name=s,filename=a,discard=unmap", "raw,node-name=f,file=s,discard=unmap",
             "throttle,node-name=t,file=f,throttle-group=g"),
            None,
        ),
    ],
)  # fmt: skip
def test_a_discard_reaches_the_file_where_every_node_lets_it(chain: tuple[str, ...], discard: str | None) -> None:
    disk = nodes(*chain)
    assert (disk.discard, disk.source.name, disk.format) == (discard, "a", "raw")


def test_throttles_and_copy_on_read_pass_requests_on() -> None:
    node = {
        "driver": "throttle", "node-name": "t", "throttle-group": "g",
        "file": {"driver": "copy-on-read",
                 "file": {"driver": "qcow2", "cache": {"direct": True},
                          "file": {"driver": "file", "filename": "/a", "aio": "native"}}},
    }  # fmt: skip
    disk = disk_of_words(
        "-object", "throttle-group,id=g,x-iops-total=100,x-iops-total-max=300,x-iops-total-max-length=5,x-bps-read=7",
        "-blockdev", json.dumps(node), "-device", "scsi-hd,drive=t",
    )  # fmt: skip
    assert (disk.format, disk.copy_on_read, disk.io, disk.cache) == ("qcow2", "on", "native", "none")
    assert dict(disk.limits) == {
        "total_iops_sec": 100, "total_iops_sec_max": 300, "total_iops_sec_max_length": 5, "read_bytes_sec": 7,
    }  # fmt: skip


def test_of_two_groups_the_smaller_limit_holds() -> None:
    disk = disk_of_words(
        "-object", '{"qom-type":"throttle-group","id":"g","limits":{"iops-total":100,"bps-total":0}}',
        "-object", "throttle-group,id=h,x-iops-total=50,x-bps-total=9",
        "-blockdev", "file,node-name=s,filename=a",
        "-blockdev", "throttle,node-name=a,file=s,throttle-group=g",
        "-blockdev", "throttle,node-name=b,file=a,throttle-group=h",
        "-device", "virtio-blk-pci,drive=b",
    )  # fmt: skip
    assert dict(disk.limits) == {"total_iops_sec": 50, "total_bytes_sec": 9}


@pytest.mark.parametrize(
    "drive",
    [
        "iops=100,iops_rd_max=7,bps_wr=5",
        "throttling.iops-total=100,throttling.iops-read-max=7,throttling.bps-write=5",
    ],
)
def test_limits_of_a_drive_have_two_spellings(drive: str) -> None:
    disk = disk_of_words("-drive", f"file=a,if=virtio,{drive}")
    assert dict(disk.limits) == {"total_iops_sec": 100, "read_iops_sec_max": 7, "write_bytes_sec": 5}


def test_threads_of_queues_and_of_other_objects_are_not_idle() -> None:
    found = read_words([
        "qemu-system-x86_64", *(word for n in range(1, 6) for word in ("-object", f"iothread,id=iothread{n}")),
        "-blockdev", "file,node-name=s,filename=a",
        "-device", json.dumps({"driver": "virtio-blk-pci", "drive": "s", "iothread-vq-mapping": [
            {"iothread": "iothread3", "vqs": [0]}, {"iothread": "iothread1"}]}),
        "-device", "virtio-scsi-pci,id=scsi0,iothread-vq-mapping.0.iothread=iothread2",
        "-device", "scsi-hd,drive=s,bus=scsi0.0",
        "-object", "colo-compare,id=c,iothread=iothread4",
    ])  # fmt: skip
    assert [found.threads_of(disk) for disk in found.disks] == [(3, 1), (2,)]
    (idle,) = [one for one in audit(Subject(domain=found)) if one.rule.id == "R29"]
    assert idle.seen.seen == "IOThread 5 is defined but no disk uses it"


def test_the_first_words_of_an_option_and_the_oldest_ones() -> None:
    line = (
        "qemu-system-x86_64 -hda a,b.img -hdb b.img -hdd d.img -cdrom c.iso -M q35 -machine accel=kvm:tcg"
        " --smp cores=2,threads=2,sockets=1 -drive if=sd,file=s.img -drive if=floppy,file=f.img -nographic e.img"
    )
    found = read_words(line.split())
    assert [(one.source.name, one.bus, one.device, one.read_only) for one in found.disks] == [
        ("a,b.img", "sata", "disk", False),
        ("b.img", "sata", "disk", False),
        ("d.img", "sata", "disk", False),
        ("c.iso", "sata", "cdrom", True),
        ("s.img", "sd", "disk", False),
        ("f.img", "fdc", "floppy", False),
        ("e.img", "sata", "disk", False),
    ]
    assert (found.vcpus, found.kind, found.machine) == (4, "kvm", "q35")


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("-drive file=a -drive file=b -drive file=c,media=cdrom", ["ide0-hd0", "ide0-hd1", "ide1-cd0"]),
        ("-drive file=a,index=3 -drive file=b,bus=1 -drive file=c,bus=1", ["ide1-hd1", "ide1-hd0", "ide2-hd0"]),
        ("-M q35 -drive file=a -drive file=b,if=ide -cdrom c", ["ide0-hd0", "ide1-hd0", "ide2-cd0"]),
        ("-M virt -drive file=a -hdd b -drive file=c,if=ide", ["virtio0", "virtio3", "ide0-hd0"]),
        ("-M pseries -drive file=a -drive file=b,index=8 -cdrom c", ["scsi0-hd0", "scsi1-hd1", "scsi0-cd2"]),
        ("-M raspi3b -sd a -fda b", ["sd0", "floppy0"]),
        ("-hda a b.img -drive file=c,index=0", ["ide0-hd0", "ide0-hd1", "ide1-hd0"]),
        ("-drive file=a,if=none,id=none0 -drive file=b,if=none -device scsi-hd,drive=none1", ["none1"]),
    ],
)
def test_a_drive_without_an_id_has_the_one_that_qemu_gives_it(words: str, names: list[str]) -> None:
    assert [disk.target for disk in read_words(["qemu-system-x86_64", *words.split()]).disks] == names


@pytest.mark.parametrize(
    ("words", "bus", "kind"),
    [
        ("qemu-system-aarch64 -M virt -hda a.img", "virtio", "qemu"),
        ("qemu-system-ppc64 -machine pseries -hda a.img --enable-kvm", "scsi", "kvm"),
        ("qemu-system-x86_64 -hda a.img -accel hvf -accel tcg", "ide", "hvf"),
        ("qemu-kvm -hda a.img", "ide", "kvm"),
        ("qemu-kvm -hda a.img -accel tcg", "ide", "qemu"),
    ],
)
def test_the_machine_says_where_a_disk_goes_and_the_program_what_runs_it(words: str, bus: str, kind: str) -> None:
    found = read_words(words.split())
    assert (found.disks[0].bus, found.kind) == (bus, kind)


def test_drives_without_a_file_and_files_handed_over() -> None:
    line = (
        "qemu-system-x86_64 -device ide-cd,id=c -blockdev file,node-name=s,filename=/dev/fdset/1"
        " -device ide-hd,drive=s,share-rw=on -drive file=nbd://host/x,format=raw"
    )
    found = read_words(line.split())
    assert [(one.source.kind, one.device) for one in found.disks] == [
        ("none", "cdrom"),
        ("file", "disk"),
        ("network", "disk"),
    ]
    assert found.disks[1].shareable


@given(st.lists(st.sampled_from(["-drive", "-blockdev", "-device", "-object", "-smp", "-hda", "{", "a=b,,c", "{}",
                                 "iothread,id=a", "file,node-name=a,file=a", "virtio-blk,drive=a,iothread=a"])
                | st.text(max_size=30), max_size=8))  # fmt: skip
def test_any_words_are_read_or_refused(words: list[str]) -> None:
    found = read_words(["qemu-system-x86_64", *words])
    assert len({disk.target for disk in found.disks}) == len(found.disks) or any("id=" in word for word in words)
    for disk in found.disks:
        assert disk.cache in ("none", "writeback", "writethrough", "directsync", "unsafe")
        assert {*found.threads_of(disk)} <= {one.number for one in found.threads}


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(noise: bytes) -> None:
    with contextlib.suppress(ReadError):
        assert QEMU.read(b"qemu-system-x86_64 -S " + noise).language == "qemu"
    with contextlib.suppress(ReadError):
        assert QEMU.read(noise).disks == ()


def test_no_line_takes_its_reader_long() -> None:
    begun = time.process_time()
    for text in (b"A=1 " * 200_000, b"\\\n" * 300_000, b"'\n" * 9_999, b"a\n-b " * 100_000, b'"\\' * 100_000):
        QEMU.knows(text)
        with contextlib.suppress(ReadError):
            QEMU.domains(b"kvm -S " + text)
    assert time.process_time() - begun < 3
    with pytest.raises(ReadError, match="one of its commands has more than 50,000 words"):
        QEMU.domains(b"kvm -S " + b"-b a " * 30_000)
    assert QEMU.domains(b"kvm -S " + b"-b a " * 20_000)


OPENED = (
    ("driver=raw,discard=ignore,file.driver=file,file.discard=unmap,file.filename={}", "ignore"),
    ("driver=raw,file.driver=file,file.discard=unmap,file.filename={}", None),
    ("driver=raw,discard=unmap,file.driver=file,file.discard=ignore,file.filename={}", "ignore"),
    ("driver=raw,discard=unmap,file.driver=file,file.filename={}", "unmap"),
    ("driver=throttle,throttle-group=g,file.driver=raw,file.discard=unmap,file.file.driver=file,file.file.filename={}",
     None),
    ("driver=throttle,throttle-group=g,discard=unmap,file.driver=raw,file.file.driver=file,file.file.filename={}",
     "unmap"),
)  # fmt: skip


@pytest.mark.real
@pytest.mark.parametrize(("options", "discard"), OPENED)
def test_a_real_qemu_passes_on_the_discards_that_are_read(options: str, discard: str | None, tmp_path: Path) -> None:
    image = tmp_path / "image.raw"
    image.write_bytes(b"\1" * 1024 * 1024)
    node = options.format(image)
    groups = ["--object", "throttle-group,id=g"]
    asked = ["qemu-io", "-d", "ignore", *groups, "--image-opts", node, "-c", "discard 0 1M"]
    assert run(asked, timeout_seconds=30).stdout.startswith("discard 1048576/1048576 bytes")
    freed = image.stat().st_blocks == 0
    read = disk_of_words(*groups, "-blockdev", f"{node},node-name=a", "-device", "virtio-blk-pci,drive=a")
    assert read.discard == discard
    assert freed == (discard == "unmap")


SCRIPT = """LC_ALL=C \\
/usr/bin/qemu-system-x86_64 -enable-kvm -m 1G \\
-name guest=web \\
-drive file=/srv/a.raw,format=raw,if=virtio,cache=unsafe \\
  -device virtio-net-pci
"""
"""A line as libvirt's tests and people write it."""


@pytest.mark.parametrize("before", [*PREFIXES, "one line"])
def test_a_quoted_line_keeps_its_disks(before: str) -> None:
    plain = QEMU.read(SCRIPT.encode())
    text = pasted(SCRIPT.rstrip(), [PREFIXES.get(before, lambda _: "")], "\n")
    if before == "one line":
        text = "+ " + " ".join(SCRIPT.replace("\\\n", "").split())
        disks = tuple(replace(disk, line=1) for disk in plain.disks)
        plain = replace(plain, line=1, threads_line=1, disks=disks)
    assert QEMU.read(text.encode()) == plain
    assert [disk.cache for disk in plain.disks] == ["unsafe"]


@pytest.mark.parametrize(
    "lost",
    ["-readconfig vm.cfg", '"$@"', '"${ARGS[@]}"', "$QEMU_OPTS", "${EXTRA_ARGS}", "${DRIVES}", "$(cat opts)",
     '"$(cat opts more)"', "`cat opts`", "-device driver=$DISK",
     "-blockdev driver=${NODE}"],
)  # fmt: skip
def test_what_lies_elsewhere_is_named(lost: str) -> None:
    domain = QEMU.read(f"qemu-system-x86_64 -enable-kvm {lost} -m 1G\n".encode())
    assert domain.elsewhere == (lost.strip('"'),)
    assert domain.disks == ()
    assert not QEMU.read(SCRIPT.encode()).elsewhere


@pytest.mark.parametrize(
    "settings", ["file=/a,if=virtio,cache=$CACHE", "file=$DIR/a.raw,if=virtio,$MORE", "$MORE", "file=/a,aio=`engine`"]
)
def test_a_setting_that_a_shell_makes_is_not_taken_for_none(settings: str) -> None:
    (made,) = QEMU.read(f"qemu-system-x86_64 -enable-kvm -drive {settings}\n".encode()).elsewhere
    assert made in {"-drive cache=$CACHE", "-drive $MORE", "-drive aio=`engine`"}
    assert not QEMU.read(b"qemu-system-x86_64 -drive file=$DIR/a.raw,if=virtio,id=$ID $DIR/b.raw\n").elsewhere


@pytest.mark.parametrize(
    "devices",
    ["-drive file=/a,if=none,id=d0 -device foo-blk,drive=d0", "-device virtio-blk-pci,drive=gone",
     "-drive file=/dev/sg0,if=none,id=d0 -device scsi-generic,drive=d0",
     "-drive file=/a,if=virtio -global virtio-blk-pci.num-queues=1"],
)  # fmt: skip
def test_a_disk_that_is_not_understood_is_named(devices: str) -> None:
    assert len(QEMU.read(f"qemu-system-x86_64 -enable-kvm {devices}\n".encode()).elsewhere) == 1


def test_settings_given_by_set_and_global_are_the_disks() -> None:
    line = (
        "qemu-system-x86_64 -object iothread,id=i0 -drive file=/a,if=none,id=d0 -device virtio-blk-pci,drive=d0,id=v0"
    )
    more = (
        "-set device.v0.iothread=i0 -set device.v0.num-queues=3",
        "-global virtio-blk-pci.iothread=i0 -global virtio-blk-device.num-queues=3",
        "-global virtio-blk-pci.iothread=i0 -global driver=virtio-blk-pci,property=num-queues,value=3",
    )
    for one in more:
        (disk,) = QEMU.read(f"{line} -set drive.d0.cache=unsafe {one}\n".encode()).disks
        assert (disk.cache, disk.iothread, disk.queues) == ("unsafe", 1, 3), one
    own = line.replace("id=v0", "id=v0,num-queues=2")
    (disk,) = QEMU.read(
        f"{own} -global virtio-blk-pci.num-queues=3 -global virtio-net-pci.num-queues=9\n".encode()
    ).disks
    assert disk.queues == 2


def test_a_disk_of_another_process_has_a_socket() -> None:
    line = b"qemu-system-x86_64 -chardev socket,id=c0,path=/run/d.sock -device vhost-user-blk-pci,chardev=c0,id=v0\n"
    (disk,) = QEMU.read(line).disks
    assert (disk.bus, disk.source.kind, disk.source.name, disk.opened_here) == (
        "virtio", "vhostuser", "/run/d.sock", False,
    )  # fmt: skip


BESIDE = {
    "-drive file=/x,cache=unsafe,if=virtio": True,
    "-device virtio-blk-pci,drive=d0": True,
    "-blockdev driver=file,node-name=n,filename=/x": True,
    "-set device.virtio-disk0.iothread=i0": True,
    "-set drive.d0.cache=none": True,
    "-global virtio-blk-pci.num-queues=1": True,
    "-readconfig /etc/more.cfg": True,
    "-hda /x": True,
    "-set device.hostdev0.x-igd-opregion=on": False,
    "-global ICH9-LPC.disable_s3=1": False,
    "-device ivshmem-plain,memdev=m": False,
    "-fw_cfg name=opt/x,string=y": False,
}
"""What people give to QEMU past libvirt and Proxmox, and whether it is about disks."""


@pytest.mark.parametrize("given", BESIDE)
def test_options_past_libvirt_and_proxmox_are_not_passed_over(given: str) -> None:
    args = "".join(f"<q:arg value='{word}'/>" for word in given.split())
    domain = f"<domain type='kvm'><name>a</name><q:commandline>{args}</q:commandline></domain>"
    config = f"cores: 2\nmemory: 2048\nscsi0: local:vm-1-disk-0,size=8G\nargs: {given}\n"
    for read in (read_domain(domain.encode()), *proxmox.read(config.encode())):
        assert bool(read.elsewhere) is BESIDE[given], read.elsewhere


@pytest.mark.parametrize(("alias", "found"), [("virtio-disk0", True), ("ua-data", True), ("hostdev0", False)])
def test_properties_past_libvirt_are_not_passed_over(alias: str, found: bool) -> None:
    override = f"<qemu:override><qemu:device alias='{alias}'><qemu:frontend/></qemu:device></qemu:override>"
    read = read_domain(f"<domain type='kvm'><name>a</name>{override}</domain>".encode())
    assert bool(read.elsewhere) is found


def test_variables_that_gather_options_are_no_quotation() -> None:
    gathered = 'ARGS="$ARGS -drive file=/srv/a.raw,if=virtio"\nARGS="$ARGS -device virtio-net"\n'
    text = f"{gathered}qemu-system-x86_64 -m 1G $ARGS\n"
    domain = QEMU.read(text.encode())
    assert (domain.disks, domain.elsewhere) == ((), ("$ARGS",))


IN_JSON = {"id": "q", "backend": {"type": "socket", "data": {"addr": {"type": "unix", "data": {"path": "/run/j"}}}}}


@pytest.mark.parametrize(
    ("words", "sockets"),
    [
        ("-qmp unix:/run/a.qmp,server=on,wait=off", ("/run/a.qmp",)),
        ("-qmp unix:/run/a.qmp,server,nowait", ("/run/a.qmp",)),
        ("--qmp-pretty unix:a.qmp,server=on", ("a.qmp",)),
        ("-qmp unix:/run/client", ()),
        ("-qmp unix:/run/client,server=off", ()),
        ("-qmp tcp:localhost:4444,server=on", ()),
        ("-chardev socket,id=q,path=/run/1.qmp,server=on,wait=off -mon chardev=q,mode=control", ("/run/1.qmp",)),
        ("-mon q,mode=control -chardev socket,path=/run/1.qmp,id=q,server", ("/run/1.qmp",)),
        ("-chardev socket,id=q,path=/run/e.sock,reconnect=5 -mon chardev=q,mode=control", ()),
        ("-chardev socket,id=q,path=/run/hmp,server=on -mon chardev=q,mode=readline", ()),
        ("-chardev socket,id=q,path=/run/serial,server=on -serial chardev:q", ()),
        ("-chardev socket,id=charmonitor,fd=24,server=on,wait=off -mon chardev=charmonitor,mode=control", ()),
        (
            f'-chardev {json.dumps(IN_JSON, separators=(",", ":"))} -mon {{"chardev":"q","mode":"control"}}',
            ("/run/j",),
        ),
        ("-qmp unix:/a,server -qmp unix:/a,server -qmp unix:/b,server", ("/a", "/b")),
    ],
)
def test_the_monitors_that_listen_are_found_in_every_spelling(words: str, sockets: tuple[str, ...]) -> None:
    line = ["qemu-system-x86_64", "-name", "guest=web1,debug-threads=on", "-id", "101", *words.split(" ")]
    assert monitor_sockets(line) == sockets
    assert name_and_id(line) == ("web1", "101")
    assert name_and_id(["qemu-system-x86_64", "-name", "web2", *words.split(" ")]) == ("web2", "")
