# SPDX-License-Identifier: Apache-2.0
"""`--like VM[:DISK]`: an existing VM is found, wherever its configuration is, and its disk becomes the settings that
every arm starts from, on the storage that it lies on. Nothing of the VM is changed or written to.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from virtune import shell
from virtune.bench.live.emulators import emulator_called
from virtune.bench.volumes import group_of, place_of, proxmox_path
from virtune.flows.domains.domains import FoundDomain, as_it_runs, from_libvirt, from_paths
from virtune.model.domain import DiskSource, DomainDisk
from virtune.model.errors import PlanError, UsageError, VirtuneError
from virtune.model.finding import UNKNOWN_STATE, PassedOver, Subject, Unread
from virtune.model.knobs import matching
from virtune.model.stack import volume_place
from virtune.model.study import UNLIKE
from virtune.model.study_options import ChosenOption, Provenance, StudyOptions
from virtune.plan.like import LeftBehind, Likeness, Looked, accelerated, carried, likeness
from virtune.plan.space import VARIED_BY_DEFAULT
from virtune.virsh import Virsh, default_uri


@dataclass(frozen=True, slots=True, kw_only=True)
class LikeVm:
    """What a study takes from a VM: its rig, settings, and the directory of its storage (None: a target is given, or
    another directory); what it is, and what of it is not carried over.
    """

    rig: str
    settings: tuple[str, ...]
    scratch: Path | None
    said: str
    left: tuple[LeftBehind, ...]

    @property
    def unlike(self) -> tuple[ChosenOption, ...]:
        """What is recorded of what was left behind."""
        return tuple(
            ChosenOption(name=f"{UNLIKE}{one.what}", value=one.why, source=Provenance.LIKE) for one in self.left
        )


def begun_like(
    asked: StudyOptions, sources: dict[str, Provenance], *, vm: LikeVm | None = None
) -> tuple[StudyOptions, dict[str, Provenance], tuple[ChosenOption, ...]]:
    """Return the options of a study with the settings of the VM that it is to be like, where their values came from,
    and what is recorded of it; the user's own settings take the place of the VM's. `vm` is what is known of it
    already. Raises as `like_vm` does.
    """
    if asked.like is None:
        return asked, sources, ()
    vm = vm or like_vm(asked, instead=asked.settings)
    given = {"rig": vm.rig, "settings": (*vm.settings, *asked.settings), "scratch": asked.scratch or vm.scratch}
    took = {name: Provenance.LIKE for name in given if name not in sources}
    if asked.its_load:
        took["workloads"] = Provenance.LIKE
    return replace(asked, like=vm.said, **given), {**sources, **took}, vm.unlike  # type: ignore[arg-type]


def searched_like(asked: StudyOptions) -> tuple[StudyOptions, tuple[ChosenOption, ...]]:
    """Return the options of a search whose baseline is the VM's disk: what is varied is of the baseline, all else is
    of every configuration. Raises as `like_vm` does.
    """
    if asked.like is None:
        return asked, ()
    own = [word for word in (asked.baseline or "").split(",") if word.strip()]
    vm = like_vm(asked, instead=(*asked.fix, *own))
    varied = {one.id for text in asked.vary for one in matching(text.partition("=")[0].strip())} or VARIED_BY_DEFAULT
    theirs = [word for word in vm.settings if word.partition("=")[0] in varied]
    held = [word for word in vm.settings if word not in theirs]
    asked = replace(
        asked, like=vm.said, rig=vm.rig, fix=(*held, *asked.fix), scratch=asked.scratch or vm.scratch,
        baseline=",".join((*theirs, *own)) or None,
    )  # fmt: skip
    return asked, vm.unlike


def like_vm(asked: StudyOptions, *, instead: Sequence[str] = ()) -> LikeVm:
    """Return what a study takes from the VM and disk that it is to be like: a file with its configuration, the number
    of a Proxmox VM, or a libvirt domain.

    `instead` are the user's own settings, which take the place of the VM's. Raises UsageError where there is no such
    VM or disk, or several; PlanError where QEMU does not run it, or its storage cannot be used.
    """
    found, name = find_vm(asked.like or "", asked.connect)
    return liken(found, name, asked, instead=instead)


def liken(found: FoundDomain, name: str, asked: StudyOptions, *, instead: Sequence[str] = ()) -> LikeVm:
    """Return the same of a VM that was found, and the name of its disk. Raises as `like_vm` does."""
    found = as_it_is_now(found)
    domain = found.subject.domain
    if not domain.runs_qemu:
        raise PlanError(
            f"{domain.name or found.origin} is run by {domain.kind or 'no QEMU'}, and test disks are QEMU's",
            hint="`--set` names the settings by hand; `virtune host knobs` lists them",
        )
    disk = disk_of(found, name)
    elsewhere = found.subject.host.kernel is None
    kvm = os.access("/dev/kvm", os.R_OK | os.W_OK)
    rig = asked.rig or ("qemu" if kvm else "storage-daemon")
    own = asked.target is not None or asked.scratch is not None
    scratch = asked.scratch if own else _storage(domain.name, disk, found.subject.connect, elsewhere=elsewhere)
    plain = asked.target is not None or volume_place(str(scratch)) is not None
    taken: Likeness = carried(likeness(looked_at(found.subject, disk)), rig, instead=instead, target=plain)
    return LikeVm(
        rig=rig,
        settings=taken.settings,
        scratch=None if own else scratch,
        said=f"{domain.name or found.origin}:{disk.target} ({found.origin})",
        left=(*taken.left, *filter(None, (accelerated(domain, rig, kvm=kvm), _untold(found), _beside(scratch)))),
    )


def _beside(scratch: Path | None) -> LeftBehind | None:
    """Say that a scratch volume may lie on another disk than the VM's; None where it does not, or there is none."""
    place = volume_place(str(scratch))
    if place is None or place.pool is not None or len(group_of(place.group).devices) == 1:
        return None
    why = f"the volume group {place.group} has several, and LVM chooses where a scratch volume lies"
    return LeftBehind(what="its physical volume", why=why)


def as_it_is_now(found: FoundDomain) -> FoundDomain:
    """Return a VM whose configuration is the command line of a process as that process is now: its monitor may have
    been told to lift a limit or to plug a disk in since. Any other VM stays as it is configured.
    """
    running = found.subject.running
    if running is None or found.language.name != "qemu":
        return found
    return replace(found, subject=replace(found.subject, domain=running.live))


def _untold(found: FoundDomain) -> LeftBehind | None:
    """Say that a process was not asked for what it has now; None where it was, or there is none."""
    running = found.subject.running
    if running is None or found.language.name != "qemu" or running.state != UNKNOWN_STATE:
        return None
    why = f"{running.reason}, so its settings are those of its command line"
    return LeftBehind(what="what was changed while it ran", why=why)


def looked_at(subject: Subject, disk: DomainDisk) -> Looked:
    """Return what is known of a VM's disk, its image and its program on this host."""
    domain = subject.domain
    program = None if domain.emulator is None else shutil.which(domain.emulator)  # it may be a bare name
    named = domain if program is None else replace(domain, emulator=program)
    return Looked(domain=named, disk=disk, image=subject.image(disk), emulator_here=program is not None)


def find_vm(word: str, connect: str | None) -> tuple[FoundDomain, str]:
    """Return the VM, and the name of its disk, empty where none was named. A file may have a colon in its name.

    A QEMU that runs here without a libvirt is found by its name, as `virtune diagnose` finds it.
    """
    head, colon, tail = word.rpartition(":")
    for vm, disk in ((word, ""), *(((head, tail),) if colon else ())):
        path = path_of(vm)
        if connect is None and path.is_file():
            return _only(from_paths([path], here=True), vm), disk
    vm, disk = (head, tail) if colon else (word, "")
    require_here(vm, connect)
    if connect is None and ("/" in vm or vm.endswith((".xml", ".conf", ".cmdline", ".yaml"))):
        raise UsageError(
            f"no file {vm!r}", hint="--like takes a file, a Proxmox VM's number, a running QEMU or a libvirt domain"
        )
    if connect is None and (running := emulator_called(vm)) is not None:
        return _only(as_it_runs(running), vm), disk
    virsh = Virsh(connect or default_uri())
    return _only(from_libvirt(virsh, [vm]), vm), disk


def path_of(vm: str) -> Path:
    """Return the file of a Proxmox VM by its number, or the file that a user named."""
    return shell.proxmox_directory() / f"{vm}.conf" if vm.isdecimal() and vm.isascii() else Path(vm)


def require_here(vm: str, connect: str | None) -> None:
    """Raise UsageError for the number of a VM that this Proxmox node has not."""
    if connect is None and vm.isdecimal() and shell.proxmox_directory().is_dir() and not path_of(vm).is_file():
        raise UsageError(
            f"no VM {vm} on this node", hint="`qm list` lists them; one of another node is changed there"
        )


def _only(found: Iterator[FoundDomain | Unread | PassedOver], vm: str) -> FoundDomain:
    every = list(found)
    unread = next((one for one in every if isinstance(one, Unread)), None)
    if unread is not None:
        raise UsageError(f"{vm} cannot be read: {unread.because}")
    domains = [one for one in every if isinstance(one, FoundDomain)]
    if len(domains) != 1:
        raise UsageError(f"{vm} has {len(domains) or 'no'} VMs", hint="a file with one VM")
    return domains[0]


def disk_of(found: FoundDomain, name: str) -> DomainDisk:
    """Return a VM's disk of that name, its only one where the name is empty; raises UsageError."""
    disks = [one for one in found.subject.domain.disks if one.is_disk]
    chosen = [one for one in disks if name in ("", one.target)]
    if len(chosen) == 1:
        return chosen[0]
    vm, there = found.subject.domain.name or found.origin, ", ".join(one.target for one in disks)
    if not chosen:
        raise UsageError(
            f"{vm} has no disk {name!r}" if name else f"{vm} has no disk", hint=there and f"it has {there}"
        )
    raise UsageError(f"{vm} has the disks {there}", hint=f"name one, as in `--like VM:{chosen[0].target}`")


def _storage(vm: str, disk: DomainDisk, connect: str | None, *, elsewhere: bool) -> Path:
    """Return the directory that a disk lies in, or of a logical volume where a scratch volume is made like it; raises
    PlanError where it is none of this host.
    """
    source, where = disk.source, f"{vm}:{disk.target} lies on"
    if elsewhere:
        raise PlanError(
            f"{where} {source.name} of another host, and scratch images are made on this one",
            hint="run it there, or name a directory on storage like it: `--scratch DIR`",
        )
    kind = {"file": "", "block": "the block device", "volume": "the volume", "network": "network storage"}.get(
        source.kind, source.kind
    )
    what = f"{where} {kind} {source.name}".replace("  ", " ")
    try:
        path = _path_of(source, connect)
        if path is not None and (path.startswith("/dev/") or source.kind == "block"):
            place = place_of(path)
            path = None if place is None else place.text
            if path is not None:
                return Path(path)
    except VirtuneError as error:
        hint = error.hint or _INSTEAD
        raise PlanError(f"{what}, where virtune cannot make a scratch volume: {error.message}", hint=hint) from None
    if path is None:
        raise PlanError(f"{what}, where virtune cannot make a scratch image", hint=_INSTEAD)
    if not Path(path).parent.is_dir():
        hint = "`--scratch DIR` names a directory on storage like it"
        raise PlanError(f"{where} {path}, and there is no such directory here", hint=hint)
    return Path(path).parent


_INSTEAD = (
    "a spare volume of the same storage as `--target` (and by --allow-write-to for loads that write), or"
    " `--scratch DIR` on it"
)


def _path_of(source: DiskSource, connect: str | None) -> str | None:
    """Return the path of what a disk lies on, by its file, its device or its volume's name; None where there is none.
    Raises VirtuneError where libvirt does not tell of a volume.
    """
    if source.kind == "volume" and connect is not None:
        pool, _, volume = source.name.partition("/")
        return Virsh(connect).run("vol-path", f"--pool={pool}", f"--vol={volume}").strip() or None
    if source.kind == "volume":
        return proxmox_path(source.name)
    return source.name if source.kind in ("file", "block") and source.name.startswith("/") else None
