# SPDX-License-Identifier: Apache-2.0
"""Rules for the host: which of its facts slow down disk I/O or disturb measurements."""

from collections.abc import Iterator

from virtune.model.facts import DeviceFacts, HostFacts, Program, Unknown
from virtune.model.remark import GATE_BY_ID, Remark, Weight, remark_of
from virtune.model.text import format_bytes, format_ns

BUSY_PERCENT = 5.0
"""Stalls above this share of time are reported: on an idle host all three stay below 1 %."""
VERY_BUSY_PERCENT = 25.0
"""From this share on, a measurement depends more on other processes than on the disk."""
SLOW_WAKE_US = 100
"""A fast disk answers in 10 to 100 us; waking that slowly would be most of what is measured at depth 1."""
AIO_NEARLY_FULL = 0.8
AIO_PER_CONTEXT = 1024
"""The number of AIO slots that each AioContext of a QEMU takes from fs.aio-max-nr once it uses aio=native."""
LITTLE_SPACE_BYTES = 4 * 1024**3
_SLOW_CLOCKS = frozenset({"hpet", "acpi_pm", "jiffies", "refined-jiffies"})


def judge_host(facts: HostFacts) -> tuple[Remark, ...]:
    """Return warnings for measuring on this host, the most severe first. An unknown fact gives no finding."""
    found = [
        *_tools(facts),
        *_kernel(facts),
        *_kvm(facts),
        *_cpu(facts),
        *_around(facts),
        *_busy(facts),
        *_scratch(facts),
        *(remark for disk in facts.disks for remark in _disk(disk.device)),
    ]
    return tuple(sorted(found, key=lambda remark: remark.weight.rank))


def _tools(facts: HostFacts) -> Iterator[Remark]:
    needed = (
        (facts.fio.program, "fio", "fio"),
        (facts.qemu.storage_daemon, "qemu-storage-daemon", "qemu-system-common, or qemu-storage-daemon"),
        (facts.qemu.image_tool, "qemu-img", "qemu-utils"),
    )
    for program, name, package in needed:
        if isinstance(program, Unknown) and program.because == "not installed":
            yield remark_of("tool", text=f"{name} is not installed", advice=f"install {package}")
    engines = facts.fio.engines
    if isinstance(facts.fio.program, Program) and not isinstance(engines, Unknown) and "nbd" not in engines:
        yield remark_of("fio-nbd", text="this fio has no nbd engine, so NBD exports cannot be loaded")


def _kernel(facts: HostFacts) -> Iterator[Remark]:
    ring = facts.kernel.io_uring
    if ring.built is False:
        yield remark_of("io_uring", text="this kernel is built without io_uring")
    elif ring.disabled in (1, 2):
        whom = "for all" if ring.disabled == 2 else "for all but root and one group"
        text = f"io_uring is switched off {whom} (kernel.io_uring_disabled={ring.disabled})"
        yield remark_of(
            "io_uring", text=text, advice="`sysctl kernel.io_uring_disabled=0`, if your security policy allows it"
        )
    elif ring.usable is False:
        text = "io_uring is not permitted: a seccomp filter (a container?) or the kernel forbids it"
        yield remark_of("io_uring", text=text)
    used, limit = facts.kernel.aio_used, facts.kernel.aio_limit
    if isinstance(used, int) and isinstance(limit, int) and limit and used >= AIO_NEARLY_FULL * limit:
        text = f"{used} of {limit} kernel AIO slots are taken; aio=native takes {AIO_PER_CONTEXT} for each IOThread"
        yield remark_of("aio", text=text)
    if facts.kernel.clocksource in _SLOW_CLOCKS:
        text = f"the clock source is {facts.kernel.clocksource}: reading the time is slow, and every I/O does it"
        yield remark_of("clock", text=text)
    if facts.kernel.ksm_runs is True:
        yield remark_of("ksm", text="KSM merges memory pages in the background, at the cost of CPU time")


def _kvm(facts: HostFacts) -> Iterator[Remark]:
    if not facts.kvm.exists:
        text = "there is no /dev/kvm: guests would be emulated, and their numbers would describe the emulator"
        advice = "load kvm_intel or kvm_amd, or allow nested virtualization on the host below"
        yield remark_of("kvm", text=text, advice=advice)
    elif facts.kvm.opens is False:
        yield remark_of("kvm", text="no permission to open /dev/kvm", advice="add yourself to the group `kvm`")
    elif facts.kvm.creates_vm is False:
        yield remark_of("kvm", text="/dev/kvm opens, and the kernel refuses to make even an empty VM")


def _cpu(facts: HostFacts) -> Iterator[Remark]:
    governors = facts.cpu.governors
    if not isinstance(governors, Unknown) and set(governors) != {"performance"}:
        text = f"the CPU frequency governor is {' and '.join(governors)}: CPU clocks rise late, so rounds vary more"
        yield remark_of("governor", text=text)
    if facts.cpu.turbo is True:
        text = "turbo is on: CPU speed depends on temperature and on the other cores"
        yield remark_of("turbo", text=text)
    deepest = facts.cpu.deepest_idle
    if not isinstance(deepest, Unknown) and deepest.latency_us > SLOW_WAKE_US:
        latency = format_ns(deepest.latency_us * 1e3)
        yield remark_of("idle", text=f"CPUs may sleep as deep as {deepest.name}, and then need {latency} to wake")


def _around(facts: HostFacts) -> Iterator[Remark]:
    hypervisor = facts.virtualization.hypervisor
    if isinstance(hypervisor, str) and hypervisor != "none":
        text = f"this host is itself a virtual machine ({hypervisor}): its disk and CPUs are shared with others"
        yield remark_of("virtual", text=text)
    cpus = facts.limits.cpus
    if isinstance(cpus, float):
        yield remark_of(
            "cpu-limit", text=f"a control group limits us to {cpus:g} CPUs, and throttles what needs more"
        )
    for limit in facts.limits.io:
        yield GATE_BY_ID["io-limit"].remark(text=f"a control group limits our I/O: {limit}", advice="")


def _busy(facts: HostFacts) -> Iterator[Remark]:
    if not isinstance(facts.busy.pressure, Unknown):
        for one in facts.busy.pressure:
            if not isinstance(one.some_percent, Unknown) and one.some_percent > BUSY_PERCENT:
                grave = one.some_percent > VERY_BUSY_PERCENT
                text = f"tasks waited for {one.resource} in {one.some_percent:.0f} % of the last 10 seconds"
                advice = "wait until other work on this host ends" if grave else ""
                yield remark_of("busy", weight=Weight.WARNING if grave else Weight.NOTE, text=text, advice=advice)
    load, cpus = facts.busy.load_1min, facts.cpu.online
    if not isinstance(load, Unknown) and not isinstance(cpus, Unknown) and load > cpus:
        yield remark_of("load", text=f"the load was {load:.1f} in the last minute, with {cpus} CPUs")
    swap = facts.memory.swap_used_bytes
    if not isinstance(swap, Unknown) and swap > 0:
        yield remark_of(
            "swap-used", text=f"{format_bytes(swap)} of memory are swapped out; a guest among them would stall"
        )


def _scratch(facts: HostFacts) -> Iterator[Remark]:
    scratch = facts.scratch
    if scratch.backing.filesystem in ("tmpfs", "ramfs"):
        text = f"{scratch.directory} is in memory ({scratch.backing.filesystem}): no disk would be measured there"
        yield remark_of("scratch-memory", text=text)
    elif scratch.direct_io is False:
        text = f"O_DIRECT does not work in {scratch.directory}: cache=none cannot be measured there"
        yield remark_of("direct", text=text)
    free = scratch.free_bytes
    if not isinstance(free, Unknown) and free < LITTLE_SPACE_BYTES:
        yield remark_of("space", text=f"only {format_bytes(free)} are free in {scratch.directory}")


def _disk(device: DeviceFacts) -> Iterator[Remark]:
    if device.iostats is False:
        text = f"{device.name} does not count its I/O (iostats is 0), so no time can be attributed to it"
        yield remark_of("iostats", text=text, advice=f"`echo 1 > /sys/block/{device.name}/queue/iostats`")
    if device.rotational is True and device.driver == "virtio_blk":
        text = f"{device.name} reports itself as rotational: virtio does not show the real medium"
        yield remark_of("rotational", text=text)
