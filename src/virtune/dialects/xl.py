# SPDX-License-Identifier: Apache-2.0
"""Xen's language: a domain's `xl.cfg`, its disks read and altered in place (pure).

A disk is one string, positional (`target, format, vdev, access`) or by keys; xl-disk-configuration(5) describes it.
The oldest form, which xl still takes and many write, has a prefix in front of the target (`phy:/dev/vg/a,xvda,w`) and
then no format. Read as Xen's own scanner reads it (libxlu_disk_l.l).
"""

import re
from collections.abc import Iterator, Mapping

from virtune.dialects.language import Language, no_disk, one_of
from virtune.dialects.text.lines import read_page
from virtune.model.domain import DiskSource, Domain, DomainDisk, SettingChange
from virtune.model.errors import ReadError

_HEAD = re.compile(r"^[ \t]*disk[ \t]*\+?=[ \t]*\[", re.MULTILINE)
_STRING = r"""\"{3}((?:[^"\n]|"(?!""))*+)\"{3}|'{3}((?:[^'\n]|'(?!''))*+)'{3}|'([^'\n]*)'|"([^"\n]*)\""""
"""A string of xl, or one of Python's in three quotes, which xm took before it."""

_BODY = re.compile(rf"(?P<body>(?:[^\]'\"#]|#[^\n]*|{_STRING})*+)\]")
_TEXT = re.compile(rf"#[^\n]*|{_STRING}")
_KEY = re.compile(r"^[ \t]*(\w+)[ \t]*=[ \t]*(?:'([^'\n]*)'|\"([^\"\n]*)\"|(\d{1,9}))", re.MULTILINE)
_PREFIX = re.compile(r"(raw|qcow2?|vhd|iscsi|e?nbd|drbd|tapdisk|tap2?|aio|ioemu|file|phy):")
_SCRIPTED = frozenset({"iscsi", "nbd", "enbd", "drbd"})
_FORMATS = frozenset({"", "raw", "qcow", "qcow2", "vhd", "qed", "empty"})
_ACCESS = {"": False, "w": False, "rw": False, "r": True, "ro": True}
_DEVICE_TYPES = frozenset({"", "cdrom", "disk"})
_NETWORK = re.compile(r"(rbd|nbd|iscsi|sheepdog|gluster|https?|ftps?|ssh)(\+\w+)?:")
_BUSES = {"hd": "ide", "sd": "scsi"}
_PARAMETERS = frozenset({"format", "devtype", "access", "backend", "backendtype", "specification", "vdev", "script",
                         "target", "colo-host", "colo-port", "colo-export", "active-disk", "hidden-disk",
                         "grant_usage"})  # fmt: skip
_FLAGS = frozenset({"cdrom", "direct-io-safe", "discard", "no-discard", "colo", "no-colo", "trusted", "untrusted"})
_OF_A_DOMAIN = frozenset({"builder", "type", "kernel", "ramdisk", "bootloader", "firmware", "vif", "maxmem", "memory",
                          "vcpus", "maxvcpus", "on_poweroff", "on_reboot", "on_crash", "extra"})  # fmt: skip
_KEYS_MIN = 3
"""So many keys that xl knows, and a name, make a text its configuration where it has no disks."""


def knows(text: bytes) -> bool:
    """Whether a text has a list of disks as xl wants it, or keys of a domain without disks."""
    if re.search(rb"^[ \t]*disk[ \t]*\+?=[ \t]*\[", text, re.MULTILINE) is not None:
        return True
    keys = {found[1].decode() for found in re.finditer(rb"^[ \t]*(\w+)[ \t]*=[ \t]*[\['\"\d]", text, re.MULTILINE)}
    return "name" in keys and len(keys & _OF_A_DOMAIN) >= _KEYS_MIN


def domains(text: bytes) -> tuple[Domain, ...]:
    """Read the domain of a text; raises ReadError."""
    config = read_page(text).text
    keys = {found[1]: found[2] or found[3] or found[4] or "" for found in _KEY.finditer(config)}
    disks = tuple(_disk(words, config.count("\n", 0, at) + 1) for at, words in _disks(config))
    if not disks and "name" not in keys:
        raise ReadError("it is no configuration of xl")
    vcpus = keys.get("vcpus", "1")
    return (
        Domain(
            name=keys.get("name", ""), uuid=keys.get("uuid"), kind="xen", line=1,
            vcpus=int(vcpus) if vcpus.isdecimal() else 1, machine=keys.get("type") or keys.get("builder"),
            disks=disks, language="xl",
        ),
    )  # fmt: skip


def turn(text: bytes, wanted: SettingChange, _domain: str = "") -> bytes:
    """Return the text with `disk.discard` of a disk changed, by the flags of that name; raises PlanError."""
    flag = None if wanted.value is None else one_of(wanted, {"unmap": "discard", "ignore": "no-discard"})
    page = read_page(text)
    for at, words in _disks(page.text):
        if _keys(words).get("vdev", "").partition(":")[0] == wanted.at:
            # without either flag, xl's default is what the backend can do
            kept = (part for _, part in _parts(words) if part.strip() not in ("discard", "no-discard"))
            return page.spliced(at, at + len(words), ",".join(kept) if flag is None else _flagged(words, flag))
    raise no_disk(wanted, (one.target for one in domains(text)[0].disks))


def _flagged(words: str, flag: str) -> str:
    """Put a flag in the place of its opposite, or before `target=`, which takes all that follows, or at the end."""
    for start, part in _parts(words):
        if part.strip() in ("discard", "no-discard"):
            at = start + part.index(part.strip())
            return words[:at] + flag + words[at + len(part.strip()) :]
        if part.strip().startswith("target="):
            at = start + part.index("target=")
            return f"{words[:at]}{flag},{words[at:]}"
    return f"{words.rstrip(', ')},{flag}"  # empty places at the end say nothing, and a flag has none


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

    Raises ReadError for a list that never ends, so a text of many heads is read once and not once for each.
    """
    at = 0
    while head := _HEAD.search(config, at):
        body = _BODY.match(config, head.end())
        if body is None:
            line = config.count("\n", 0, head.end()) + 1
            raise ReadError(f"line {line}: the list of disks has no end that can be found")
        for text in _TEXT.finditer(config, body.start("body"), body.end("body")):
            if text.lastindex:
                yield text.start(text.lastindex), text[text.lastindex]
        at = body.end()


def _keys(words: str) -> dict[str, str]:
    """Read one disk's string; raises ReadError for what xl refuses."""
    keys: dict[str, str] = {}
    for start, part in _parts(words):
        word = part.strip()
        name, equals, value = word.partition("=")
        if equals and name in _PARAMETERS:
            keys[name] = value
        elif word in _FLAGS:
            keys[word] = "yes"
        elif word or start < len(words):  # nothing follows a comma at the end
            _place(keys, word)
    if "cdrom" in keys:
        keys["devtype"] = "cdrom"
    for key, known in (("format", _FORMATS), ("access", _ACCESS), ("devtype", _DEVICE_TYPES)):
        if keys.get(key, "") not in known:
            raise ReadError(f"{keys[key][:40]!r} is no {key} of a disk that xl knows")
    return keys


def _place(keys: dict[str, str], word: str) -> None:
    """Take a part without a key by its position; after a prefix there is none for the format."""
    while "target" not in keys and (found := _PREFIX.match(word)):
        prefix, word = found[1], word[found.end() :]
        keys["prefix"] = prefix
        if prefix in _FORMATS:
            keys["format"] = prefix
        elif prefix in _SCRIPTED:
            keys["script"] = f"block-{prefix}"
    if "target" not in keys:
        keys["target"] = word
    elif not {"prefix", "format"} & keys.keys() and not keys["target"] and ":" in word:
        keys |= {"format": "empty"} | _device(word)
    elif not {"prefix", "format"} & keys.keys():
        keys["format"] = word or "raw"
    elif "vdev" not in keys:
        keys |= _device(word)
    elif "access" not in keys:
        keys["access"] = word
    else:
        raise ReadError(f"{word[:40]!r} is more than xl takes of a disk")


def _device(word: str) -> dict[str, str]:
    """Read a device with its kind, `hdc:cdrom`."""
    head, colon, kind = word.rpartition(":")
    return {"vdev": head, "devtype": kind} if colon else {"vdev": word}


def _disk(words: str, line: int) -> DomainDisk:
    try:
        keys = _keys(words)
    except ReadError as error:
        raise ReadError(f"line {line}: {error.message}") from None
    vdev = keys.get("vdev", "").partition(":")[0]
    if not vdev:
        raise ReadError(f"line {line}: a disk without the name of a device (xvda)")
    cdrom = keys.get("devtype") == "cdrom"
    return DomainDisk(
        target=vdev,
        line=line,
        device="cdrom" if cdrom else "disk",
        bus=_BUSES.get(vdev[:2], "xen"),
        source=_source(keys),
        driver=keys.get("backendtype") or None,
        format=keys.get("format") or "raw",
        discard="unmap" if "discard" in keys else "ignore" if "no-discard" in keys else None,
        read_only=_ACCESS[keys.get("access", "")],
        options=frozenset(name for name in ("direct-io-safe", "discard", "no-discard", "script") if name in keys),
    )


def _source(keys: Mapping[str, str]) -> DiskSource:
    """Where the data is: a script (`block-iscsi`) or QEMU may fetch it over the network."""
    target, script = keys.get("target", ""), keys.get("script", "").removeprefix("block-")
    if not target or keys.get("format") == "empty":
        return DiskSource(kind="none")
    remote = _NETWORK.match(target)
    if script in _SCRIPTED or remote is not None:
        return DiskSource(kind="network", name=target, protocol=remote[1] if remote is not None else script)
    return DiskSource(kind="block" if target.startswith("/dev/") else "file", name=target)


XL = Language(
    name="xl",
    title="Xen",
    text="an xl configuration",
    knows=knows,
    domains=domains,
    turn=turn,
)
"""Xen."""
