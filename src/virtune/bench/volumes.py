# SPDX-License-Identifier: Apache-2.0
"""Scratch volumes: LVM logical volumes in the volume group, or the thin pool, that a VM's disk lies in; made, written
in full, measured on as on a target, and removed after the run. Nothing else in the volume group is written to or
removed, and no program of LVM is killed: cut short, it may leave a pool suspended on which other VMs wait.

A volume stays when virtune is killed. So there is a small file for each in the user's data directory, on the disk
before the volume is made, locked while the run lives, and removed with the volume. It has the volume's name and tag,
both with a random number that stands nowhere else, the UUID of its group, and, before the volume is used, its own
UUID. Only a volume of which LVM tells all of these is removed, and only while nobody has it open.
"""

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from virtune import shell, warden
from virtune.bench.permission import Held, admit
from virtune.bench.scratch import find_maker, write_in_full
from virtune.bounded import opened, read_up_to
from virtune.dialects.proxmox import storages
from virtune.model.errors import PreconditionError, RefusedTargetError, RigError, VirtuneError
from virtune.model.event import Noticed, Say, StepEnded, StepStarted
from virtune.model.facts import Unknown
from virtune.model.stack import VOLUMES, VolumePlace, volume_place
from virtune.model.text import format_bytes
from virtune.probe import tree
from virtune.probe.backends import backends_of
from virtune.probe.devices import node_number, sysfs_of

_SUFFIX = ".json"
_OURS = re.compile(r"virtune-scratch-[0-9a-f]{16}", re.ASCII)
"""The names of virtune's volumes; no other volume is ever removed or written to."""

_TAG = re.compile(r"virtune-[0-9a-f]{32}", re.ASCII)
_UUID = re.compile(r"\w{6}(-\w{4}){5}-\w{6}", re.ASCII)

_ANSWER_SECONDS = 30.0
_CHANGE_SECONDS = 120.0
_CLOSED_SECONDS = 10.0
"""How long is waited until a program that ended, or udev, has closed a volume."""

_REPORT_BYTES = 8 * 1024**2
_CONFIG_BYTES = 1024**2

_FULL = 0.8
"""The share of a thin pool, and of its metadata, that may be used at most once a scratch volume is written in full: a
pool that becomes full stops every VM on it. Less where LVM extends pools from a smaller share on, which stays so."""

_FULL_MEANWHILE = 0.9
"""From this share on, to which only others can have brought a pool, a volume is no longer filled."""

_LOOK_SECONDS = 1.0

_WRITTEN = 0.99
"""The share that holds data at least once a volume is filled; LVM rounds it."""

_MAPPING_BYTES = 64
"""What a pool's metadata takes for each chunk, as LVM itself reckons."""

_ELSEWHERE = "`--span SIZE` makes the volume smaller, `--scratch DIR` puts scratch images elsewhere"
_PLAIN = ("linear", "thin")
_NO = ("", "0")
"""What LVM says of a flag that is not set, by its configuration."""

_CHANGE = ("lvcreate", "lvremove")
"""The programs that are never killed."""

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeGroup:
    """A volume group: its name and UUID, what is free in it and in what pieces, and its physical volumes."""

    name: str
    uuid: str
    free_bytes: int
    extent_bytes: int
    devices: tuple[str, ...]


def rows_of(report: str, kind: str, fields: Sequence[str]) -> list[Row]:
    """Return the rows of a report of LVM in JSON; raises PreconditionError for what is none."""
    try:
        rows = [row for part in json.loads(report)["report"] for row in part[kind]]
        if all(isinstance(row[name], str) for row in rows for name in fields):
            return rows
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        pass
    raise PreconditionError(f"LVM's report of {kind}s cannot be read: it has not the form that was asked for")


def _asked(program: str, kind: str, fields: str, *words: str) -> list[Row]:
    """Ask LVM for these fields of what the words name; raises PreconditionError with its own words."""
    form = ("--reportformat", "json", "--units", "b", "--nosuffix", "-o", fields)
    return rows_of(_lvm(program, *form, *words, seconds=_ANSWER_SECONDS), kind, fields.split(","))


def _lvm(program: str, *words: str, seconds: float) -> str:
    command = [shutil.which(program) or find_maker(program), *words]
    try:
        changes = program in _CHANGE
        return shell.run(command, timeout_seconds=seconds, most_bytes=_REPORT_BYTES, gently=changes).stdout
    except shell.CommandError as error:
        why = error.hint or error.message
        hint = None if os.geteuid() == 0 else "LVM answers root only"
        raise PreconditionError(f"`{program} {words[-1]}` does not work: {why}", hint=hint) from None


def _number(row: Row, field: str) -> float:
    with contextlib.suppress(ValueError):
        found = float(row[field])
        if 0 <= found < 2**63:
            return found
    raise PreconditionError(f"LVM does not tell {field} of {row.get('vg_name', '')}/{row.get('lv_name', '')}")


def group_of(name: str) -> VolumeGroup:
    """Return a volume group of this host alone; raises PreconditionError where there is none, or where another host
    may change it too: only what coordinates the hosts may make volumes there.
    """
    fields = "vg_uuid,vg_free,vg_extent_size,vg_shared,vg_clustered,vg_exported,vg_missing_pv_count,pv_name"
    rows = _asked("pvs", "pv", fields, "--select", f'vg_name="{name}"')
    if not rows or len({row["vg_uuid"] for row in rows}) > 1 or not _UUID.fullmatch(rows[0]["vg_uuid"]):
        raise PreconditionError(f"this host has not one volume group {name}", hint="`vgs` lists them")
    row = {**rows[0], "vg_name": name}
    if row["vg_exported"] not in _NO or row["vg_missing_pv_count"] != "0":
        raise PreconditionError(
            f"the volume group {name} is not whole on this host", hint="`vgs` and `pvs` tell more"
        )
    devices = tuple(one["pv_name"] for one in rows)
    others = [other for one in devices for other in backends_of(one) if not other.startswith("disk ")]
    configured = [
        one for one, (_, its) in proxmox_storages().items() if _is_shared(its) and its.get("vgname") == name
    ]
    if row["vg_shared"] not in _NO or row["vg_clustered"] not in _NO or others or configured:
        why = f" ({', '.join(others or configured)})" if others or configured else ""
        raise PreconditionError(
            f"the volume group {name} is, or may be, shared with other hosts{why}: virtune makes no volume there",
            hint="a spare volume of it as `--target`, or `--scratch DIR`",
        )
    return VolumeGroup(
        name=name, uuid=row["vg_uuid"], free_bytes=int(_number(row, "vg_free")),
        extent_bytes=int(_number(row, "vg_extent_size")) or 1, devices=devices,
    )  # fmt: skip


def require_room(place: VolumePlace, size_bytes: int) -> VolumeGroup:
    """Return the volume group of a place that has room for a scratch volume; raises PreconditionError with what would
    become full. Half of what is free in a group stays free, for pools and snapshots that grow there by themselves.
    """
    group = group_of(place.group)
    size = -(-size_bytes // group.extent_bytes) * group.extent_bytes
    if place.pool is None:
        if 2 * size > group.free_bytes:
            needed = f"the scratch volume takes {format_bytes(size)}, and half of it stays free"
            free = format_bytes(group.free_bytes)
            raise PreconditionError(f"the volume group {group.name} has {free} free: {needed}", hint=_ELSEWHERE)
        return group
    row, most = _pool(place), min(_FULL, _extended_from())
    chunk = max(1.0, _number(row, "chunk_size"))
    of_metadata = (size / chunk + 1) * _MAPPING_BYTES
    for what, whole, percent, more in (
        ("data", _number(row, "lv_size"), _number(row, "data_percent"), size + chunk),
        ("metadata", _number(row, "lv_metadata_size"), _number(row, "metadata_percent"), of_metadata),
    ):
        used = percent / 100 + more / max(1.0, whole)
        if used > most:
            raise PreconditionError(
                f"the {what} of the thin pool {place.group}/{place.pool} would be {used:.0%} full: with a scratch"
                f" volume of {format_bytes(size)} at most {most:.0%} may be, since a full pool stops every VM on it",
                hint=_ELSEWHERE,
            )
    return group


def _pool(place: VolumePlace) -> Row:
    """Return what LVM tells of a thin pool; raises PreconditionError where it is none, or not well."""
    fields = "vg_name,lv_name,segtype,lv_size,data_percent,metadata_percent,lv_metadata_size,chunk_size"
    rows = _asked("lvs", "lv", f"{fields},lv_health_status", f"{place.group}/{place.pool}")
    if len(rows) != 1 or rows[0]["segtype"] != "thin-pool":
        raise PreconditionError(f"{place.group}/{place.pool} is no thin pool", hint="`lvs` lists them")
    if rows[0]["lv_health_status"]:
        why = rows[0]["lv_health_status"]
        raise PreconditionError(f"the thin pool {place.group}/{place.pool} is not well: {why}")
    return rows[0]


def _extended_from() -> float:
    """Return the share from which on LVM extends a thin pool by itself, 1 where it never does."""
    told = _lvm("lvmconfig", "--type", "full", "activation/thin_pool_autoextend_threshold", seconds=_ANSWER_SECONDS)
    found = re.fullmatch(r"thin_pool_autoextend_threshold=(\d{1,3})\s*", told)
    if found is None:
        raise PreconditionError("LVM does not tell from which share on it extends thin pools")
    return int(found[1]) / 100


def place_of(device: str) -> VolumePlace | None:
    """Return where a logical volume lies, by a path of it; None for a path of anything else. Raises PreconditionError
    where LVM does not tell, or where a scratch volume would be of another kind.
    """
    number = node_number(device)
    if number is not None:
        home = f"{sysfs_of(number)}/dm"
        uuid, name = tree.text(f"{home}/uuid"), tree.text(f"{home}/name")
        if isinstance(uuid, Unknown) or isinstance(name, Unknown) or not uuid.startswith("LVM-"):
            return None
        device = f"/dev/mapper/{name}"
    elif os.path.lexists(device) or not re.fullmatch(r"/dev/[^/]+/[^/]+", device):
        return None  # a file, as in /dev/shm; a volume that is not active has no path
    rows = _asked("lvs", "lv", "vg_name,lv_name,segtype,pool_lv", device)
    kinds = {row["segtype"] for row in rows}
    if not kinds <= set(_PLAIN) or len({row["lv_name"] for row in rows}) != 1:
        kind = ", ".join(sorted(kinds)) or "unknown"
        raise PreconditionError(f"it is a logical volume of the kind {kind}, and a scratch volume is linear or thin")
    place = volume_place(f"{VOLUMES}{rows[0]['vg_name']}" + ("/" * ("thin" in kinds)) + rows[0]["pool_lv"])
    if place is None:
        raise PreconditionError("LVM tells names that no volume group and no thin pool can have")
    group_of(place.group)
    return place


def proxmox_storages() -> Mapping[str, tuple[str, Mapping[str, str]]]:
    """Return the storages of a Proxmox node, by their names; none on any other host. Raises PreconditionError."""
    path = shell.proxmox_directory().parent / "storage.cfg"
    try:
        return storages(read_up_to(path, _CONFIG_BYTES).decode(errors="replace"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise PreconditionError(f"cannot read {path}: {error.strerror}") from None


def _is_shared(options: Mapping[str, str]) -> bool:
    return options.get("shared", "0") not in ("0", "no", "off", "false") or "base" in options


def proxmox_path(name: str) -> str | None:
    """Return the path of what Proxmox calls `STORAGE:VOLUME`: a logical volume, or a file in a directory; None where
    it is neither. Raises PreconditionError.
    """
    storage, _, volume = name.partition(":")
    kind, options = proxmox_storages().get(storage, ("", {}))
    if kind == "dir" and options.get("path", "").startswith("/"):
        return f"{options['path']}/images/{volume}"
    place = volume_place(f"{VOLUMES}{options.get('vgname', '')}/{volume}")
    return None if kind not in ("lvm", "lvmthin") or place is None else f"/dev/{place.group}/{place.pool}"


def seen_at(scratch: str | Path) -> Path:
    """Return a path on the disk that `--scratch` names: a directory itself, or the first physical volume of a volume
    group. Raises PreconditionError.
    """
    place = volume_place(str(scratch))
    return Path(scratch) if place is None else Path(group_of(place.group).devices[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedVolume:
    """The record of a volume that is made, or is about to be: then it has no UUID yet."""

    record: Path
    group: str
    group_uuid: str
    tag: str
    uuid: str = ""

    @property
    def path(self) -> str:
        """The volume as LVM's programs name it."""
        return f"{self.group}/{self.record.stem}"

    def found(self) -> Row | None:
        """Return what LVM tells of the volume of this name; None where there is none. Raises PreconditionError."""
        fields = "vg_uuid,lv_name,lv_uuid,lv_tags,lv_device_open,lv_role"
        rows = _asked("lvs", "lv", fields, "--select", f'lv_name="{self.record.stem}"', self.group)
        return next((row for row in rows if row["lv_name"] == self.record.stem), None)

    def made_uuid(self) -> str:
        """Return the UUID of the volume that was just made with this record's tag; empty where LVM tells of none."""
        with contextlib.suppress(VirtuneError):
            row = self.found()
            if row is not None and self.tag in row["lv_tags"].split(",") and row["vg_uuid"] == self.group_uuid:
                return row["lv_uuid"] if _UUID.fullmatch(row["lv_uuid"]) else ""
        return ""

    def remove(self) -> bool:
        """Remove the volume, and then its record; returns whether there was a volume.

        Raises PreconditionError where it is not the one that virtune made, is open or has a snapshot, LVM does not
        remove it, or its volume group is not there; the record then stays.
        """
        row = self.found()
        if row is None:
            self._require_group()
        else:
            ours = (row["vg_uuid"], row["lv_uuid"]) == (self.group_uuid, self.uuid)
            if not ours or self.tag not in row["lv_tags"].split(","):
                raise PreconditionError(
                    f"the volume {self.path} is not proven to be the one that virtune made",
                    hint=f"if nobody needs it: `lvremove {self.path}`",
                )
            if row["lv_device_open"] not in _NO:
                raise PreconditionError(f"the volume {self.path} is open")
            if "thickorigin" in row["lv_role"]:  # which would go with it
                raise PreconditionError(
                    f"somebody made a snapshot of the volume {self.path}", hint="`virtune host clean` once it is gone"
                )
            # LVM looks once more, under its own lock, and removes no other volume that has the name by then
            proof = f'lv_uuid="{self.uuid}" && vg_uuid="{self.group_uuid}" && lv_tags="{self.tag}"'
            proof += ' && lv_attr!~"^[oO]"'
            _lvm("lvremove", "--yes", "--select", proof, self.path, seconds=_CHANGE_SECONDS)
            if self.found() is not None:
                raise PreconditionError(f"LVM did not remove the volume {self.path}")
        warden.remove_record(self.record)
        return row is not None

    def _require_group(self) -> None:
        """Raise PreconditionError where the group of that name is not the one in which the volume was made."""
        rows = _asked("pvs", "pv", "vg_uuid", "--select", f'vg_name="{self.group}"')
        if self.group_uuid not in {row["vg_uuid"] for row in rows}:
            raise PreconditionError(
                f"the volume group {self.group} in which {self.record.stem} was made is not there",
                hint=f"if it never comes back: `rm {self.record}`",
            )


def records() -> Path:
    """Return the directory with the records of this user's volumes."""
    return shell.data_directory() / "volumes"


def said(record: Path) -> Mapping[str, Any]:
    """Return what a record says; empty where it is not the very file that virtune wrote."""
    found = warden.record_at(record) if _OURS.fullmatch(record.stem) else {}
    place, tag = volume_place(f"{VOLUMES}{found.get('group')}"), str(found.get("tag"))
    uuids = [str(found.get("group_uuid")), *filter(None, [str(found.get("uuid", "-"))])]
    known = place is not None and place.pool is None and _TAG.fullmatch(tag) and all(map(_UUID.fullmatch, uuids))
    return found if known else {}


def abandoned() -> Iterator[NotedVolume]:
    """Yield the volumes that dead runs left, each locked against a second virtune while it is looked at."""
    for record in sorted(records().glob(f"virtune-*{_SUFFIX}")):
        with contextlib.suppress(OSError), opened(record, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # while its run lives this is refused
            if found := said(record):
                words = {name: str(found[name]) for name in ("group", "group_uuid", "tag", "uuid")}
                yield NotedVolume(record=record, **words)


@contextlib.contextmanager
def scratch_volume(place: VolumePlace, size_bytes: int, run: shell.Warden, say: Say) -> Iterator[Held]:
    """Yield a new volume that is written in full, held open, and removed after the block. Volumes that killed runs
    left are removed first. Raises PreconditionError where it cannot be made.
    """
    for left in abandoned():
        with contextlib.suppress(VirtuneError):  # its record stays
            warden.note_removed([f"the volume {left.path}"] if left.remove() else [])
    group = require_room(place, size_bytes)
    what = f"making a scratch volume of {format_bytes(size_bytes)} in {place.words}"
    say(StepStarted(what=what))
    volume = NotedVolume(
        record=records() / f"virtune-scratch-{secrets.token_hex(8)}{_SUFFIX}",
        group=group.name, group_uuid=group.uuid, tag=f"virtune-{secrets.token_hex(16)}",
    )  # fmt: skip
    with contextlib.ExitStack() as ends:
        ends.callback(os.close, _written(volume))
        try:
            try:
                _make(volume, place, -(-size_bytes // 512) * 512)
            finally:
                volume = replace(volume, uuid=volume.made_uuid())
                ends.callback(os.close, _written(volume))
            with _filled(volume, place, size_bytes, run) as held:
                say(StepEnded(what=what))
                yield held
        finally:
            _remove_at_end(volume, say)


def _written(volume: NotedVolume) -> int:
    """Write a volume's record; returns it open, and locked. Raises PreconditionError where it cannot be written."""
    try:
        volume.record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        words = {name: getattr(volume, name) for name in ("group", "group_uuid", "tag", "uuid")}
        return warden.write_record(volume.record, words)
    except OSError as error:
        hint = "without the record a killed run would leave its volume for good"
        raise PreconditionError(f"cannot write {volume.record}: {error.strerror}", hint=hint) from None


def _make(volume: NotedVolume, place: VolumePlace, size_bytes: int) -> None:
    words = ["--yes", "--name", volume.record.stem, "--addtag", volume.tag]
    if place.pool is None:
        words += ["--type", "linear", "--size", f"{size_bytes}b"]
    else:
        words += ["--type", "thin", "--thinpool", place.pool, "--virtualsize", f"{size_bytes}b"]
    _lvm("lvcreate", *words, place.group, seconds=_CHANGE_SECONDS)


@contextlib.contextmanager
def _filled(volume: NotedVolume, place: VolumePlace, size_bytes: int, run: shell.Warden) -> Iterator[Held]:
    """Hold a new volume open, and write it in full: reads of what a thin volume never wrote reach no disk."""
    device = Path("/dev") / volume.path
    with contextlib.ExitStack() as ends:
        held = _admitted(device, size_bytes, ends)
        uuid = tree.text(f"{sysfs_of(node_number(str(held.path)) or '')}/dm/uuid")
        if not volume.uuid or uuid != "LVM-" + (volume.group_uuid + volume.uuid).replace("-", ""):
            raise RefusedTargetError(f"{device} does not lead to the volume that virtune made")
        with opened(held.path, os.O_RDWR) as file:
            write_in_full(file, size_bytes, run, _looking(place))
        for row in _asked("lvs", "lv", "vg_name,lv_name,segtype,lv_size,data_percent", volume.path):
            if row["segtype"] != "thin":
                continue
            share = _number(row, "data_percent") / 100 * _number(row, "lv_size") / size_bytes
            if share < _WRITTEN:
                raise RigError(f"LVM says that only {share:.0%} of {volume.path} hold data after it was filled")
        yield replace(held, size_bytes=min(size_bytes, held.size_bytes))


def _looking(place: VolumePlace) -> Callable[[], None]:
    """Return what looks at a thin pool now and then, and raises PreconditionError where it becomes full: what others
    write beside is not known beforehand.
    """
    next_look = 0.0

    def look() -> None:
        nonlocal next_look
        if place.pool is None or time.monotonic() < next_look:
            return
        next_look, row = time.monotonic() + _LOOK_SECONDS, _pool(place)
        for what in ("data", "metadata"):
            if (used := _number(row, f"{what}_percent") / 100) > _FULL_MEANWHILE:
                raise PreconditionError(
                    f"the {what} of the thin pool {place.group}/{place.pool} became {used:.0%} full meanwhile",
                    hint="look at what else writes there",
                )

    return look


def _admitted(device: Path, size_bytes: int, ends: contextlib.ExitStack) -> Held:
    """Hold a new volume open until the end. udev looks at it a moment after it was made, and has it open for that."""
    deadline, name = time.monotonic() + _CLOSED_SECONDS, str(device)
    while True:
        try:
            return ends.enter_context(
                admit(device, span_bytes=size_bytes, writes=True, allow_write_to=(name,), allow_in_use=False)
            )
        except RefusedTargetError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _remove_at_end(volume: NotedVolume, say: Say, *, patience_seconds: float = _CLOSED_SECONDS) -> None:
    """Remove a volume after its run; one that cannot be removed now is not worth the result."""
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            volume.remove()
        except VirtuneError as error:
            if time.monotonic() < deadline and volume.uuid:
                time.sleep(0.2)
                continue
            left = f"left to `virtune host clean`: {error.message}" if volume.uuid else error.hint or error.message
            say(Noticed(text=f"the volume {volume.path} may still be there, {left}"))
        return
