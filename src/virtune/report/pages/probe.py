# SPDX-License-Identifier: Apache-2.0
"""A host's facts as text: one page of at most 100 columns, with the warnings last, next to the prompt."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from rich.console import Group, RenderableType
from rich.text import Text

from virtune.model import facts as host
from virtune.model.remark import Remark
from virtune.model.text import format_bytes, format_ns
from virtune.report.render.terminal import Table, paragraphs, remarks_table, right, wide

Value = TypeVar("Value")
Row = tuple[str, Text]

_LABEL_COLUMNS = 15
_MINOR = ("loop", "zram", "ram", "nbd", "sr", "fd")
"""Devices that are rarely what a guest's disk lies on; a desktop has dozens. They are counted, not listed."""

_DRIVERS = (
    "raw", "qcow2", "luks", "file", "host_device", "nvme", "nvme-io_uring", "io_uring", "virtio-blk-vfio-pci",
    "virtio-blk-vhost-vdpa", "nbd", "iscsi", "nfs", "rbd", "gluster", "ssh", "https", "throttle", "null-co",
)  # fmt: skip
_ENGINES = (
    "io_uring", "io_uring_cmd", "libaio", "psync", "pvsync2", "posixaio", "mmap", "sg", "nbd", "libblkio", "rbd",
)  # fmt: skip


def render(facts: host.HostFacts, remarks: tuple[Remark, ...]) -> RenderableType:
    sections: list[tuple[str, Iterable[Row]]] = [
        ("host", _host(facts)),
        ("processors", _cpu(facts.cpu)),
        ("kernel", _kernel(facts.kernel)),
        ("KVM", _kvm(facts.kvm)),
        ("QEMU", _qemu(facts.qemu)),
        (
            "fio and libvirt",
            [
                ("fio", _text(facts.fio.program, _program)),
                ("engines", _text(facts.fio.engines, lambda names: _of_interest(names, _ENGINES))),
                ("libvirt client", _text(facts.libvirt.client, _program)),
                ("libvirt daemon", _text(facts.libvirt.daemon, _program)),
            ],
        ),
        ("scratch", _scratch(facts.scratch)),
    ]
    parts: list[RenderableType] = []
    for title, rows in sections:
        cells = ((Text(label.ljust(_LABEL_COLUMNS), style="dim"), text) for label, text in rows)
        parts += [Text(title, style="bold"), Table(["", *wide("")], cells, indent=2), Text()]
    parts += [Text("disks", style="bold"), *_disks(facts.disks)]
    nothing = Text("  no problem found", style="green")
    parts += [Text("warnings and notes", style="bold"), remarks_table(remarks) if remarks else nothing]
    return Group(*parts)


def _host(facts: host.HostFacts) -> Iterator[Row]:
    around, memory = facts.virtualization, facts.memory
    yield _row(
        "machine",
        _part("hypervisor", around.hypervisor, lambda one: "not virtual" if one == "none" else f"a VM on {one}"),
        _part("container", around.container, lambda name: "" if name == "none" else f"in a container ({name})"),
    )
    yield _row(
        "memory",
        _part("size", memory.total_bytes, format_bytes),
        _part("free", memory.available_bytes, lambda size: f"{format_bytes(size)} available"),
        _part("swap", memory.swap_total_bytes, lambda size: f"swap {format_bytes(size)}" if size else "no swap"),
    )
    yield _row(
        "limits",
        _part("CPUs", facts.limits.cpus, lambda cpus: "none on CPUs" if cpus is None else f"{cpus:g} CPUs"),
        _part("I/O", facts.limits.io, lambda lines: "; ".join(lines) or "none on I/O"),
    )
    yield _row(
        "busy now",
        _part("load", facts.busy.load_1min, lambda load: f"load {load:.2f}"),
        _part("stalls", facts.busy.pressure, _pressure),
    )


def _pressure(found: tuple[host.Pressure, ...]) -> str:
    known = [(one.resource, one.some_percent) for one in found if not isinstance(one.some_percent, host.Unknown)]
    return "stalled on " + ", ".join(f"{resource} {percent:.1f} %" for resource, percent in known)


def _cpu(cpu: host.CpuFacts) -> Iterator[Row]:
    yield "model", _text(cpu.model, str)
    yield _row(
        "count",
        _part("CPUs", cpu.online, lambda online: f"{online} CPUs"),
        _part("cores", cpu.cores, lambda cores: f"{cores} cores"),
        _part("sockets", cpu.sockets, lambda sockets: f"{sockets} socket{'s' if sockets > 1 else ''}"),
        _part("SMT", cpu.smt, lambda smt: "SMT on" if smt else "SMT off"),
    )
    yield "NUMA", _text(cpu.numa, lambda nodes: "; ".join(f"node {node.node}: CPUs {node.cpus}" for node in nodes))
    yield _row(
        "frequency",
        _part("governor", cpu.governors, lambda names: f"governor {', '.join(names)}"),
        _part("driver", cpu.frequency_driver, lambda driver: f"driver {driver}"),
        _part("turbo", cpu.turbo, lambda turbo: "turbo on" if turbo else "turbo off"),
    )
    yield _row(
        "idle",
        _part(
            "depth",
            cpu.deepest_idle,
            lambda state: f"deepest {state.name} ({format_ns(state.latency_us * 1e3)} to wake)",
        ),
        _part("driver", cpu.idle_driver, lambda driver: f"driver {driver}"),
    )
    left_open = "?" if isinstance(cpu.vulnerable, host.Unknown) else str(len(cpu.vulnerable))
    yield "mitigations", _text(cpu.mitigated, lambda names: f"{len(names)} active, {left_open} left open")


def _kernel(kernel: host.KernelFacts) -> Iterator[Row]:
    yield "release", _text(kernel.release, str)
    ring, tried = kernel.io_uring, {True: "works (tried)", False: "does not work (tried)"}
    switch = {0: "not switched off", 1: "switched off for most", 2: "switched off"}
    yield _row(
        "io_uring",
        _part("whether it works", ring.usable, lambda works: tried[works]),
        _part("whether built", ring.built, lambda built: "" if built else "not built in"),
        # a kernel before 6.6 has no such switch, which needs no report
        _part("", ring.disabled, lambda disabled: switch.get(disabled, "")),
    )
    yield _row(
        "kernel AIO",
        _part("slots taken", kernel.aio_used, lambda used: f"{used:,} slots taken"),
        _part("limit", kernel.aio_limit, lambda limit: f"limit {limit:,}"),
    )
    yield "clock source", _text(kernel.clocksource, str)
    yield _row(
        "huge pages",
        _part("transparent", kernel.transparent_hugepages, lambda choice: f"transparent: {choice}"),
        _part("KSM", kernel.ksm_runs, lambda runs: "KSM on" if runs else "KSM off"),
    )
    # at a size where one is set, else at a share of memory
    begin = _threshold(kernel.dirty_background_bytes, kernel.dirty_background_percent)
    hold = _threshold(kernel.dirty_bytes, kernel.dirty_percent)
    yield _row(
        "write-back",
        _part("begin", begin, lambda size: f"of dirty pages begins at {size}"),
        _part("limit", hold, lambda size: f"holds writers up at {size}"),
    )
    yield "arguments", _text(kernel.arguments, lambda words: " ".join(words) or "none that matter here")


def _threshold(size: int | host.Unknown, percent: int | host.Unknown) -> str | host.Unknown:
    if not isinstance(size, host.Unknown) and size > 0:
        return format_bytes(size)
    return percent if isinstance(percent, host.Unknown) else f"{percent} % of memory"


def _kvm(kvm: host.KvmFacts) -> Iterator[Row]:
    if not kvm.exists:
        yield "/dev/kvm", Text("not there")
        return
    yield _row(
        "/dev/kvm",
        _part("opens", kvm.opens, lambda opens: "opens" if opens else "does not open"),
        _part("VM", kvm.creates_vm, lambda made: "makes an empty VM" if made else "makes no VM"),
    )
    if kvm.creates_vm is True:
        yield "guest", _text(kvm.boot, str)
    yield "halt polling", _text(kvm.halt_poll_ns, lambda polled: format_ns(polled) if polled else "off")
    yield "nested", _text(kvm.nested, lambda nested: "on" if nested else "off")


def _qemu(qemu: host.QemuFacts) -> Iterator[Row]:
    for emulator in qemu.emulators:
        yield "emulator", _program(emulator)
    if not qemu.emulators:
        yield "emulator", Text("not installed", style="dim")
    else:
        yield "accelerators", _text(qemu.accelerators, ", ".join)
    yield "storage daemon", _text(qemu.storage_daemon, _program)
    yield "exports", _text(qemu.exports, ", ".join)
    yield "image tool", _text(qemu.image_tool, _program)
    yield "drivers", _text(qemu.drivers, lambda names: _of_interest(names, _DRIVERS))


def _of_interest(names: tuple[str, ...], interesting: tuple[str, ...]) -> str:
    """Name those that matter for a guest's disk, with their number; the JSON has all."""
    chosen = [name for name in interesting if name in names]
    rest = len(names) - len(chosen)
    return ", ".join(chosen) + (f" and {rest} more" if rest else "")


def _program(program: host.Program) -> Text:
    text = Text(f"{program.name} ")
    text.append_text(_text(program.version, str))
    if not isinstance(program.package, host.Unknown):
        text.append(f"  {program.package}", style="dim")
    return text


def _scratch(scratch: host.ScratchFacts) -> Iterator[Row]:
    backing = scratch.backing
    yield "directory", Text(scratch.directory)
    place = Text(f"{backing.filesystem or 'no filesystem'} on {backing.mount_point or 'no mount'}, ")
    place.append(" > ".join(device.name for device in backing.devices) or f"{backing.gap}")
    yield "lies on", place
    yield _row(
        "space",
        _part("free", scratch.free_bytes, lambda free: f"{format_bytes(free)} free"),
        _part("size", scratch.size_bytes, lambda size: f"{format_bytes(size)} in all"),
    )
    yield _row(
        "O_DIRECT",
        _part(
            "whether it works", scratch.direct_io, lambda works: "works (tried)" if works else "does not work (tried)"
        ),
        _part("block", scratch.direct_block_bytes, lambda size: f"blocks of {size} bytes and more"),
    )


def _disks(disks: tuple[host.DiskFacts, ...]) -> Iterator[RenderableType]:
    shown = [disk for disk in disks if not disk.device.name.startswith(_MINOR)]
    numbers = ("size", "queues")
    titles = ("name", "size", "medium", "scheduler", "queues", "requests", "depth", "cache", "block", "in use")
    table = Table((right(one)[0] if one in numbers else one for one in titles), indent=2)
    for disk in shown:
        words = ("not checked" if one.kind is host.ClaimKind.UNSEEN else one.kind.value for one in disk.claims)
        table.add_row(*_disk_cells(disk.device), ", ".join(dict.fromkeys(words)) or "no")
    yield table if shown else Text("  no disk is visible", style="dim")
    for disk in shown:
        yield from paragraphs(dict.fromkeys(claim.text for claim in disk.claims), "dim")
    if len(disks) > len(shown):
        rest = ", ".join(disk.device.name for disk in disks if disk not in shown)
        yield from paragraphs([f"not shown: {rest}"], "dim")
    yield Text()


def _disk_cells(device: host.DeviceFacts) -> Iterator[str]:
    yield device.name
    yield _cell(device.size_bytes, format_bytes)
    yield _cell(device.rotational, lambda rotates: "rotating" if rotates else "solid state")
    for value in (device.scheduler, device.queues, device.nr_requests, device.queue_depth, device.write_cache):
        yield _cell(value, str)
    yield f"{_cell(device.logical_block_bytes, str)}/{_cell(device.physical_block_bytes, str)}"


def _text(value: Value | host.Unknown, write: Callable[[Value], str | Text]) -> Text:
    """Return a value, or, dimmed, why it is unknown."""
    if isinstance(value, host.Unknown):
        words = value.because if value.because == "not installed" else f"unknown: {value.because}"
        return Text(words, style="dim italic")
    written = write(value)
    return written if isinstance(written, Text) else Text(written)


def _part(label: str, value: Value | host.Unknown, write: Callable[[Value], str]) -> tuple[str, str | host.Unknown]:
    """Prepare one part of a line: its name for when it is unknown, and its text for when it is known."""
    return label, value if isinstance(value, host.Unknown) else write(value)


def _row(title: str, *parts: tuple[str, str | host.Unknown]) -> Row:
    """Join parts by commas. An unknown one is named; if all are unknown, the first one's reason is given."""
    reasons = [said for _, said in parts if isinstance(said, host.Unknown)]
    if len(reasons) == len(parts):
        return title, _text(reasons[0], str)
    written = [
        Text(f"{label} unknown" if label else "", style="dim italic")
        if isinstance(said, host.Unknown)
        else Text(said)
        for label, said in parts
    ]
    return title, Text(", ").join(text for text in written if text)


def _cell(value: Value | host.Unknown, write: Callable[[Value], str]) -> str:
    return "-" if isinstance(value, host.Unknown) else write(value)
