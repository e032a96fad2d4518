# SPDX-License-Identifier: Apache-2.0
"""Verify a guest's device, its IOThreads and its machine at the running QEMU."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from virtune.dialects.qemu.guest import AHCI, DEVICE, mapping_text
from virtune.model.errors import RigError
from virtune.model.evidence import Check
from virtune.model.machine import MEMORY
from virtune.model.stack import Stack
from virtune.probe.process import Process

GUEST = "virtune-guest"
"""The program that is a guest by itself."""

Ask = Callable[[str, Mapping[str, Any]], Any]
"""Executes a QMP command with its arguments; raises RigError with QEMU's message."""

_SHOWN = (
    ("device.num_queues", "num-queues"),
    ("device.queue_size", "queue-size"),
    ("device.packed", "packed"),
    ("device.event_idx", "event_idx"),
    ("scsi.num_queues", "num_queues"),
    ("nvme.max_ioqpairs", "max_ioqpairs"),
    ("device.logical_block_size", "logical_block_size"),
    ("device.physical_block_size", "physical_block_size"),
)
"""The knobs of a device, and the properties by which QEMU shows them."""


def require_known(ask: Ask, driver: str, properties: Mapping[str, Any], version: str) -> None:
    """Raise RigError when this QEMU's device lacks one of these properties, which is queried and never guessed."""
    has = {one["name"] for one in ask("device-list-properties", {"typename": driver})}
    for name in properties:
        if name not in has | {"driver", "id", "bus"}:
            raise RigError(
                f"{version} has no `{name}` for {driver}",
                hint="`--set machine.emulator=PATH` takes another QEMU, where one is installed",
            )


def device_checks(ask: Ask, added: Mapping[str, Mapping[str, Any]], stack: Stack) -> Iterator[Check]:
    """Check the properties of QEMU's devices; `added` has the requested ones by the device's id."""
    yield _bus_check(ask, stack)
    for identity, given in added.items():
        at = f"/machine/peripheral/{identity}"
        for setting, name in _SHOWN:
            if name in given:
                found = _text(ask("qom-get", {"path": at, "property": name}))
                yield Check(
                    setting=setting, asked=_text(given[name]), found=found, proof=f"QMP qom-get {identity}.{name}"
                )
        if (mapping := stack.device.iothread_vq_mapping) is not None and "iothread-vq-mapping" in given:
            shown = ask("qom-get", {"path": at, "property": "iothread-vq-mapping"})
            yield Check(
                setting="device.iothread_vq_mapping",
                asked=mapping,
                found=mapping_text(shown, queues=":" in mapping),
                proof=f"QMP qom-get {identity}.iothread-vq-mapping",
            )


def thread_checks(ask: Ask, stack: Stack) -> Iterator[Check]:
    """Check the settings of the disk's IOThreads at QEMU."""
    own = (
        ("iothread.poll_max_ns", "poll-max-ns", stack.poll_max_ns),
        ("iothread.thread_pool_max", "thread-pool-max", stack.thread_pool_max),
    )
    for setting, name, asked in own:
        if asked is None:
            continue
        found = {
            str(ask("qom-get", {"path": f"/objects/{thread}", "property": name})) for thread in stack.device.iothreads
        }
        shown = found.pop() if len(found) == 1 else "several"
        yield Check(setting=setting, asked=str(asked), found=shown, proof=f"QMP qom-get /objects/ID {name}")


def machine_checks(
    ask: Ask, stack: Stack, process: Process, version: str, cpus_in_guest: str | None
) -> Iterator[Check]:
    """Check every requested setting of the machine at QEMU."""
    asked = stack.machine
    if asked.emulator is not None:
        yield _emulator_check(asked.emulator, process, version)
    if asked.type is not None:
        shown = str(ask("qom-get", {"path": "/machine", "property": "type"})).removesuffix("-machine")
        family = {"q35": "pc-q35-", "pc": "pc-i440fx-"}.get(asked.type)
        found = asked.type if shown == asked.type or (family and shown.startswith(family)) else shown
        yield Check(setting="machine.type", asked=asked.type, found=found, proof=f"QMP qom-get /machine: {shown}")
    if asked.system is not None:
        kernel = str(ask("qom-get", {"path": "/machine", "property": "kernel"}))
        system = "bare" if Path(kernel).name == GUEST else "linux"
        proof = f"QMP qom-get /machine: it booted {kernel}"
        yield Check(setting="guest.system", asked=asked.system, found=system, proof=proof)
    cpus = ask("query-cpus-fast", {})
    if asked.vcpus is not None:
        count = str(asked.vcpus)
        yield Check(setting="machine.vcpus", asked=count, found=str(len(cpus)), proof="QMP query-cpus-fast")
        yield Check(
            setting="guest.vcpus", asked=count, found=cpus_in_guest, proof="the CPUs that answer in the guest"
        )
    if asked.cpu is not None:
        kind = str(ask("qom-get", {"path": cpus[0]["qom-path"], "property": "type"})).removesuffix("-x86_64-cpu")
        name = asked.cpu.partition(",")[0]
        found = asked.cpu if kind == name else kind
        yield Check(setting="machine.cpu", asked=asked.cpu, found=found, proof=f"QMP qom-get the CPU's type: {kind}")
    if asked.memory is not None:
        memory = ask("query-memory-size-summary", {})["base-memory"]
        yield Check(
            setting="machine.memory",
            asked=str(asked.memory or MEMORY),
            found=str(memory),
            proof="QMP query-memory-size-summary",
        )


def _emulator_check(asked: str, process: Process, version: str) -> Check:
    """Compare the running program with the requested one; a wrapper script is not resolved."""
    program = process.program()
    same = program is not None and Path(asked).resolve() == program
    return Check(
        setting="machine.emulator",
        asked=asked,
        found=asked if same else None,
        proof=f"/proc/{process.pid}/exe is {program}, which says of itself: {version}",
        hidden=not same and _is_script(Path(asked)),
    )


def _is_script(program: Path) -> bool:
    with contextlib.suppress(OSError), program.open("rb") as file:
        return file.read(2) == b"#!"
    return False


def _bus_check(ask: Ask, stack: Stack) -> Check:
    """Check the disk's bus, by its device's type and controller."""
    at = f"/machine/peripheral/{DEVICE}"
    kind = str(ask("qom-get", {"path": at, "property": "type"}))
    parent = str(ask("qom-get", {"path": at, "property": "parent_bus"}))
    buses = {
        "virtio-blk-pci": "virtio-blk",
        "virtio-blk-device": "virtio-blk",
        "scsi-hd": "virtio-scsi",
        "nvme": "nvme",
        "ide-hd": "ide",
    }
    found = "ahci" if kind == "ide-hd" and f"/{AHCI}/" in parent else buses.get(kind, kind)
    proof = f"QMP qom-get {DEVICE}: {kind} on {parent}"
    return Check(setting="device.bus", asked=stack.device.bus, found=found, proof=proof)


def _text(value: object) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
