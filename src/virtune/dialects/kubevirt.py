# SPDX-License-Identifier: Apache-2.0
"""KubeVirt's VirtualMachine and VirtualMachineInstance in YAML: read, and altered in place (pure).

Unwritten settings have KubeVirt's defaults: cache=none (writethrough where the storage has no O_DIRECT, which
the text does not say), and discard=unmap always. Source: kubevirt.io/api/core/v1/schema.go.

Its YAML is parsed into nodes with positions and altered in place, from the parser's events, without recursion and
without interpreting tags; depth, number of nodes and of aliases are bounded, so that a text that refers to itself a
billion times costs what its own bytes cost.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from virtune.dialects.language import Language, no_disk, one_of
from virtune.dialects.text.lines import Page, read_page
from virtune.model.domain import DiskSource, Domain, DomainDisk, DomainThread, SettingChange
from virtune.model.errors import PlanError, ReadError

BYTES_MAX = 1536 * 1024
"""etcd, which keeps Kubernetes' objects, takes no larger request."""

DEPTH_MAX, NODES_MAX, ALIASES_MAX = 100, 60_000, 100
_PLAIN = re.compile(r"[A-Za-z0-9][\w./-]*", re.ASCII)


@dataclass(slots=True)
class Node:
    """A scalar (`value`), a list (`items`) or a mapping (`pairs`); `start:end` are its characters.

    Of a list or mapping in block style `end` lies beyond it; only `start` is its own. `shared` nodes have a name.
    """

    start: int
    end: int
    line: int
    column: int
    value: str | None = None
    flow: bool = False
    is_mapping: bool = False
    shared: bool = False
    children: list["Node"] = field(default_factory=list)

    @property
    def items(self) -> list["Node"]:
        """The items of a list, none for anything else."""
        return [] if self.is_mapping else self.children

    @property
    def pairs(self) -> Iterator[tuple["Node", "Node"]]:
        """The keys and values of a mapping, none for anything else."""
        if self.is_mapping:
            yield from zip(self.children[::2], self.children[1::2], strict=False)

    def get(self, *path: str) -> "Node | None":
        """Return what stands below keys, None where something of the way is missing."""
        found: Node | None = self
        for name in path:
            found = next((value for key, value in found.pairs if key.value == name), None) if found else None
        return found

    def text(self, *path: str) -> str:
        """Return a scalar below keys, empty where there is none."""
        found = self.get(*path)
        return (found.value or "") if found is not None else ""


def read_yaml(text: bytes) -> tuple[Page, tuple[Node, ...]]:
    """Read the documents of an untrusted text; raises ReadError."""
    page = read_page(text, bytes_max=BYTES_MAX)
    try:
        return page, tuple(_documents(page.text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        problem = getattr(error, "problem", None) or "not well-formed"
        raise ReadError(f"{where}it is no YAML: {problem}") from None
    except ValueError as error:
        raise ReadError(f"it is no YAML: {error}") from None


def _documents(text: str) -> Iterator[Node]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C parser is ten times as quick
    builder = _Builder()
    for event in yaml.parse(text, Loader=loader):
        done = builder.take(event)
        if done is not None:
            yield done


class _Builder:
    """Builds nodes from the parser's events, and bounds them."""

    def __init__(self) -> None:
        self._opened: list[Node] = []
        self._named: dict[str, Node] = {}
        self._nodes = self._aliases = 0

    def take(self, event: yaml.Event) -> Node | None:
        """Take one event; returns a document's node once it is whole."""
        if isinstance(event, yaml.DocumentStartEvent):
            self._named.clear()
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, yaml.NodeEvent):
            return self._open(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            closed = self._opened.pop()
            closed.end = event.end_mark.index if event.end_mark is not None else closed.start
            return None if self._opened else closed
        return None

    def _alias(self, event: yaml.AliasEvent) -> None:
        self._aliases += 1
        if self._aliases > ALIASES_MAX:
            raise ReadError(f"it has more than {ALIASES_MAX} aliases")
        node = self._named.get(event.anchor or "")
        if node is None:
            raise ReadError("it has an alias of nothing")
        node.shared = True
        if self._opened:
            self._opened[-1].children.append(node)

    def _open(self, event: yaml.NodeEvent) -> Node | None:
        self._nodes += 1
        if self._nodes > NODES_MAX or len(self._opened) > DEPTH_MAX:
            raise ReadError(f"it has more than {NODES_MAX} nodes, or is deeper than {DEPTH_MAX}")
        at, behind = event.start_mark, event.end_mark
        assert at is not None  # noqa: S101 - the parser marks every event; only those made by hand have none
        assert behind is not None  # noqa: S101 - likewise
        node = Node(
            start=at.index,
            end=behind.index,
            line=at.line + 1,
            column=at.column,
            value=event.value if isinstance(event, yaml.ScalarEvent) else None,
            flow=bool(getattr(event, "flow_style", False)),
            is_mapping=isinstance(event, yaml.MappingStartEvent),
        )
        if event.anchor is not None:
            self._named[event.anchor] = node
        if self._opened:
            self._opened[-1].children.append(node)
        if isinstance(event, yaml.CollectionStartEvent):
            self._opened.append(node)
            return None
        return None if self._opened else node


def set_key(page: Page, mapping: Node, key: str, value: str, *, after: str = "") -> bytes:
    """Return the bytes with a key of a mapping set to a plain word: at its place, or after another key, or first."""
    if not _PLAIN.fullmatch(value):
        raise PlanError(f"{value[:60]!r} is no value that can be written here")
    _own(mapping)
    found = mapping.get(key)
    if found is not None:
        if found.value is None or found.shared:
            raise PlanError(f"line {found.line}: {key} is no plain value")
        return page.spliced(found.start, found.end, value if found.end > found.start else f" {value}")
    first = next(mapping.pairs, None)
    if first is None or mapping.flow:
        inner = f"{key}: {value}" + (", " if first is not None else "")
        at = page.text.find("{", mapping.start) + 1
        if not at or not mapping.flow:
            raise PlanError(f"line {mapping.line}: there is no place for {key}")
        return page.spliced(at, at, inner)
    indent = " " * first[0].column
    beside = mapping.get(after) if after else None
    if beside is not None and beside.value is not None and "\n" not in page.text[beside.start : beside.end]:
        end = page.text.find("\n", beside.end)
        end = len(page.text) if end < 0 else end - (page.text[end - 1] == "\r")
        return page.spliced(end, end, f"{page.newline}{indent}{key}: {value}")
    return page.spliced(first[0].start, first[0].start, f"{key}: {value}{page.newline}{indent}")


def remove_key(page: Page, mapping: Node, key: str) -> bytes:
    """Return the bytes without a key of a mapping whose value is a plain word on the same line."""
    pairs = list(mapping.pairs)
    place = next((number for number, (name, _) in enumerate(pairs) if name.value == key), None)
    if place is None:
        return page.spliced(0, 0, "")
    _own(mapping)
    name, value = pairs[place]
    if value.value is None or value.shared or "\n" in page.text[name.start : value.end]:
        raise PlanError(f"line {name.line}: {key} is no plain value")
    if mapping.flow:
        if place + 1 < len(pairs):
            return page.spliced(name.start, pairs[place + 1][0].start, "")
        start = pairs[place - 1][1].end if place else name.start
        return page.spliced(start, value.end, "")
    begin = page.text.rfind("\n", 0, name.start) + 1
    end = page.text.find("\n", value.end)
    if not page.text[begin : name.start].strip():
        return page.spliced(begin, len(page.text) if end < 0 else end + 1, "")
    if place + 1 == len(pairs) or "#" in page.text[value.end : pairs[place + 1][0].start]:
        raise PlanError(f"line {name.line}: {key} stands on the line of its list's item; take it away by hand")
    return page.spliced(name.start, pairs[place + 1][0].start, "")


def _own(mapping: Node) -> None:
    if mapping.shared or not mapping.is_mapping:
        raise PlanError(f"line {mapping.line}: it is shared by an alias, or no mapping")


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
        return _queues(page, spec, wanted)
    disks = {one.text("name"): one for one in reversed(_list(spec, "disks"))}
    disk = disks.get(wanted.at)
    if disk is None:
        raise no_disk(wanted, disks)
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


def _queues(page: Page, spec: Node, wanted: SettingChange) -> bytes:
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
    nodes = [one for one in _list(spec, "disks") if one.is_mapping]
    threads = _Threads(spec, nodes)
    queues = _vcpus(spec) if spec.text("domain", "devices", "blockMultiQueue") == "true" else None
    # of disks that name none; unknown where a preference may say it
    default = _DEFAULT_BUSES.get(spec.text("architecture")) if machine.get("spec", "preference") is None else None
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
        werror=disk.text("errorPolicy") or None,
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
)  # fmt: skip
"""KubeVirt."""
