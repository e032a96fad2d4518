# SPDX-License-Identifier: Apache-2.0
"""What blind_exam.py starts on this host: slow storage, VMs as Proxmox VE starts them, counters."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MIB = 1024**2
CGROUPS = Path("/sys/fs/cgroup")
STORAGE = """
import nbdkit, time
data, delays = bytearray(1 << 30), {}
API_VERSION = 2
def config(key, value): delays[key] = float(value)
def thread_model(): return nbdkit.THREAD_MODEL_PARALLEL
def open(readonly): return 1
def get_size(h): return len(data)
def can_fua(h): return nbdkit.FUA_EMULATE
def wait(what):
    if what in delays: time.sleep(delays[what])
def pread(h, buffer, offset, flags):
    wait("read")
    buffer[:] = data[offset:offset + len(buffer)]
def pwrite(h, buffer, offset, flags):
    wait("write")
    data[offset:offset + len(buffer)] = buffer
def flush(h, flags): wait("flush")
def trim(h, count, offset, flags): wait("trim")
"""
INIT = b"""#!/bin/sh
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev; mkdir -p /mnt /tmp
mount -t tmpfs run /run
for m in virtio_ring virtio_pci_modern_dev virtio_pci_legacy_dev virtio virtio_pci crct10dif_common crc_t10dif \\
    crc64 crc64_rocksoft t10_pi scsi_common scsi_mod sd_mod virtio_blk virtio_scsi nvme_core nvme libata libahci \\
    ahci ata_piix crc16 crc32c_generic mbcache jbd2 ext4; do insmod /lib/modules/$m.ko; done
exec </dev/ttyS0 >/dev/ttyS0 2>&1
stty raw -echo
echo READY
while read -r line; do eval "$line"; done
"""


def entry(name: bytes, mode: int, data: bytes = b"") -> bytes:
    """One file of an initramfs (the cpio format `newc`)."""
    numbers = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08X" % one for one in numbers) + name + b"\0"
    head += b"\0" * (-len(head) % 4)
    return head + data + b"\0" * (-len(data) % 4)


class Qmp:
    """A monitor of our own beside the one that virtune uses."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.lines = self.socket.makefile("r")
        self.lines.readline()
        self.lock = threading.Lock()
        self("qmp_capabilities")

    def __call__(self, command: str, **arguments: Any) -> Any:
        dash = command != "block_set_io_throttle"
        words = {name.replace("_", "-") if dash else name: value for name, value in arguments.items()}
        with self.lock:
            self.socket.sendall(json.dumps({"execute": command, "arguments": words}).encode() + b"\n")
            while True:
                answer = json.loads(self.lines.readline())
                if "error" in answer:
                    raise RuntimeError(answer["error"]["desc"])
                if "return" in answer:
                    return answer["return"]


@dataclass(frozen=True)
class Disk:
    """A drive as Proxmox VE's command line has it."""

    file: str
    front: str = "virtio"  # virtio, scsi, ide, sata, nvme
    how: str = "format=raw,cache=none,aio=io_uring"
    iothread: bool = False
    device: str = ""  # more properties of the device


def fio(rw: str = "randread", bs: str = "4k", depth: int = 16, on: str = "vda", more: str = "") -> str:
    """Load a disk in the guest."""
    words = f"--filename=/dev/{on} --rw={rw} --bs={bs} --iodepth={depth} --direct=1 --ioengine=libaio --size=512m"
    return f"fio --name=x {words} --time_based --runtime=90 --minimal {more} >/dev/null 2>&1 &"


def raw(path: str, *, how: str = "", front: str = "virtio", iothread: bool = False, device: str = "") -> Disk:
    """A raw disk as Proxmox VE attaches one."""
    return Disk(f"file={path}", front, "format=raw,cache=none,aio=io_uring" + (how and f",{how}"), iothread, device)


def nbd_disk(server: str, how: str = "", front: str = "virtio") -> Disk:
    """A disk that lies on an NBD server."""
    return Disk(
        f"file.driver=nbd,file.server.type=unix,file.server.path={server}", front, "format=raw,cache=none" + how
    )


def front_end(disk: Disk, number: int) -> list[str]:
    """The device of a drive, with its controller."""
    drive = f"drive=drive-{disk.front}{number},id={disk.front}{number}" + (disk.device and f",{disk.device}")
    thread = f",iothread=iothread-{disk.front}{number}" if disk.iothread else ""
    match disk.front:
        case "virtio":
            return ["-device", f"virtio-blk-pci,{drive}{thread}"]
        case "scsi":
            scsi = f"virtio-scsi-pci,id=virtioscsi{number}{thread}"
            return ["-device", scsi, "-device", f"scsi-hd,bus=virtioscsi{number}.0,{drive}"]
        case "ide":
            return ["-device", f"ide-hd,bus=ide.{number},{drive}"]
        case "sata":
            return ["-device", f"ahci,id=ahci{number}", "-device", f"ide-hd,bus=ahci{number}.0,{drive}"]
    return ["-device", f"nvme,serial=n{number},{drive}"]


@dataclass
class Guest:
    """A VM that runs, with its monitor and its shell."""

    place: Path
    number: int
    pid: int
    qmp: Qmp
    shell: socket.socket
    drive: str

    def run(self, line: str) -> None:
        """Give the guest's shell a line."""
        self.shell.sendall(line.encode() + b"\n")

    def counters(self) -> dict[str, int]:
        """What QEMU counts of the first drive."""
        stats = next(one["stats"] for one in self.qmp("query-blockstats") if one["device"] == self.drive)
        return {name: value for name, value in stats.items() if isinstance(value, int)}


class Bench:
    """Whatever a planting starts on this host, and its end."""

    def __init__(self, place: Path, appliance: Path, stack: ExitStack) -> None:
        self.place, self.appliance, self.stack = place, appliance, stack
        self.guests: list[Guest] = []
        self.count = self.files = 0
        self.devices: list[str] = []
        self.ends = threading.Event()
        self.servers: list[int] = []
        self.cgroups: list[Path] = []

    def name(self, suffix: str) -> Path:
        """Name a new file."""
        self.count += 1
        return self.place / f"{self.count}{suffix}"

    def process(self, words: list[str | Path]) -> "subprocess.Popen[bytes]":
        """Start what ends with this planting, with a share of the CPUs of its own."""
        said = self.place / "said.log"
        with said.open("ab") as log:
            one = subprocess.Popen([str(w) for w in words], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                   start_new_session=True)  # fmt: skip
        prefer(one.pid)

        def end() -> None:
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGCONT)
            one.kill()
            one.wait()

        self.stack.callback(end)
        return one

    def thread(self, step: Callable[[], None], pause: float = 0.0) -> None:
        """Do a step again and again until this planting ends."""

        def loop() -> None:
            with suppress(OSError, RuntimeError, ValueError):
                while not self.ends.wait(pause):
                    step()

        one = threading.Thread(target=loop, daemon=True)
        one.start()
        self.stack.callback(one.join, 5)
        self.stack.callback(self.ends.set)

    def nbd(self, *filters: str, at_once: int = 64, **delays: float) -> str:
        """A server whose operations take so many seconds; return its socket."""
        path, plugin = self.name(".nbd"), self.name(".py")
        plugin.write_text(STORAGE)
        words: list[str | Path] = ["nbdkit", "-f", "-U", path, "-t", str(at_once)]
        words += [*(one for one in filters if one.startswith("--")), "python", plugin]
        words += [f"{name}={value}" for name, value in delays.items()]
        words += [one for one in filters if not one.startswith("--")]
        self.servers.append(self.process(words).pid)
        until(path.exists)
        return str(path)

    def fuse(self, *filters: str, at_once: int = 64, **delays: float) -> str:
        """Return a file of a slow FUSE file system."""
        server, file = self.nbd(*filters, at_once=at_once, **delays), self.name(".fuse")
        file.touch()
        self.process(["nbdfuse", "-C", "8", file, f"nbd+unix:///?socket={server}"])
        until(lambda: file.stat().st_size > 0)
        self.stack.callback(subprocess.run, ["umount", "-l", str(file)], check=False)
        return str(file)

    def loop(self, file: str, *, direct: bool = True) -> str:
        """Return a block device over a file."""
        words = ["losetup", "-f", "--show", f"--direct-io={'on' if direct else 'off'}", file]
        device = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
        self.stack.callback(subprocess.run, ["losetup", "-d", device], check=False)
        self.devices.append(device.removeprefix("/dev/"))
        return device

    def slow(self, *filters: str, at_once: int = 64, **delays: float) -> str:
        """Return a block device that is slow."""
        return self.loop(self.fuse(*filters, at_once=at_once, **delays))

    def file(self, size: int = 1024) -> str:
        """Return a file on this host's disk, written whole: as fast as this host is."""
        self.files += 1
        path = self.place.parent / f"fast{self.files}.raw"
        if not path.exists():
            words = ["dd", "if=/dev/urandom", f"of={path}", "bs=1M", f"count={size}", "status=none"]
            subprocess.run(words, check=True)
            subprocess.run(["sync", "-f", str(path)], check=True)
            subprocess.run(["dd", f"if={path}", "iflag=nocache", "count=0", "status=none"], check=True)
        return str(path)

    def image(self, *words: str, size: str = "1G", path: str = "") -> str:
        """Return an image by qemu-img create."""
        path = path or str(self.name(".img"))
        subprocess.run(["qemu-img", "create", "-q", *words, path, size], check=True, stdout=subprocess.DEVNULL)
        return path

    def start(self, *disks: Disk, smp: int = 1, memory: int = 512, more: str = "") -> Guest:
        """Start a VM as Proxmox VE does; `-id` is its patch, QEMU itself has no such option."""
        number = 100 + len(self.guests)
        at = {name: self.place / f"{number}.{name}" for name in ("qmp", "own", "serial", "pid", "initramfs")}
        base = (self.appliance / "initramfs").read_bytes()
        base += b"\0" * (-len(base) % 4)
        at["initramfs"].write_bytes(base + entry(b"exam", 0o100755, INIT) + entry(b"TRAILER!!!", 0))
        line = "rdinit=/exam console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable"
        words = f"qemu-system-x86_64 -name vm{number},debug-threads=on -machine pc -accel tcg -m {memory}"
        words += f" -smp {smp},maxcpus={smp + 1}"
        words += f" -nodefaults -display none -kernel {self.appliance}/vmlinux -initrd {at['initramfs']} -daemonize"
        words += f" -qmp unix:{at['qmp']},server=on,wait=off -qmp unix:{at['own']},server=on,wait=off"
        words += f" -serial unix:{at['serial']},server=on,wait=off -pidfile {at['pid']} {more}"
        command = [*words.split(), "-append", line]
        for n, disk in enumerate(disks):
            if disk.iothread:
                command += ["-object", f"iothread,id=iothread-{disk.front}{n}"]
            command += ["-drive", f"{disk.file},if=none,id=drive-{disk.front}{n},{disk.how}", *front_end(disk, n)]
        started = subprocess.run(command, check=False, capture_output=True, text=True, cwd=self.place)
        assert started.returncode == 0, started.stderr
        pid = int(at["pid"].read_text())
        prefer(pid)
        self.stack.callback(end_process, pid)
        shell = socket.socket(socket.AF_UNIX)
        shell.connect(str(at["serial"]))
        shell.settimeout(60)
        said = b""
        while b"READY" not in said:
            said += shell.recv(4096)
        self.thread(lambda: None if shell.recv(65536) else self.ends.set())
        guest = Guest(self.place, number, pid, Qmp(at["own"]), shell, f"drive-{disks[0].front}0")
        self.guests.append(guest)
        return guest

    def cgroup(self, controller: str, settings: dict[str, str], pid: int = 0) -> "Bench":
        """Put the first VM, or another process, into a control group (version 1) with these settings."""
        group = CGROUPS / controller / f"exam{os.getpid()}-{len(self.cgroups)}"
        group.mkdir()
        self.cgroups.append(group)
        self.stack.callback(group.rmdir)
        for name, value in settings.items():
            (group / name).write_text(value)
        (group / "cgroup.procs").write_text(str(pid or self.guests[0].pid))

        def back() -> None:
            for pid in (group / "cgroup.procs").read_text().split():
                with suppress(OSError):
                    (CGROUPS / controller / "cgroup.procs").write_text(pid)
            until(lambda: not (group / "cgroup.procs").read_text())

        self.stack.callback(back)
        return self

    def limit_device(self, name: str, value: int) -> None:
        """Limit the VM at its first block device, by its control group."""
        numbers = Path(f"/sys/block/{self.devices[0]}/dev").read_text().strip()
        self.cgroup("blkio", {f"blkio.throttle.{name}_device": f"{numbers} {value}"})

    def hogs(self, count: int, cpus: str = "0,1") -> "Bench":
        """Busy programs on CPUs."""
        for _ in range(count):
            self.process(["taskset", "-c", cpus, "sh", "-c", "while :; do :; done"])
        return self

    def pin(self, cpus: dict[str, str]) -> "Bench":
        """Put QEMU's threads on CPUs."""
        for tid, role in threads(self.guests[0]).items():
            if role in cpus:
                subprocess.run(["taskset", "-cp", cpus[role], str(tid)], check=True, stdout=subprocess.DEVNULL)
        return self

    def host_load(self, **options: str) -> None:
        """Another program of this host that uses the first device."""
        words = [f"--{name}={value}" for name, value in options.items()]
        self.process(["fio", "--name=other", f"--filename=/dev/{self.devices[0]}", "--direct=1", "--ioengine=libaio",
                      "--time_based", "--runtime=60", *words])  # fmt: skip

    def monitor(self, line: str) -> None:
        """Give the human monitor of the first VM a line."""
        self.guests[0].qmp("human-monitor-command", command_line=line)

    def stop_server(self, seconds: float, every: float = 0.0) -> None:
        """Stop the storage server for so long; again and again after a pause, or once."""
        pid = self.servers[0]

        def step() -> None:
            os.kill(pid, signal.SIGSTOP)
            self.ends.wait(seconds)
            os.kill(pid, signal.SIGCONT)
            self.ends.wait(every or 60)

        self.thread(step)


def prefer(pid: int | str, nice: int = -15) -> None:
    """Let the sessions of the exam, its hogs among them, go before whatever else runs on this host."""
    Path(f"/proc/{pid}/autogroup").write_text(str(nice))


def end_process(pid: int) -> None:
    """Kill, and wait until it is gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}/fd").exists() or not os.listdir(f"/proc/{pid}/task"))


def until(so: Callable[[], object], seconds: float = 20) -> None:
    """Wait for it."""
    end = time.monotonic() + seconds
    while not so():
        if time.monotonic() > end:
            raise TimeoutError(f"nothing came within {seconds} s")
        time.sleep(0.02)


def threads(guest: Guest) -> dict[int, str]:
    """What a VM's threads do; the name of an IOThread would be too long for the kernel."""
    found = dict.fromkeys(map(int, os.listdir(f"/proc/{guest.pid}/task")), "worker") | {guest.pid: "main"}
    found |= {one["thread-id"]: "vcpu" for one in guest.qmp("query-cpus-fast")}
    return found | {one["thread-id"]: "iothread" for one in guest.qmp("query-iothreads")}


def sample(bench: Bench) -> dict[str, Any]:
    """All that is counted by others than virtune."""
    guest = bench.guests[0]
    found: dict[str, Any] = {"at": time.monotonic(), "qemu": guest.counters(), "threads": {}}
    for tid, role in threads(guest).items():
        with suppress(OSError):
            run, wait = Path(f"/proc/{guest.pid}/task/{tid}/schedstat").read_text().split()[:2]
            found["threads"][tid] = (role, int(run) / 1e9, int(wait) / 1e9)
    if bench.devices:
        words = Path(f"/sys/block/{bench.devices[0]}/stat").read_text().split()
        found["device"] = [int(one) for one in words]
    found["majflt"] = int(Path(f"/proc/{guest.pid}/stat").read_text().rsplit(")", 1)[1].split()[9])
    found["status"] = guest.qmp("query-status")["status"]
    found["jobs"] = [one["type"] for one in guest.qmp("query-block-jobs")]
    return found


@dataclass
class Seen:
    """What was measured beside virtune's look."""

    rate: float = 0.0  # requests of the first disk a second, flushes and discards apart
    before: float = 0.0  # the same before the fault
    bandwidth: float = 0.0
    read_ms: float = 0.0
    write_ms: float = 0.0
    flush_ms: float = 0.0
    flushes: float = 0.0
    discards: float = 0.0
    discard_ms: float = 0.0
    failed: float = 0.0
    device_rate: float = 0.0
    device_ms: float = 0.0
    device_flight: float = 0.0
    device_discards: float = 0.0
    run: dict[str, float] = field(default_factory=dict)  # CPUs used, by the busiest thread of its kind
    wait: dict[str, float] = field(default_factory=dict)
    majflt: float = 0.0
    status: str = ""
    jobs: list[str] = field(default_factory=list)


def between(a: dict[str, Any], b: dict[str, Any]) -> Seen:
    """Rates and means of the time between two samples."""
    seconds = b["at"] - a["at"]
    d = {name: value - a["qemu"].get(name, 0) for name, value in b["qemu"].items()}

    def mean_ms(kind: str) -> float:
        return float(d[f"{kind}_total_time_ns"] / 1e6 / max(1, d[f"{kind}_operations"]))

    seen = Seen(
        rate=(d["rd_operations"] + d["wr_operations"]) / seconds,
        bandwidth=(d["rd_bytes"] + d["wr_bytes"]) / seconds,
        read_ms=mean_ms("rd"), write_ms=mean_ms("wr"), flush_ms=mean_ms("flush"), discard_ms=mean_ms("unmap"),
        flushes=d["flush_operations"] / seconds, discards=d["unmap_operations"] / seconds,
        failed=sum(value for name, value in d.items() if name.startswith("failed_")) / seconds,
        majflt=(b["majflt"] - a["majflt"]) / seconds, status=b["status"], jobs=b["jobs"],
    )  # fmt: skip
    for tid, (role, run, wait) in b["threads"].items():
        had = a["threads"].get(tid, (role, 0.0, 0.0))
        share = [(run - had[1]) / seconds, (wait - had[2]) / seconds]
        if sum(share) > seen.run.get(role, 0.0) + seen.wait.get(role, 0.0):
            seen.run[role], seen.wait[role] = share
    if "device" in a:
        v = [y - x for x, y in zip(a["device"], b["device"], strict=True)]
        seen.device_rate, seen.device_flight = (v[0] + v[4]) / seconds, (v[3] + v[7]) / 1000 / seconds
        seen.device_discards = v[11] / seconds
        seen.device_ms = (v[3] + v[7]) / max(1, v[0] + v[4])
    return seen
