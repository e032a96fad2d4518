# SPDX-License-Identifier: Apache-2.0
"""Find QEMU's command line in a text, after variables and wrapper programs, and split it into options (pure)."""

import contextlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from virtune.dialects.text.shell import commands_of
from virtune.model.text import ESCAPE, prefix_of, without_prefix

Options = Mapping[str, str]

_PROGRAM = re.compile(r"(?:[^\n]*/)?(?:qemu-system-[\w-]+|qemu-kvm|kvm)(?:\.exe)?")
_MARKS = re.compile(
    r"(?<![\w=,.-])-(?:drive|device|blockdev|machine|M|m|smp|cpu|object|name|netdev|enable-kvm|accel|display"
    r"|nographic|chardev|hda|cdrom|boot|nodefaults|readconfig)\b|\bqemu-(?:system-\w|kvm\b)"
)
"""What lines of a command begin with, where each has been quoted or has a time stamp before it."""

_PROMPT = re.compile(r"[+]+|\$")
"""What a shell puts before a command that it shows."""

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_WRAPPERS = frozenset({"sudo", "doas", "env", "exec", "command", "nice", "ionice", "chrt", "taskset", "numactl",
                       "nohup", "setsid", "time", "prlimit", "systemd-run"})  # fmt: skip
_HARMLESS = re.compile(r"set|cd|export|ulimit|umask")
"""Commands that may precede QEMU's."""

_START = re.compile(r"^\d{4}-\d\d-\d\d [^\n]*: starting up libvirt version[^\n]*\n", re.MULTILINE)
"""The line in libvirt's log (`/var/log/libvirt/qemu/NAME.log`) before each start's command."""

_WRAPPER_WORDS_MAX = 16
_HEAD = 64 * 1024
_ALONE = frozenset({"h", "help", "version", "S", "s", "snapshot", "enable-kvm", "no-kvm", "no-acpi", "no-hpet",
                     "no-reboot", "no-shutdown", "nographic", "curses", "sdl", "daemonize", "nodefaults",
                     "no-user-config", "nodefconfig", "usb", "full-screen", "no-frame", "no-quit", "alt-grab",
                     "ctrl-grab", "portrait", "show-cursor", "localtime", "preconfig", "only-migratable",
                     "mem-prealloc", "singlestep", "one-insn-per-tb", "old-param", "semihosting", "enable-fips",
                     "win2k-hack", "no-fd-bootchk", "no-kvm-irqchip", "no-kvm-pit", "xen-attach",
                     "xen-domid-restrict", "tdf"})  # fmt: skip
"""QEMU's options without an argument (qemu-options.hx); what follows one is an option, or an image."""

_IMAGE = re.compile(r"[/.:$]")
"""What a name of an image has, and the value of an option that is not known here has seldom."""

_MORE = re.compile(r".*(?:\$[@*]|\[[@*]\]).*|\$\{?\w*(?:ARG|OPT|PARAM|FLAG)\w*\}?", re.IGNORECASE | re.DOTALL)
"""A shell's variable that holds more options, by its form or its usual names."""

_FIRST = {"device": "driver", "object": "qom-type", "smp": "cpus", "name": "guest", "uuid": "uuid", "machine": "type",
          "accel": "accel", "blockdev": "driver"}  # fmt: skip
_IMAGES = {"hda": "0", "hdb": "1", "hdc": "2", "hdd": "3", "cdrom": "2", "fda": "0", "fdb": "1", "sd": "0"}
_IMAGE_BUS = {"fda": "floppy", "fdb": "floppy", "sd": "sd"}


def begins_with_qemu(text: bytes) -> bool:
    """Whether the first command of a text starts QEMU's system emulator."""
    return next(iter(command_lines(text[:_HEAD].decode(errors="replace"))), None) is not None


def command_lines(text: str) -> Iterator[list[str]]:
    """Yield QEMU's command lines, each from its program on; nothing where another command comes first."""
    if "\0" in text:
        words = text.strip("\0\n").split("\0")
        yield from _from_program(words)
        return
    text = _unquoted(text)
    lines = text.rstrip().split("\n")
    if _one_word_a_line(lines):
        yield lines
        return
    starts = _START.split(text)[1:]
    for part in starts or [text]:
        commands = _commands(part)
        yield from itertools.islice(commands, 1) if starts else commands


def _unquoted(text: str) -> str:
    """Return a text without colours, and without what stands before its lines, if it stands before the program
    too.
    """
    text = ESCAPE.sub("", text) if "\x1b" in text else text
    prefix = prefix_of(text, _MARKS)
    if prefix is None or not re.search(rf"^{prefix.pattern}\S*(?:qemu-|kvm\b)", text, re.ASCII | re.MULTILINE):
        return text
    return without_prefix(text, _MARKS)


def _commands(text: str) -> Iterator[list[str]]:
    """The command lines of a script up to what no shell could read; none where another command comes first."""
    found = False
    with contextlib.suppress(ValueError):
        for words in commands_of(text):
            here = list(_from_program(words))
            if not (here or found or all(map(_ASSIGNMENT.fullmatch, words)) or _HARMLESS.fullmatch(words[0])):
                return
            found = found or bool(here)
            yield from here


def _from_program(words: Sequence[str]) -> Iterator[list[str]]:
    """The words from the program on, behind variables and the programs that start others."""
    shown = 1 if words and _PROMPT.fullmatch(words[0]) else 0
    variables = (n for n, word in enumerate(words) if n >= shown and not _ASSIGNMENT.fullmatch(word))
    at = next(variables, len(words))
    reach = at + 1
    if at < len(words) and words[at].rpartition("/")[2] in _WRAPPERS:
        reach = min(at + _WRAPPER_WORDS_MAX, len(words))
    for place in range(at, min(reach, len(words))):
        following = words[place + 1 : place + 2]
        # `modprobe kvm` and `kvm = 1` start nothing
        if _PROGRAM.fullmatch(words[place]) and following and (following[0].startswith("-") or "." in following[0]):
            yield list(words[place:])
            return


def _one_word_a_line(lines: Sequence[str]) -> bool:
    """Whether a text is `/proc/PID/cmdline` with line feeds, which needs no quotes."""
    return (
        len(lines) > 1
        and _PROGRAM.fullmatch(lines[0]) is not None
        and lines[1].startswith("-")
        and not any(line.startswith("-") and " " in line for line in lines)
    )


def given(words: Sequence[str]) -> Iterator[tuple[str, Options]]:
    """Yield the options of a command line with what is given to each; an image alone is `drive`."""
    at = 1
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("-") or word == "-":
            if _MORE.fullmatch(word):
                yield "elsewhere", {word: "on"}
            elif _IMAGE.search(word):
                yield "drive", {"file": word, "index": "0"}
            continue
        name = word.removeprefix("-").removeprefix("-")
        name = "machine" if name == "M" else name
        following = words[at] if at < len(words) else ""
        if name in _ALONE or (following.startswith("-") and len(following) > 1):
            yield name, {}
            continue
        at += 1
        if name in _IMAGES:
            media = {"media": "cdrom"} if name == "cdrom" else {}
            bus = {"if": _IMAGE_BUS[name]} if name in _IMAGE_BUS else {}
            yield "drive", {"file": following, "index": _IMAGES[name], "id": name, **media, **bus}
        else:
            yield name, options_in(following, _FIRST.get(name, ""))


def options_in(text: str, first: str) -> Options:
    """Read `a=b,c=d` with `,,` for a comma, or JSON with its parts named by dots and its lists by numbers."""
    if text.startswith("{"):
        try:
            return dict(_flat("", json.loads(text)))
        except (ValueError, RecursionError):
            return {}
    found = {}
    for place, part in enumerate(text.replace(",,", "\0").split(",")):
        key, equals, value = part.replace("\0", ",").partition("=")
        if place == 0 and first and not equals:
            found[first] = key
        else:
            found[key] = value if equals else "on"
    return found


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else None
    if items is not None:
        for key, inner in items:
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), inner)
    else:
        yield prefix, {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)
