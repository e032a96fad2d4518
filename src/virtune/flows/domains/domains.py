# SPDX-License-Identifier: Apache-2.0
"""Find domains in files, in folders or at a libvirt, each with the known facts of its host."""

import contextlib
import difflib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from virtune import bounded
from virtune.advise.audit import audit, rules
from virtune.bench.live.emulators import Emulator, emulator_called, folder_of
from virtune.dialects.language import Language
from virtune.dialects.languages import SUFFIXES, language_of
from virtune.dialects.libvirt.alter import LIBVIRT
from virtune.dialects.libvirt.domain import may_be_domain, read_domain
from virtune.dialects.proxmox import PROXMOX, placed
from virtune.dialects.qemu.command import cache_mode, disks_of_argv
from virtune.dialects.text.masking import masked
from virtune.dialects.text.xml import BYTES_MAX
from virtune.model.domain import DiskSource, Domain, DomainDisk, cache_of
from virtune.model.errors import PreconditionError, ReadError, RigError, UsageError, words_of
from virtune.model.facts import Program, Unknown
from virtune.model.finding import (
    UNKNOWN_STATE,
    Finding,
    HostView,
    PassedOver,
    ProcessDisk,
    Rule,
    Running,
    Subject,
    Unread,
)
from virtune.model.live import LiveDisk, LiveVm
from virtune.model.stack import LIMITS, THROUGH_CACHES
from virtune.probe.cpu import cpu_facts, online_cpus
from virtune.probe.host import memory_facts
from virtune.probe.images import image_views, probed_format
from virtune.probe.kernel import kernel_facts
from virtune.probe.process import IO_URING, NATIVE, Process, process_of_domain
from virtune.probe.programs import libvirt_facts, qemu_facts
from virtune.virsh import DumpedDomain, Virsh, version_of

Fact = TypeVar("Fact")

PASSED_NAMED = 5
"""The most files without a VM that are named of a folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDomain:
    """A domain found: its place, its configuration's text and language, and the Subject for rules."""

    origin: str
    text: bytes
    subject: Subject
    language: Language = LIBVIRT


def everywhere(
    paths: Sequence[Path], connect: str | None, names: Sequence[str], *, here: bool
) -> Iterator[FoundDomain | Unread | PassedOver]:
    """Yield the domains of files and folders, then those of a libvirt, over a read-only connection."""
    yield from from_paths(paths, here=here)
    if connect:
        yield from from_libvirt(Virsh(connect), names)


def from_paths(paths: Sequence[Path], *, here: bool) -> Iterator[FoundDomain | Unread | PassedOver]:
    """Yield the domains of files and folders. With `here` they are assumed to run on this host.

    A folder's files without a VM are counted at its end, and links to what is in it, which libvirt makes for
    autostart, are left out. A VM that cannot be read is Unread, and so are a folder without any, and what may hold
    one: a folder in it, a link out of it, an empty file. A name that is no path may be that of a QEMU that runs here
    without a libvirt. Raises UsageError for a path that is not there.
    """
    host = this_host() if here and paths else HostView()
    for path in paths:
        if path.is_dir():
            yield from _from_folder(path, host, here=here)
        elif not path.exists():
            named = len(path.parts) == 1 and not path.suffix
            if named and (running := emulator_called(str(path))) is not None:
                yield from as_it_runs(running)
                continue
            hint = f"a libvirt domain is named by `--connect URI --domain {path}`" if named else None
            raise UsageError(f"no file and no folder {str(path)!r}", hint=hint)
        else:
            yield from _from_file(path, host, here=here, named=True)


def as_it_runs(emulator: Emulator) -> Iterator[FoundDomain | Unread]:
    """Yield the VM of a QEMU that runs here without a libvirt: its configuration, and what its monitor and its
    process show of it now.
    """
    for found in _from_file(emulator.configuration, this_host(), here=True, named=True):
        if isinstance(found, FoundDomain):
            live = found.subject.domain if found.subject.running is None else found.subject.running.live
            state, vm = _told_by(emulator.sockets)
            process = Process(emulator.pid)
            live = live if live.emulator is None else replace(live, emulator=_program(process, live))
            if vm is not None:
                # of several accelerators that could be had, which one runs it is on no command line
                kind = "kvm" if not vm.emulated else "qemu" if live.kind == "kvm" else live.kind
                live = _with_disks(replace(live, kind=kind), vm.disks)
            running = _running(state, live, process)
            yield replace(found, subject=replace(found.subject, running=running, like=emulator.called))
        else:
            yield found


def _program(process: Process, vm: Domain) -> str | None:
    """Return the program that a process runs, since its command line may have a name that PATH led to, or a link; the
    word of the command line where that may not be seen.
    """
    program = process.program()
    if program is None or program.name.endswith(" (deleted)"):  # which an upgrade of its package does
        return vm.emulator
    with contextlib.suppress(OSError):
        if not process.runs(program):  # in a container, this path means another file
            return f"{program} of another root directory"
    return str(program)


def _told_by(sockets: Sequence[Path]) -> tuple[tuple[str, str], LiveVm | None]:
    """Return a VM's state with its reason, and what the first monitor that answers tells of it; None where none
    does.
    """
    from virtune.bench.live.monitor import monitored  # half of what loads, and most domains are asked of no monitor

    for place in sockets:
        with contextlib.suppress(PreconditionError, RigError), monitored(place, paused_too=True) as view:
            return view.state, view.vm
    return (UNKNOWN_STATE, "no monitor of it answered"), None


def _with_disks(domain: Domain, disks: Sequence[LiveDisk]) -> Domain:
    """Return a VM with the limits and the cache that its disks have now, with the disks that were plugged in, and
    without those that are gone: QEMU tells of all that hold data, but for those that another process serves.
    """
    words = {limit.unit: limit.libvirt for limit in LIMITS}
    now = {disk.target: tuple((words[unit], int(value)) for unit, value in disk.limits.items()) for disk in disks}
    flags = {disk.target: disk.opened for disk in disks}
    found = []
    for disk in domain.disks:
        at, limits = {name: value for name, value in disk.limits if value}, now.pop(disk.target, None)
        if limits is None and disk.holds_data and disk.source.kind != "vhostuser":
            continue
        beside = tuple((name, value) for name, value in at.items() if name not in words.values())
        limited = disk.limits if limits is None or dict(limits) == at else (*limits, *beside)
        found.append(replace(disk, limits=limited, cache=_cache_now(disk, flags.get(disk.target))))
    for one in (one for one in disks if one.target in now):
        source = DiskSource(kind="network", name="", protocol=one.protocol)
        if one.path is not None:
            source = replace(source, kind="block" if Path(one.path).is_block_device() else "file", name=one.path)
        mode = None if one.opened is None else cache_mode(direct=one.opened[0], no_flush=one.opened[1], through=False)
        found.append(DomainDisk(target=one.target, line=0, source=source, limits=now[one.target], cache=mode))
    return replace(domain, disks=tuple(found))


def _cache_now(disk: DomainDisk, opened: tuple[bool, bool] | None) -> str | None:
    """Return the cache mode of a disk by the flags that its image is open with. Whether it writes through is by its
    configuration: a guest without flushes, such as a firmware, turns the write cache off for itself.
    """
    if opened is None or not disk.opened_here or disk.transient:  # whose overlay is what is open
        return disk.cache
    direct, no_flush = opened
    return cache_mode(direct=direct, no_flush=no_flush, through=cache_of(disk) in THROUGH_CACHES)


def _from_folder(path: Path, host: HostView, *, here: bool) -> Iterator[FoundDomain | Unread | PassedOver]:
    files, passed, read = 0, list[str](), False
    for file in _below(path):
        if isinstance(file, Unread):
            read = True
            yield file
            continue
        files += 1
        held = False
        for one in _from_file(file, host, here=here, named=False) if file.suffix in SUFFIXES else ():
            held = read = True
            yield one
        if not held:
            passed.append(str(file.relative_to(path)))
    if not read:
        none = "none is a VM that virtune can read" if files else "there is no file in it"
        yield Unread(origin=str(path), because=f"{files:,} file{'s'[: files != 1]}, {none}" if files else none)
    elif passed:
        yield PassedOver(origin=str(path), count=len(passed), files=files, names=tuple(passed[:PASSED_NAMED]))


def _below(path: Path) -> Iterator[Path | Unread]:
    """Yield the files below a folder, and the folders and links in it that may lead to VMs and are not followed."""
    refused: list[OSError] = []
    every: list[Path] = []
    for folder, inner, names in os.walk(path, onerror=refused.append):
        every += [Path(folder) / name for name in (*inner, *names)]
    for one in sorted(every):
        try:
            kind = stat.S_IFMT(one.lstat().st_mode)
        except OSError:  # reading it will say why
            kind = stat.S_IFREG
        if kind == stat.S_IFLNK:
            yield from _not_followed(one, os.path.realpath(path))
        elif kind != stat.S_IFDIR:
            yield one
    for error in refused:
        yield Unread(origin=str(error.filename), because=f"it cannot be read: {words_of(error)}")


def _not_followed(link: Path, home: str) -> Iterator[Unread]:
    to = Path(os.path.realpath(link))
    try:
        inner = stat.S_ISDIR(to.stat().st_mode)
    except OSError as error:
        if link.suffix in SUFFIXES:
            yield Unread(origin=str(link), because=f"it is a link to {to}: {words_of(error)}")
    else:
        if not to.is_relative_to(home) and (inner or link.suffix in SUFFIXES):
            yield Unread(origin=str(link), because=f"it is a link to {to}, outside of the folder")


def _from_file(path: Path, host: HostView, *, here: bool, named: bool) -> Iterator[FoundDomain | Unread]:
    try:
        text = read_limited(path)
        language = _language_of(path, text, named=named)
        if language is None:
            return
        domains = language.domains(text)
        live = language.live(text) if language.live is not None else None
    except ReadError as error:
        yield Unread(origin=str(path), because=error.message)
        return
    running = None
    if live is not None:
        running = Running(state=UNKNOWN_STATE, reason="", live=_of_this_host(live, language) if here else live)
    for one in domains:
        domain = _as_seen_by(path, one if one.name else replace(one, name=path.stem))
        domain = _of_this_host(domain, language) if here else domain
        view = replace(host, images=image_views(domain)) if here else host
        like = str(path) if here and len(domains) == 1 else ""
        subject = Subject(domain=domain, host=view, running=running, like=like)
        yield FoundDomain(origin=str(path), text=text, subject=subject, language=language)


def _as_seen_by(path: Path, domain: Domain) -> Domain:
    """Return a domain whose relative paths are those of the process that has it, where a file is its command line."""
    process = _COMMAND_LINE.fullmatch(str(path))
    if process is None:
        return domain
    folder = folder_of(int(process[1]))
    disks = (
        replace(one, source=replace(one.source, name=str(folder / one.source.name)))
        if one.source.kind == "file" and one.source.name
        else one
        for one in domain.disks
    )
    return replace(domain, disks=tuple(disks))


def _of_this_host(domain: Domain, language: Language) -> Domain:
    """Return a domain of this host with what is not written: the formats that QEMU takes its images for, and what the
    types of a Proxmox node's storages decide.
    """
    disks = (
        replace(one, format=probed_format(one.source.name)) if one.format_unknown and one.opened_here else one
        for one in domain.disks
    )
    domain = replace(domain, disks=tuple(disks))
    if language is PROXMOX:
        from virtune.bench.volumes import proxmox_storages

        with contextlib.suppress(PreconditionError):  # a user may not read them: then their types are not known
            domain = placed(domain, proxmox_storages())
    return domain


_COMMAND_LINE = re.compile(r"/proc/(\d{1,9})/cmdline")


def _language_of(path: Path, text: bytes, *, named: bool) -> Language | None:
    """The language of a file's text; None for a file in a folder that holds no VM. Raises ReadError."""
    if named:
        return LIBVIRT if path.suffix == ".xml" else language_of(text)
    if not text.strip(b"\0 \t\r\n"):
        raise ReadError("it is empty")
    try:
        found = LIBVIRT if path.suffix == ".xml" else language_of(text)
    except ReadError:
        return None
    return None if found is LIBVIRT and not may_be_domain(text) else found


def read_limited(path: Path) -> bytes:
    """Read an untrusted file: only a regular one, and no more than a domain's text may have."""
    try:
        with bounded.opened(path) as descriptor:
            # a directory can be opened, but no file object made of it
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ReadError("it is not a regular file")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                # a read allocates what it asks for; a file may grow, and what a kernel makes up has no size
                text = file.read(min(status.st_size, BYTES_MAX) + 1)
                more = BYTES_MAX + 1 - len(text) if len(text) > status.st_size else 0
                return text + file.read(more)
    except OSError as error:
        raise ReadError(f"it cannot be read: {words_of(error)}") from None


def from_libvirt(virsh: Virsh, names: Sequence[str] = ()) -> Iterator[FoundDomain | Unread]:
    """Yield the domains of a libvirt, all or those named (by name or UUID), as they will start next.

    For those that run on this host the process is read as well.
    """
    host, local = _host_of(virsh)
    uuids = tuple(virsh.uuid(name) for name in names) or virsh.uuids()
    for dumped in virsh.dump(uuids):
        try:
            yield _found_in(virsh.uri, dumped, host, local=local)
        except ReadError as error:
            yield Unread(origin=f"{virsh.uri} {dumped.uuid}", because=error.message)


def surroundings(virsh: Virsh, dumped: DumpedDomain) -> FoundDomain:
    """Return one domain from libvirt with the facts of its host; raises ReadError."""
    host, local = _host_of(virsh)
    return _found_in(virsh.uri, dumped, host, local=local)


def _host_of(virsh: Virsh) -> tuple[HostView, bool]:
    """The known facts of the host at the other end, and whether it is this host."""
    facts = virsh.facts()
    host = this_host() if facts.local else HostView(cpus=facts.cpus)
    host = replace(host, libvirt=facts.libvirt)
    return (replace(host, qemu=facts.hypervisor_version) if facts.hypervisor == "QEMU" else host), facts.local


def _found_in(uri: str, dumped: DumpedDomain, host: HostView, *, local: bool) -> FoundDomain:
    """Return one domain from libvirt, with the known facts of its images and its process."""
    text = (dumped.inactive or dumped.live or "").encode()
    domain = read_domain(text)
    view = replace(host, images=image_views(domain)) if local else host
    live = None if dumped.live is None else read_domain(dumped.live.encode())
    process = process_of_domain(dumped.uuid) if local and live is not None else None
    running = None if live is None else _running((dumped.state, dumped.reason), live, process)
    like = (dumped.uuid if domain.name.startswith("-") else domain.name) if local else ""
    subject = Subject(domain=domain, host=view, running=running, connect=uri, like=like)
    return FoundDomain(origin=uri, text=text, subject=subject)


def _running(state: tuple[str, str], live: Domain, process: Process | None) -> Running:
    """Return a running VM by its state with the reason, as it is now, and by its process where that is seen."""
    if process is None:
        return Running(state=state[0], reason=state[1], live=live)
    from virtune.bench.verify import opened

    rings, nodes = process.rings(), disks_of_argv(process.argv())
    shown = []
    for disk in live.disks:
        if disk.source.kind not in ("file", "block") or not disk.holds_data:
            continue
        direct = opened(process, Path(disk.source.name)).direct
        node = nodes.get(disk.source.name)
        aio, no_flush = (None, None) if node is None else (node.aio, node.no_flush)
        on = None if direct is None else direct == "on"
        shown.append(ProcessDisk(target=disk.target, direct=on, aio=aio, no_flush=no_flush))
    # another user's process shows neither descriptors nor maps, so its engines are unknown
    readable = process.readable
    return Running(
        state=state[0],
        reason=state[1],
        live=live,
        pid=process.pid,
        rings=rings.count(IO_URING) if readable else None,
        contexts=rings.count(NATIVE) if readable else None,
        disks=tuple(shown),
    )


def this_host() -> HostView:
    """Return the facts of this host that rules use."""
    kernel, cpu, memory = kernel_facts(), cpu_facts(), memory_facts()
    emulators, libvirt = qemu_facts().emulators, libvirt_facts()
    release = _known(kernel.release)
    qemu = _known(emulators[0].version) if emulators else None
    daemon = libvirt.daemon
    libvirt_version = _known(daemon.version) if isinstance(daemon, Program) else None
    return HostView(
        kernel=version_of(release) if release else None,
        qemu=version_of(qemu) if qemu else None,
        libvirt=version_of(libvirt_version) if libvirt_version else None,
        io_uring_disabled=_known(kernel.io_uring.disabled),
        io_uring_usable=_known(kernel.io_uring.usable),
        aio_used=_known(kernel.aio_used),
        aio_limit=_known(kernel.aio_limit),
        cpus=_known(cpu.online),
        online=_known(online_cpus()),
        nodes={one.node: one.cpus for one in _known(cpu.numa) or ()},
        memory_bytes=_known(memory.total_bytes),
        dirty_percent=_known(kernel.dirty_percent),
        dirty_bytes=_known(kernel.dirty_bytes),
        governors=_known(cpu.governors),
    )


def _known(fact: Fact | Unknown) -> Fact | None:
    return None if isinstance(fact, Unknown) else fact


def unified(before: bytes, after: bytes, *, name: str) -> str:
    """Return a unified diff of two texts; empty when there is none. Passwords are never shown."""
    lines = difflib.unified_diff(_lines(before), _lines(after), name, f"{name} (changed)", n=2)
    return "".join(lines).removesuffix("\n")


def _lines(text: bytes) -> list[str]:
    """The lines of a text with their ends, which `patch` compares too."""
    *lines, last = masked(text.decode(errors="replace")).split("\n")
    return [*(f"{line}\n" for line in lines), *([f"{last}\n\\ No newline at end of file\n"] if last else [])]


IN_FORCE: frozenset[str] = frozenset({"R08", "R13", "R29", "R37", "R80", "R81"})
"""The rules on differences between configuration and running state; all others belong to the audit."""


def probe_domains(
    found: Iterable[FoundDomain | Unread | PassedOver],
) -> tuple[list[tuple[str, Subject, tuple[Finding, ...]]], list[Unread]]:
    """Return every domain with the differences from its configuration, and those that could not be read."""
    asked: tuple[Rule, ...] = tuple(one for one in rules() if one.id in IN_FORCE)
    known: list[tuple[str, Subject, tuple[Finding, ...]]] = []
    lost: list[Unread] = []
    for one in found:
        if isinstance(one, Unread):
            lost.append(one)
        elif isinstance(one, FoundDomain):
            known.append((one.origin, one.subject, audit(one.subject, asked)))
    return known, lost
