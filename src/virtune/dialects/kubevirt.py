# SPDX-License-Identifier: Apache-2.0
"""KubeVirt's VirtualMachine and VirtualMachineInstance in YAML: read, and altered in place (pure).

Unwritten settings have KubeVirt's defaults: cache=none (writethrough where the storage has no O_DIRECT, which
the text does not say), and discard=unmap always. Source: kubevirt.io/api/core/v1/schema.go.
"""

import re
from collections.abc import Iterator

from virtune.dialects.language import Language, no_disk, one_of
from virtune.dialects.text.yaml import Node, read_yaml, remove_key, set_key
from virtune.model.domain import DiskSource, Domain, DomainDisk, DomainThread, SettingChange
from virtune.model.errors import PlanError, ReadError

_WAYS = {
    "VirtualMachine": ("spec", "template", "spec"),
    "VirtualMachineInstance": ("spec",),
    "VirtualMachineInstanceReplicaSet": ("spec", "template", "spec"),
    "VirtualMachinePool": ("spec", "virtualMachineTemplate", "spec", "template", "spec"),
}
"""Where the specification of the VM is, by kind."""

_KNOWN = re.compile(
    rb"""^[ \t]*(?:-[ \t]+|\{.*)?["']?apiVersion["']?:[ \t]*["']?(?:pool\.)?kubevirt\.io/v""", re.MULTILINE
)
_GUESTS_OWN = ("persistentVolumeClaim", "dataVolume", "hostDisk")
_SCRATCH = ("containerDisk", "ephemeral", "emptyDisk")
_CPUS_MAX = 10_000
_BUSES = {"virtio": "virtio", "virtio-blk": "virtio", "scsi": "scsi", "virtio-scsi": "scsi", "sata": "sata",
          "ahci": "sata", "usb": "usb"}  # fmt: skip
_ERRORS = {"stop": "stop", "ignore": "ignore", "report": "report", "enospc": "enospace"}


def knows(text: bytes) -> bool:
    """Whether a text has an object of KubeVirt."""
    return _KNOWN.search(text[: 2 * 1024 * 1024]) is not None


def domains(text: bytes) -> tuple[Domain, ...]:
    """Read the VMs of a text; raises ReadError."""
    _, documents = read_yaml(text)
    found = tuple(_domain(name, machine, spec) for name, machine, spec in _named(documents))
    if not found:
        raise ReadError("it has no VirtualMachine and no VirtualMachineInstance of KubeVirt")
    return found


def turn(text: bytes, wanted: SettingChange, domain: str) -> bytes:
    """Return the text with one setting changed; raises PlanError for an invalid place or value."""
    page, documents = read_yaml(text)
    specs = [spec for name, _, spec in _named(documents) if domain in ("", name)]
    if not specs:
        raise PlanError(f"there is no VM {domain[:60]!r} here")
    if domain and len(specs) > 1:
        raise PlanError(f"{len(specs)} VMs are named {domain[:60]!r} here")
    spec = specs[0]
    if wanted.knob == "device.num_queues":
        return _queues(text, spec, wanted)
    disks = spec.get("domain", "devices", "disks")
    disk = next((one for one in disks.items if one.text("name") == wanted.at), None) if disks is not None else None
    if disk is None:
        raise no_disk(wanted, (one.text("name") for one in disks.items) if disks is not None else ())
    if wanted.knob == "device.bus":
        device = next((found for kind in ("disk", "lun", "cdrom") if (found := disk.get(kind)) is not None), None)
        if device is None:
            raise PlanError(f"the disk {wanted.at[:60]!r} is neither a disk nor a lun")
        return set_key(page, device, "bus", one_of(wanted, _BUSES))
    key, value = _written(disk, wanted)
    return remove_key(page, disk, key) if value is None else set_key(page, disk, key, value, after="name")


def _written(disk: Node, wanted: SettingChange) -> tuple[str, str | None]:
    none = wanted.value is None
    if wanted.knob == "disk.cache":
        words = {one: one for one in ("none", "writethrough", "writeback")}
        return "cache", None if none else one_of(wanted, words)
    if wanted.knob == "disk.aio":
        because = "KubeVirt has native, threads and default, and no io_uring"
        return "io", None if none else one_of(wanted, {"native": "native", "threads": "threads"}, otherwise=because)
    if wanted.knob == "device.werror":
        return "errorPolicy", None if none or wanted.value == "auto" else one_of(wanted, _ERRORS)
    if not none and disk.text("disk", "bus") != "virtio":
        raise PlanError("only disks with bus: virtio can have an IOThread")
    return "dedicatedIOThread", None if none else "true"


def _queues(text: bytes, spec: Node, wanted: SettingChange) -> bytes:
    page, _ = read_yaml(text)
    devices = spec.get("domain", "devices")
    if devices is None:
        raise PlanError("the VM has no devices")
    if wanted.value is None:
        return remove_key(page, devices, "blockMultiQueue")
    vcpus = _vcpus(spec)
    if wanted.value != str(vcpus):
        raise PlanError(f"blockMultiQueue gives one queue a vCPU, which are {vcpus}: it has no other number")
    return set_key(page, devices, "blockMultiQueue", "true")


def _machines(documents: tuple[Node, ...]) -> Iterator[tuple[Node, Node]]:
    for document in documents:
        listed = document.get("items")
        for one in [document, *(listed.items if listed is not None else ())]:
            way = _WAYS.get(one.text("kind"))
            spec = one.get(*way) if way and "kubevirt.io/" in one.text("apiVersion") else None
            if spec is not None and spec.get("domain") is not None:
                yield one, spec


def _named(documents: tuple[Node, ...]) -> list[tuple[str, Node, Node]]:
    """Return the VMs with their names. `kubectl get vm,vmi -A` may list one name in several namespaces, and a VM with
    its own instance: then all have as much before their names as tells them apart.
    """
    found = list(_machines(documents))
    names: list[str] = []
    for begin in (2, 1, 0):
        paths = (("kind",), ("metadata", "namespace"), ("metadata", "name"))[begin:]
        names = ["/".join(filter(None, (one.text(*path) for path in paths))) for one, _ in found]
        if len(set(names)) == len(names):
            break
    return [(name, one, spec) for name, (one, spec) in zip(names, found, strict=True)]


def _domain(name: str, machine: Node, spec: Node) -> Domain:
    listed = spec.get("domain", "devices", "disks")
    nodes = [one for one in (listed.items if listed is not None else ()) if one.is_mapping]
    threads = _Threads(spec, nodes)
    queues = _vcpus(spec) if spec.text("domain", "devices", "blockMultiQueue") == "true" else None
    default = _default_bus(machine, spec)
    disks = tuple(_disk(one, spec, threads, queues, default) for one in nodes)
    return Domain(
        name=name,
        uuid=machine.text("metadata", "uid") or None,
        kind="kvm",
        line=machine.line,
        vcpus=_vcpus(spec),
        machine=spec.text("domain", "machine", "type") or None,
        threads=tuple(DomainThread(number=number) for number in range(1, threads.count + 1)),
        threads_line=spec.line,
        host_devices=len(_list(spec, "hostDevices")) + len(_list(spec, "gpus")),
        disks=disks,
        language="kubevirt",
    )


def _list(spec: Node, name: str) -> list[Node]:
    found = spec.get("domain", "devices", name)
    return found.items if found is not None else []


def _vcpus(spec: Node) -> int:
    total = 1
    for name in ("cores", "sockets", "threads"):
        word = spec.text("domain", "cpu", name) or "1"
        if not word.isascii() or not word.isdecimal():
            raise ReadError(f"cpu.{name}: {word[:40]!r} is not a whole number")
        if len(word) > 5:
            raise ReadError(f"cpu.{name}: {word[:40]} is more than a VM can have")
        total *= int(word)
    return min(total, _CPUS_MAX)


class _Threads:
    """Hands out IOThreads as KubeVirt does: a shared pool for virtio disks, and one for each that wants its own."""

    def __init__(self, spec: Node, disks: list[Node]) -> None:
        policy = spec.text("domain", "ioThreadsPolicy")
        dedicated = any(one.text("dedicatedIOThread") == "true" for one in disks)
        asked = spec.text("domain", "ioThreads", "supplementalPoolThreadCount")
        self._mapped = int(asked) if policy == "supplementalPool" and asked.isdecimal() and len(asked) < 4 else 0
        self._pool = 0 if not (policy or dedicated) else 2 * _vcpus(spec) if policy == "auto" else 1
        self._next = 0
        self.count = self._mapped

    def of(self, disk: Node) -> tuple[int | None, tuple[int, ...]]:
        """Return the IOThread of a disk, or those that its queues are spread over."""
        if disk.text("disk", "bus") != "virtio":
            return None, ()
        if self._mapped:
            return None, tuple(range(1, self._mapped + 1))
        if disk.text("dedicatedIOThread") == "true" or self._next < self._pool:
            self._next += disk.text("dedicatedIOThread") != "true"
            self.count += 1
            return self.count, ()
        return (1, ()) if self._pool else (None, ())


_DEFAULT_BUSES = {"": "sata", "amd64": "sata", "arm64": "virtio", "s390x": "virtio"}
"""Of disks without a bus, by the VM's architecture, the cluster's own being amd64 (KubeVirt: pkg/defaults)."""


def _default_bus(machine: Node, spec: Node) -> str | None:
    """The bus of disks that name none; unknown where a preference may say it."""
    return _DEFAULT_BUSES.get(spec.text("architecture")) if machine.get("spec", "preference") is None else None


def _disk(disk: Node, spec: Node, threads: _Threads, queues: int | None, default: str | None) -> DomainDisk:
    kind = next((name for name in ("lun", "cdrom") if disk.get(name) is not None), "disk")
    name = disk.text("name")
    source, holds = _source(spec, name)
    bus = disk.text(kind, "bus") or default
    thread, mapping = threads.of(disk)
    io = disk.text("io")
    return DomainDisk(
        target=name,
        line=disk.line,
        device=kind,
        bus=bus,
        source=source,
        driver="qemu",
        cache=disk.text("cache") or "none",
        io=io if io in ("native", "threads") else None,
        discard="unmap",
        iothread=thread,
        mapping=mapping,
        queues=queues if bus == "virtio" else None,
        read_only=holds == "no" or disk.text(kind, "readonly") == "true",
        shareable=disk.text("shareable") == "true",
        transient=holds == "until the VM ends",
    )


def _source(spec: Node, name: str) -> tuple[DiskSource, str]:
    """Return where a disk's data lies, and whether it holds the guest's data: yes, no, or only until the VM ends."""
    volumes = spec.get("volumes")
    for volume in volumes.items if volumes is not None else ():
        if volume.text("name") != name:
            continue
        for kind in (*_GUESTS_OWN, *_SCRATCH):
            if volume.get(kind) is None:
                continue
            said = next((w for key in ("claimName", "name", "path", "image") if (w := volume.text(kind, key))), "")
            holds = "yes" if kind in _GUESTS_OWN else "until the VM ends"
            return DiskSource(kind="file" if kind == "hostDisk" else "volume", name=said or f"{kind}/{name}"), holds
        return DiskSource(kind="file", name=f"volume/{name}"), "no"
    return DiskSource(kind="volume", name=name), "yes"


KUBEVIRT = Language(
    name="kubevirt",
    title="KubeVirt",
    text="a KubeVirt VirtualMachine",
    knows=knows,
    domains=domains,
    turn=turn,
    implied=frozenset({"iothread.count"}),
    says={
        "disk.cache": "cache: none | writethrough | writeback",
        "disk.aio": "io: native | threads (no io_uring)",
        "device.bus": "disk.bus: virtio | scsi | sata | usb",
        "device.iothread": "dedicatedIOThread: true (bus: virtio)",
        "device.num_queues": "domain.devices.blockMultiQueue: true (one a vCPU, no other number)",
        "device.werror": "errorPolicy: stop | ignore | report | enospace",
    },
    refusals={
        "disk.discard": "KubeVirt always unmaps; only the cluster's list of ignored volumes stops that",
        "device.rerror": "errorPolicy is for reads and writes alike, and is turned as device.werror",
        "iothread.count": "ioThreadsPolicy and dedicatedIOThread make them, so none is counted",
        "device.iothread_vq_mapping": "ioThreadsPolicy: supplementalPool is for the whole VM; write it by hand",
        "iothread.pin": "dedicatedCpuPlacement: true pins all threads of a VM to CPUs that Kubernetes chooses",
        "vcpu.pin": "dedicatedCpuPlacement: true pins all threads of a VM to CPUs that Kubernetes chooses",
        "emulator.pin": "isolateEmulatorThread: true gives it a CPU that Kubernetes chooses",
        "device.physical_block_size": "blockSize.custom has it with the logical size, which may not change",
        **dict.fromkeys(
            ("disk.throttle_iops", "disk.throttle_bps", "disk.throttle_iops_read", "disk.throttle_iops_write",
             "disk.throttle_bps_read", "disk.throttle_bps_write"),
            "KubeVirt limits no disk; the storage class may",
        ),
    },
)  # fmt: skip
"""KubeVirt."""
