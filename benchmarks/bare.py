# SPDX-License-Identifier: Apache-2.0
"""From exec to the first I/O of a guest without an operating system, and the cost of the virtio path.

    python -m benchmarks.bare start [TIMES]      exec to first I/O, with QEMU's own start told apart; KVM and TCG
    python -m benchmarks.bare linux [TIMES]      the same for a guest with Linux, under TCG: booted, and resumed
    python -m benchmarks.bare path [TIMES]       QD1 on a disk that answers at once, each in a new process: the mean,
                                                 what null-co has of it, and the rest, which is the path

`start` counts from the exec of QEMU until this host knows that the guest's first read has ended. QEMU's own start is
the same QEMU with the same board and no guest, until its monitor answers. QEMU's CPU time until then is told too: a
busy host makes the wall clock longer and leaves that as it is.
"""

import contextlib
import json
import os
import socket
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

from virtune.bench.appliance.build import chosen_appliance
from virtune.bench.qemu.carried import place_threads
from virtune.bench.qemu.load import Line, find_guest, running_bare
from virtune.bench.qemu.machine import Accelerator, monitored, running
from virtune.bench.qemu.rig import BareSession
from virtune.dialects.qemu.guest import PARKED, device_commands, first_commands, parked_command
from virtune.model.stack import Device, Machine, Pins, Stack
from virtune.probe.process import Process
from virtune.shell import Warden, cache_directory, find

SIZE = 64 * 1024**2
BARE = Stack(rig="qemu", machine=Machine(system="bare"), device=Device(iothread="io1"))
CPUS = sorted(os.sched_getaffinity(0))
LOADS = 4
DISK = "/machine/peripheral/disk0/virtio-backend"
BIN_NS, MOST_NS = 10, 2000
"""The bins into which QEMU counts reads by their time below its device."""
FIRST = first_commands(BARE, SIZE, read_only=True)


def accelerators(warden: Warden) -> list[Accelerator]:
    """KVM where it runs the guest, and TCG."""
    found = BareSession(find_guest(), warden).accelerator_for(None)
    tcg = Accelerator(kvm=False, why="compared with KVM", tried=False)
    return [found, tcg] if found.kvm else [tcg]


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of all threads of a process."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in files) / 1e9


def first_io_in_linux(warden: Warden, *, boots: bool) -> tuple[float, float]:
    """Return the seconds from exec to the end of the first read in Linux under TCG, and QEMU's of CPU.

    It boots with its disk, or goes on from a saved state and gets its disk then.
    """
    appliance = chosen_appliance(cache_directory())
    disk = (parked_command(SIZE, read_only=True), *device_commands(Stack(rig="qemu"), PARKED))
    begun = time.monotonic()
    with running(appliance, warden, kvm=False, asked=Machine(), first=disk if boots else ()) as vm:
        if not boots:
            for command in disk:
                vm.monitor.execute(command.execute, command.arguments)
        words = "for m in $(cat /lib/modules/virtio_blk.order); do insmod /lib/modules/$m.ko; done 2>/dev/null; "
        words = words if boots else ""
        words += "until [ -b /dev/vda ]; do :; done; dd if=/dev/vda of=/dev/null bs=4k count=1 2>/dev/null; echo read"
        assert "read" in str(vm.guest.look.run(words, timeout_seconds=60))
        return time.monotonic() - begun, cpu_of(vm.child.pid)


def first_io(accelerator: Accelerator, warden: Warden) -> tuple[float, float]:
    """Return the seconds from exec to the end of the first read, and QEMU's of CPU."""
    begun = time.monotonic()
    with running_bare(
        find_guest(), warden, kvm=accelerator.kvm, host_cpu=accelerator.host_cpu, asked=BARE.machine, first=FIRST
    ) as vm:
        job = b"[a]\nioengine=virtio-blk\nfilename=disk0\nrw=randread\nbs=4k\nhipri=1\nnumber_ios=1\n"
        vm.line.ask("job", job, expect="armed", timeout_seconds=20)
        vm.line.ask("go", b"9000 0", expect="began", timeout_seconds=20)
        frame = vm.line.receive(20)
        assert frame is not None
        assert frame.kind == "ended", frame
        return time.monotonic() - begun, cpu_of(vm.child.pid)


def qemu_alone(accelerator: Accelerator, warden: Warden) -> float:
    """Return the seconds from exec until the monitor of a QEMU without a guest answers."""
    ours, theirs = socket.socketpair()
    words = [
        find("qemu-system-x86_64"),
        "-M",
        "q35,hpet=off",
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-S",
    ]
    words += [
        "-accel",
        "kvm" if accelerator.kvm else "tcg",
        "-cpu",
        accelerator.host_cpu if accelerator.kvm else "max",
    ]
    words += ["-m", "512M", "-chardev", f"socket,id=m,fd={theirs.fileno()}", "-mon", "chardev=m,mode=control"]
    with contextlib.ExitStack() as ends:
        ends.enter_context(ours)
        begun = time.monotonic()
        child = ends.enter_context(warden.running(words, name="alone", keep=(theirs.fileno(),)))
        theirs.close()
        ends.enter_context(monitored(ours, child))
        return time.monotonic() - begun


def path_cost(accelerator: Accelerator, warden: Warden) -> tuple[float, float]:
    """Return the latency of QD1 reads in us on a disk that answers at once, in a new process, and what null-co itself
    has of it: the time from QEMU's device to the block layer and back, by QEMU's own account of the same reads.

    The vCPU and the IOThread have a CPU each: on one, or where the scheduler moves them, the IOThread stops polling
    and each request has to wake it, which takes ten times as long. Of several short loads the least disturbed counts,
    and of that the mean of its densest half: a busy host takes a CPU away in the other.
    """
    stack = replace(BARE, pins=Pins(vcpu=str(CPUS[0]), iothread=str(CPUS[-1])))
    with running_bare(
        find_guest(), warden, kvm=accelerator.kvm, host_cpu=accelerator.host_cpu, asked=stack.machine, first=FIRST
    ) as vm:
        place_threads(stack, Process(vm.child.pid))
        bins = {"id": DISK, "boundaries-read": list(range(BIN_NS, MOST_NS, BIN_NS))}
        found = []
        for _ in range(LOADS):
            vm.monitor.execute("block-latency-histogram-set", bins)
            whole = densest_half(latencies(vm.line))
            seen = vm.block_statistics()["rd_latency_histogram"]["bins"]
            below = densest_half([(number * BIN_NS + BIN_NS // 2, count) for number, count in enumerate(seen)])
            found.append((whole / 1e3, below / 1e3))
        return min(found)


def latencies(line: Line) -> list[tuple[int, int]]:
    """Return the bins of the latencies of a short load: nanoseconds, and how many reads took so long."""
    job = b"[a]\nioengine=virtio-blk\nfilename=disk0\nrw=randread\nbs=4k\nhipri=1\n"
    job += b"runtime=200ms\ntime_based=1\nlat_percentiles=1\n"
    line.ask("job", job, expect="armed", timeout_seconds=20)
    line.ask("go", b"9000 0", expect="began", timeout_seconds=20)
    while (frame := line.receive(20)) is not None:
        if frame.kind == "result":
            bins = json.loads(frame.body)["jobs"][0]["read"]["lat_ns"]["bins"]
            return sorted((int(place), count) for place, count in bins.items())
    raise AssertionError("the guest said nothing")


def densest_half(bins: list[tuple[int, int]]) -> float:
    """Return the mean of the bins that hold half of all reads within the narrowest span."""
    need = sum(count for _, count in bins) / 2
    best: list[tuple[int, int]] = []
    last = held = 0
    for first, (place, count) in enumerate(bins):
        while held < need and last < len(bins):
            held, last = held + bins[last][1], last + 1
        if held < need:
            break
        if not best or bins[last - 1][0] - place < best[-1][0] - best[0][0]:
            best = bins[first:last]
        held -= count
    return sum(place * count for place, count in best) / sum(count for _, count in best)


def told(name: str, values: list[float], unit: str) -> None:
    middle = statistics.median(values)
    near = sum(abs(value / middle - 1) <= 0.05 for value in values)
    spread = f"{min(values):.3f} to {max(values):.3f}, {near} of {len(values)} within 5 % of it"
    print(f"{name}: median {middle:.3f} {unit}, {spread}", flush=True)


def main() -> None:
    what, times = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20
    print(f"load average {os.getloadavg()[0]:.1f}, guest of {Path(find_guest()).stat().st_size} bytes")
    with Warden("bench-bare") as warden:
        for accelerator in accelerators(warden):
            print(f"{accelerator.name}: {accelerator.why}")
            if what == "start":
                alone, whole = [], []
                for _ in range(times):
                    alone.append(qemu_alone(accelerator, warden))
                    whole.append(first_io(accelerator, warden))
                told(f"{accelerator.name} QEMU alone", alone, "s")
                told(f"{accelerator.name} exec to first I/O", [seconds for seconds, _ in whole], "s")
                told(f"{accelerator.name} QEMU's CPU until then", [cpu for _, cpu in whole], "s")
            elif what == "linux":
                if accelerator.kvm:
                    continue
                first_io_in_linux(warden, boots=False)  # saves the state where there is none
                for how, boots in (("booted", True), ("resumed", False)):
                    whole = [first_io_in_linux(warden, boots=boots) for _ in range(times)]
                    told(f"Linux under TCG, {how}, exec to first I/O", [seconds for seconds, _ in whole], "s")
                    told(f"Linux under TCG, {how}, QEMU's CPU until then", [cpu for _, cpu in whole], "s")
            else:
                found = [path_cost(accelerator, warden) for _ in range(times)]
                told(f"{accelerator.name} QD1 mean", [whole for whole, _ in found], "us")
                told(f"{accelerator.name} null-co's own", [below for _, below in found], "us")
                told(f"{accelerator.name} path: mean minus null-co's", [a - b for a, b in found], "us")


if __name__ == "__main__":
    main()
