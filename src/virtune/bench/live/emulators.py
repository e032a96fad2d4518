# SPDX-License-Identifier: Apache-2.0
"""The QEMUs that run on this host, whoever started them (Proxmox VE, a script, libvirt), found by /proc."""

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

from virtune import shell
from virtune.dialects.qemu.command import monitor_sockets, name_and_id
from virtune.model.errors import UsageError
from virtune.probe.process import PROC, emulators

HANDED_OVER = "charmonitor"
"""The chardev of the monitor that libvirt keeps for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulator:
    """A running QEMU: its name, the number that Proxmox VE gives it, the sockets of its monitors as they are reached
    from here, and whether a libvirt keeps its monitor.
    """

    pid: int
    name: str
    number: str = ""
    sockets: tuple[Path, ...] = ()
    of_libvirt: bool = False

    @property
    def command_line(self) -> Path:
        return PROC / str(self.pid) / "cmdline"

    @property
    def configuration(self) -> Path:
        """The file of its configuration on a Proxmox VE node, else its command line."""
        place = shell.proxmox_directory() / f"{self.number}.conf"
        return place if self.number and place.is_file() else self.command_line

    @property
    def called(self) -> str:
        """What means it and nothing else on a command line, as long as it runs."""
        plain = self.name if re.fullmatch(r"\w[\w.-]*", self.name, re.ASCII) and not self.name.isdecimal() else ""
        return self.number or plain or str(self.pid)

    def is_called(self, word: str) -> bool:
        """Whether a user means it: by its name, its number, or its process id."""
        return word in (self.name, self.number, str(self.pid)) and bool(word)


def emulators_here() -> tuple[Emulator, ...]:
    """Return the running QEMUs, by process id."""
    found = []
    for pid, words in sorted(emulators().items()):
        name, number = name_and_id(words)
        found.append(
            Emulator(
                pid=pid,
                name=name,
                number=number,
                sockets=tuple(_reached(pid, path) for path in monitor_sockets(words)),
                of_libvirt=any(HANDED_OVER in word for word in words),
            )
        )
    return tuple(found)


def emulator_called(word: str) -> Emulator | None:
    """Return the running QEMU that a user calls so and that no libvirt keeps, None where there is none; raises
    UsageError where there are several.
    """
    called = [one for one in emulators_here() if one.is_called(word) and not one.of_libvirt]
    if len(called) > 1:
        pids = ", ".join(str(one.pid) for one in called)
        raise UsageError(f"{len(called)} QEMUs are called {word!r}", hint=f"name one by its process id: {pids}")
    return called[0] if called else None


def folder_of(pid: int | None) -> Path:
    """Return the directory that relative paths of a process mean; an empty path where that is not known."""
    with contextlib.suppress(OSError):  # another user's process does not show it
        if pid is not None:
            return (PROC / str(pid) / "cwd").readlink()
    return Path()


def _reached(pid: int, path: str) -> Path:
    """Return a socket's path as seen from here: the process may have another root, or a working directory."""
    inside = PROC / str(pid) / ("root" if path.startswith("/") else "cwd") / path.lstrip("/")
    with contextlib.suppress(OSError):  # another user's process shows neither
        if inside.exists() and not (Path(path).exists() and Path(path).samefile(inside)):
            return inside
    return Path(path)
