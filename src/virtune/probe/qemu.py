# SPDX-License-Identifier: Apache-2.0
"""QEMU: the installed programs, their versions, and the capabilities that they report."""

import re
from collections.abc import Callable

from virtune import shell
from virtune.model.errors import MissingToolError, VirtuneError
from virtune.model.facts import Program, QemuFacts, Unknown
from virtune.probe.about import said_of_itself

_EMULATORS = (
    "qemu-system-x86_64",
    "qemu-system-aarch64",
    "qemu-system-ppc64",
    "qemu-system-s390x",
    "qemu-system-riscv64",
    "qemu-kvm",
    "/usr/libexec/qemu-kvm",
)
"""Debian, Fedora and SUSE name the emulator by its target; Enterprise Linux hides it as qemu-kvm."""
_VERSION = re.compile(r"\bversion (?P<version>\d+(?:\.\d+)+\S*)(?: \((?P<package>[^)]+)\))?")
_EXPORT = re.compile(r"--export \[type=\]([a-z0-9-]+)")
_DRIVERS = re.compile(r"^Supported formats:(.*)$", re.MULTILINE)


def qemu_facts() -> QemuFacts:
    """Return the QEMU programs of this host and their abilities."""
    emulators = tuple(found for name in _EMULATORS if isinstance(found := program(name), Program))
    return QemuFacts(
        emulators=emulators,
        image_tool=program("qemu-img"),
        storage_daemon=program("qemu-storage-daemon"),
        accelerators=_accelerators(emulators),
        drivers=_words_of("qemu-img", read_drivers),
        exports=_words_of("qemu-storage-daemon", read_exports),
    )


def program(name: str) -> Program | Unknown:
    """Return a QEMU program with its version; unknown when it is not installed."""
    try:
        path = shell.find(name)
        banner = said_of_itself(path, "--version")
    except MissingToolError:
        return Unknown("not installed")
    except VirtuneError as error:
        return Unknown(error.message)
    version, package = read_banner(banner)
    return Program(name=name.rpartition("/")[2], path=path, version=version, package=package)


def read_banner(text: str) -> tuple[str | Unknown, str | Unknown]:
    """Read version and package from `... version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)`."""
    found = _VERSION.search(text)
    if found is None:
        unknown = Unknown(f"its version was not understood: {text[:60]!r}")
        return unknown, unknown
    return found["version"], found["package"] or Unknown("the build names no package")


def read_exports(text: str) -> tuple[str, ...]:
    """Read the kinds of export from `qemu-storage-daemon --help`."""
    return tuple(dict.fromkeys(_EXPORT.findall(text)))


def read_drivers(text: str) -> tuple[str, ...]:
    """Read the block drivers from `qemu-img --help`."""
    found = _DRIVERS.search(text)
    return tuple(found[1].split()) if found else ()


def read_accelerators(text: str) -> tuple[str, ...]:
    """Read the accelerators from `-accel help`: a headline, then one a line."""
    return tuple(line.strip() for line in text.splitlines()[1:] if line.strip())


def _accelerators(emulators: tuple[Program, ...]) -> tuple[str, ...] | Unknown:
    if not emulators:
        return Unknown("no qemu-system-* is installed")
    try:
        answer = said_of_itself(emulators[0].path, "-accel", "help")
    except VirtuneError as error:
        return Unknown(error.message)
    return read_accelerators(answer)


def _words_of(name: str, read: Callable[[str], tuple[str, ...]]) -> tuple[str, ...] | Unknown:
    try:
        answer = said_of_itself(shell.find(name), "--help")
    except MissingToolError:
        return Unknown("not installed")
    except VirtuneError as error:
        return Unknown(error.message)
    return read(answer) or Unknown(f"`{name} --help` lists none")
