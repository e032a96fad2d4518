# SPDX-License-Identifier: Apache-2.0
"""OpenStack Nova's `nova.conf` of a compute node: the settings in `[libvirt]` for all disks of its guests (pure).

Cache and discard are there and nowhere else, for all disks of one kind of source; bus, limits and pins are properties
of an image or a flavor, which are no files: the refusals name the command that sets them. A disk here represents all
of its kind (`file`, `block`, `network`, `mount`).
"""

import itertools
import re
from collections.abc import Mapping
from dataclasses import replace

from virtune.dialects.language import Language, no_disk, one_of
from virtune.dialects.text.lines import (
    Page,
    Setting,
    lines_of,
    option,
    options_of,
    read_page,
    settings_of,
    with_line,
    with_option,
    with_value,
    without,
    without_option,
)
from virtune.model.domain import DiskSource, Domain, DomainDisk, SettingChange, SourceKind
from virtune.model.errors import ReadError

KINDS: Mapping[str, SourceKind] = {"file": "file", "block": "block", "network": "network", "mount": "dir"}
"""Nova's kinds of sources."""

_SETTING = re.compile(r"(?P<key>[a-z][a-z0-9_]*)[ \t]*=[ \t]*(?P<value>\S(?:.*\S)?)[ \t]*$")
_HEADING = re.compile(r"\[([^\]]*)\]\s*$")
_KNOWN = re.compile(rb"^\[libvirt\][ \t]*\r?$", re.MULTILINE)
_OURS = re.compile(rb"^(disk_cachemodes|hw_disk_discard|images_type|virt_type|cpu_mode)[ \t]*=", re.MULTILINE)
_CACHES = {one: one for one in ("none", "writethrough", "writeback", "directsync", "unsafe")}


def knows(text: bytes) -> bool:
    """Whether a text is the configuration of a compute node with libvirt."""
    return _KNOWN.search(text) is not None and _OURS.search(text) is not None


def domains(text: bytes) -> tuple[Domain, ...]:
    """Read the domain that represents all guests of a node; raises ReadError."""
    _, settings = _read(text)
    modes, discard = settings.get("disk_cachemodes"), settings.get("hw_disk_discard")
    listed = options_of(_bare(modes.value)[1]) if modes is not None else ()
    first = min((one.line.number for one in settings.values()), default=1)
    line = modes.line.number if modes is not None else first
    virt = settings.get("virt_type")
    disks = tuple(
        DomainDisk(
            target=name,
            line=line,
            source=DiskSource(kind=kind, name=f"all {name} disks", protocol=name if kind == "network" else None),
            driver="qemu",
            # without O_DIRECT it is writeback; the file does not say what the storage has
            cache=option(listed, name) or "none",
            discard=discard.value if discard is not None and discard.value in ("unmap", "ignore") else None,
        )
        for name, kind in KINDS.items()
    )
    kind = virt.value if virt is not None else "kvm"
    return (Domain(name="", uuid=None, kind=kind, line=first, vcpus=1, disks=disks, language="nova"),)


def turn(text: bytes, wanted: SettingChange, _domain: str = "") -> bytes:
    """Return the text with one setting changed; raises PlanError for an invalid place or value."""
    page, settings = _read(text)
    if wanted.at not in KINDS:
        raise no_disk(wanted, KINDS)
    if wanted.knob == "disk.discard":
        word = None if wanted.value is None else one_of(wanted, {"unmap": "unmap", "ignore": "ignore"})
        return _set(page, settings, "hw_disk_discard", word)
    found = settings.get("disk_cachemodes")
    quote, listed = _bare(found.value) if found is not None else ("", "")
    if wanted.value is None:
        listed = without_option(listed, wanted.at)
    else:
        listed = with_option(listed, wanted.at, one_of(wanted, _CACHES))
    return _set(page, settings, "disk_cachemodes", f"{quote}{listed}{quote}" if listed else None)


def _set(page: Page, settings: Mapping[str, Setting], key: str, value: str | None) -> bytes:
    found = settings.get(key)
    if value is None:
        return page.spliced(0, 0, "") if found is None else without(page, found)
    if found is not None:
        return with_value(page, found, value)
    last = max(settings.values(), key=lambda one: one.line.number)
    # indented lines go on with the value above them: nothing may come between
    for line in itertools.islice(lines_of(page), last.line.number, None):
        if not line.text[:1].isspace() or not line.text.strip():
            break
        last = replace(last, line=line)
    return with_line(page, last, f"{key} = {value}")


def _bare(value: str) -> tuple[str, str]:
    """Part a value from the quotes around it."""
    quote = value[0] if value[:1] in ("'", '"') and value[-1:] == value[:1] and len(value) > 1 else ""
    return quote, value.strip(quote) if quote else value


def _read(text: bytes) -> tuple[Page, dict[str, Setting]]:
    page = read_page(text)
    found = {one.key: one for one in settings_of(page, _SETTING, _HEADING) if one.section == "libvirt"}
    if not found:
        raise ReadError("it has no section [libvirt] with settings")
    return page, found


NOVA = Language(
    name="nova",
    title="OpenStack Nova",
    text="a nova.conf",
    knows=knows,
    domains=domains,
    turn=turn,
)
"""OpenStack Nova, as far as a compute node's own file has it."""
