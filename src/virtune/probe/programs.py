# SPDX-License-Identifier: Apache-2.0
"""Programs: the versions of fio, QEMU and libvirt that are installed here, and what they say that they can do."""

import re
from collections.abc import Callable
from pathlib import Path

from virtune import shell
from virtune.model.errors import MissingToolError, VirtuneError
from virtune.model.facts import FioFacts, LibvirtFacts, Program, QemuFacts, Unknown

_SAID: dict[tuple[object, ...], str] = {}
"""Answers by the program's file as it was, and the options."""


def said_of_itself(path: str, *options: str, timeout_seconds: float = 5.0, ok: tuple[int, ...] = (0,)) -> str:
    """Return what a program prints for options that ask for its version or its abilities.

    It is asked again when its file is another one. Raises VirtuneError as `shell.run` does.
    """
    try:
        file = Path(path).stat()
    except OSError:  # which `shell.run` says better
        return shell.run([path, *options], timeout_seconds=timeout_seconds, ok=ok).stdout
    identity = (file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns)
    key = (path, options, identity)
    if key not in _SAID:
        _SAID[key] = shell.run([path, *options], timeout_seconds=timeout_seconds, ok=ok).stdout
    return _SAID[key]


def _asked(name: str, *options: str) -> tuple[str, str] | Unknown:
    """Return a program's path and its answer; or why there is none."""
    try:
        path = shell.find(name)
        return path, said_of_itself(path, *options)
    except MissingToolError:
        return Unknown("not installed")
    except VirtuneError as error:
        return Unknown(error.message)


def fio_facts() -> FioFacts:
    if isinstance(banner := _asked("fio", "--version"), Unknown):
        return FioFacts(program=banner, engines=banner)
    if isinstance(engines := _asked("fio", "--enghelp"), Unknown):
        return FioFacts(program=engines, engines=engines)
    path, version = banner
    package = Unknown("fio names no package")
    found = Program(name="fio", path=path, version=version.strip().removeprefix("fio-"), package=package)
    return FioFacts(program=found, engines=read_engines(engines[1]) or Unknown("`fio --enghelp` lists none"))


def read_engines(text: str) -> tuple[str, ...]:
    """Read the names from `fio --enghelp`: a headline, then one a line, perhaps with a note in brackets."""
    return tuple(line.split()[0] for line in text.splitlines()[1:] if line.strip())


_NUMBER = re.compile(r"\d+(?:\.\d+)+")


def libvirt_facts() -> LibvirtFacts:
    """Return the libvirt programs of this host; the QEMU driver's own daemon before the old monolithic one."""
    daemons = [_program(name) for name in ("virtqemud", "libvirtd")]
    return LibvirtFacts(
        client=_program("virsh"), daemon=next((one for one in daemons if isinstance(one, Program)), daemons[-1])
    )


def _program(name: str) -> Program | Unknown:
    if isinstance(said := _asked(name, "--version"), Unknown):
        return said
    path, text = said
    version = _NUMBER.search(text)
    return Program(
        name=name,
        path=path,
        version=version[0] if version else Unknown(f"its version was not understood: {text[:60]!r}"),
        package=Unknown("libvirt names no package"),
    )


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
    if isinstance(said := _asked(name, "--version"), Unknown):
        return said
    version, package = read_banner(said[1])
    return Program(name=name.rpartition("/")[2], path=said[0], version=version, package=package)


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
    said = _asked(emulators[0].path, "-accel", "help")
    return said if isinstance(said, Unknown) else read_accelerators(said[1])


def _words_of(name: str, read: Callable[[str], tuple[str, ...]]) -> tuple[str, ...] | Unknown:
    said = _asked(name, "--help")
    return said if isinstance(said, Unknown) else read(said[1]) or Unknown(f"`{name} --help` lists none")
