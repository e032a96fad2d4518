# SPDX-License-Identifier: Apache-2.0
"""Removing what killed runs left behind, and scratch images on request."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from virtune import shell, warden
from virtune.bench import rbd, volumes
from virtune.bench.appliance import build
from virtune.bench.guest.agent import AgentGuest
from virtune.bench.libvirt import access
from virtune.bench.libvirt.access import LibvirtLine, Plugged, alone_in, strike_out, take_out, written_down
from virtune.bench.scratch import Scratch, has_lock, look_alikes, made_place, remove, scratch_files
from virtune.model.errors import PreconditionError, VirtuneError
from virtune.model.text import format_bytes
from virtune.virsh import Virsh


def _out(home: Path, left: Plugged) -> Iterator[str]:
    with alone_in(home, left.uuid, left.domain):
        virsh = Virsh(left.uri, write=True)
        if left.uuid in virsh.uuids() and take_out(left, virsh, AgentGuest(LibvirtLine(virsh, left.uuid))):
            yield f"disk {left.name} from the domain {left.domain}"
    with contextlib.suppress(OSError, VirtuneError):
        scratch = Path(left.scratch)
        if scratch.is_dir():
            with Scratch(scratch, span_bytes=0, say=lambda _: None):
                pass  # entering it removes what is useless without the run, and notes that
    strike_out(home, left)
    yield f"the note that a run measured in the domain {left.domain}"


def clean(scratch: Path, *, images: bool) -> tuple[list[str], list[str], list[str]]:
    """Remove the remains of runs whose virtune is gone; returns what was removed, what could not be, and what has a
    name of virtune's and was left alone, since nothing proves that virtune made it; in words.

    `images` removes virtune's scratch images too; while another virtune measures, none is removed.
    """
    removed: list[str] = []
    kept: list[str] = []
    plugged = shell.data_directory() / "plugged"
    strange = warden.look_alikes()
    for home, said in ((rbd.records(), rbd.said), (volumes.records(), volumes.said), (plugged, access.said)):
        strange += warden.strange_records(home, said)
    for directory in warden.abandoned():
        removed += warden.sweep(warden.run_id_of(directory), directory)
        drives = warden.noted_drives(directory)
        kept += [f"directory {directory}: the drive {address} is not back with its driver" for address in drives]
        settings = warden.noted_settings(directory)
        refused = {path: one for path, (one, _) in settings.items() if warden.setting_at(path) not in (None, one)}
        kept += [f"{path}: the kernel does not take back what was there: {one}" for path, one in refused.items()]
        if directory.exists() and not drives and not settings:
            kept.append(f"directory {directory}: something is mounted below it, or another user's files are in it")
    for left in (one for one in written_down(plugged) if one.abandoned):  # what fails stays recorded
        try:
            removed += _out(plugged, left)
        except VirtuneError as error:
            kept.append(f"the disk {left.name} may still be in the domain {left.domain}: {error.message}")
    guests = shell.cache_directory() / "appliances"
    removed += [f"half an appliance {path}" for path in build.remove_halves(guests)]
    strange += build.look_alikes(guests)
    for image in rbd.abandoned():  # one that cannot be reached stays recorded
        try:
            what = "the image" if image.remove() else "the record of the image"
            removed.append(f"{what} {image.path} in Ceph")
        except VirtuneError as error:
            kept.append(f"the image {image.path} may still be in Ceph: {error.hint or error.message}")
    for volume in volumes.abandoned():
        try:
            what = "the volume" if volume.remove() else "the record of the volume"
            removed.append(f"{what} {volume.path}")
        except VirtuneError as error:
            hint = f"; {error.hint}" if error.hint else ""
            kept.append(f"the volume {volume.path} may still be there: {error.message}{hint}")
    try:
        place = made_place(scratch)
        if place is not None:
            strange += look_alikes(place)
            removed += _scratch(place, images=images)
    except PreconditionError as error:
        kept.append(error.message)
    return removed + warden.noted_removals(), kept, strange


def _scratch(scratch: Path, *, images: bool) -> list[str]:
    if not any(scratch_files(scratch)) and not (images and has_lock(scratch)):
        return []
    removed = []
    # The lock shows that no other virtune measures here; taking it removes incomplete images, and notes that.
    with Scratch(scratch, span_bytes=0, say=lambda _: None) as locked:
        for path in list(scratch_files(scratch)) if images else ():
            words = f"{path} ({format_bytes(path.lstat().st_size)})"
            removed += [words] if remove(path) else []
        if images:
            locked.remove_lock()
    return removed
