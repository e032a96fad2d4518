# SPDX-License-Identifier: Apache-2.0
"""Xen's language: a domain's `xl.cfg`, its disks read and altered in place (pure).

A disk is one string, positional (`target, format, vdev, access`) or by keys; xl-disk-configuration(5) describes it.
"""

import re
from collections.abc import Iterator, Mapping

from virtune.dialects.text.lines import read_page
from virtune.model.domain import DiskSource, Domain, DomainDisk, SettingChange
from virtune.model.errors import PlanError, ReadError

_HEAD = re.compile(r"^[ \t]*disk[ \t]*\+?=[ \t]*\[", re.MULTILINE)
_BODY = re.compile(r"(?P<body>(?:[^\]'\"#]|#[^\n]*|'[^'\n]*'|\"[^\"\n]*\")*+)\]")
_TEXT = re.compile(r"#[^\n]*|'([^'\n]*)'|\"([^\"\n]*)\"")
_KEY = re.compile(r"^[ \t]*(\w+)[ \t]*=[ \t]*(?:'([^'\n]*)'|\"([^\"\n]*)\"|(\d{1,9}))", re.MULTILINE)
_POSITIONS = ("target", "format", "vdev", "access")

BOOLEANS = ("direct-io-safe", "discard", "no-discard")
REFUSALS: Mapping[str, str] = {
    "disk.cache": "xl has no cache modes: qdisk is buffered in dom0 unless direct-io-safe, phy over a device is not",
    "disk.aio": "xl has no word for the engine of qdisk",
    "device.iothread": "qdisk is served by a QEMU of its own, which xl gives no IOThread",
    "device.num_queues": "queues are a parameter of blkback and blkfront (max_queues), not of a domain",
    "disk.detect_zeroes": "xl has no word for it",
    "disk.throttle_iops": "xl limits no disk",
}
"""What xl has no words for, and why."""


def is_xl(text: bytes) -> bool:
    """Whether a text has a list of disks as xl wants it."""
    return re.search(rb"^[ \t]*disk[ \t]*\+?=[ \t]*\[", text, re.MULTILINE) is not None


def read_xl(text: bytes) -> Domain:
    """Read a domain's configuration; raises ReadError."""
    config = read_page(text).text
    keys = {found[1]: found[2] or found[3] or found[4] or "" for found in _KEY.finditer(config)}
    disks = tuple(_disk(words, config.count("\n", 0, at) + 1) for at, words in _disks(config))
    if not disks and "name" not in keys:
        raise ReadError("it is no configuration of xl")
    return Domain(
        name=keys.get("name", ""),
        uuid=keys.get("uuid"),
        kind="xen",
        line=1,
        vcpus=int(keys.get("vcpus", "1") or "1") if keys.get("vcpus", "1").isdecimal() else 1,
        machine=keys.get("type") or keys.get("builder"),
        disks=disks,
        language="xl",
    )


def alter_xl(text: bytes, *turns: SettingChange) -> bytes:
    """Return the configuration with `disk.discard` of disks turned, by the flags of that name. Raises PlanError."""
    for turn in turns:
        if turn.knob != "disk.discard":
            because = REFUSALS.get(turn.knob, "xl has no word for it")
            raise PlanError(f"{turn.knob} cannot be written into an xl configuration: {because}")
        text = _with_flag(text, turn.at, "discard" if turn.value == "unmap" else "no-discard")
    return text


def _with_flag(text: bytes, vdev: str, flag: str) -> bytes:
    page = read_page(text)
    for at, words in _disks(page.text):
        if _keys(words).get("vdev", "").partition(":")[0] == vdev:
            return page.spliced(at, at + len(words), _flagged(words, flag))
    raise PlanError(f"the domain has no disk {vdev!r}")


def _flagged(words: str, flag: str) -> str:
    """Put a flag in the place of its opposite, or before `target=`, which takes all that follows, or at the end."""
    for start, part in _parts(words):
        if part.strip() in ("discard", "no-discard"):
            at = start + part.index(part.strip())
            return words[:at] + flag + words[at + len(part.strip()) :]
        if part.strip().startswith("target="):
            at = start + part.index("target=")
            return f"{words[:at]}{flag},{words[at:]}"
    return f"{words},{flag}"


def _parts(words: str) -> Iterator[tuple[int, str]]:
    """The parts between commas with where each begins; `target=` is the last, whatever is in it."""
    at = 0
    while at <= len(words):
        end = words.find(",", at)
        if end < 0 or words[at:].lstrip().startswith("target="):
            end = len(words)
        yield at, words[at:end]
        at = end + 1


def _disks(config: str) -> Iterator[tuple[int, str]]:
    """The strings of all lists of disks, with where each begins; those in comments are none.

    Nothing follows a list that never ends, so a text of many heads is read once and not once for each.
    """
    at = 0
    while (head := _HEAD.search(config, at)) and (body := _BODY.match(config, head.end())):
        for text in _TEXT.finditer(config, body.start("body"), body.end("body")):
            if text.lastindex:
                yield text.start(text.lastindex), text[text.lastindex]
        at = body.end()


def _keys(words: str) -> dict[str, str]:
    keys: dict[str, str] = {}
    position = 0
    for part in (part.strip() for _, part in _parts(words)):
        name, equals, value = part.partition("=")
        if equals and re.fullmatch(r"[a-z-]+", name):
            keys[name] = value
        elif part in BOOLEANS:
            keys[part] = "yes"
        elif position < len(_POSITIONS):
            keys[_POSITIONS[position]] = part
            position += 1
    return keys


def _disk(words: str, line: int) -> DomainDisk:
    keys = _keys(words)
    target = keys.get("target", "")
    vdev, _, kind = keys.get("vdev", "").partition(":")
    return DomainDisk(
        target=vdev,
        line=line,
        device="cdrom" if "cdrom" in (keys.get("devtype"), kind) else "disk",
        bus="ide" if vdev.startswith("hd") else "xen",
        source=DiskSource(
            kind="none" if not target else "block" if target.startswith("/dev/") else "file", name=target
        ),
        driver=keys.get("backendtype") or None,
        format=keys.get("format") or "raw",
        discard="unmap" if "discard" in keys else "ignore" if "no-discard" in keys else None,
        read_only=keys.get("access", "w").startswith("r") and keys.get("access") != "rw",
        options=frozenset(name for name in BOOLEANS if name in keys),
    )
