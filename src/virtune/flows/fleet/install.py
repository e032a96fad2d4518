# SPDX-License-Identifier: Apache-2.0
"""Install this virtune on many hosts: wheels are sent over SSH, and a virtual environment is made on each host."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from virtune import __version__, on_host
from virtune.bounded import read_json
from virtune.fleet.reach import Connection
from virtune.fleet.ssh import HostError, error_in
from virtune.fleet.wheelhouse import HostPlatform, Wheels, wheels_for
from virtune.flows.fleet.ask import FleetAccess, Ready, ask_apart, named_on
from virtune.model.fleet import FleetHost, Installed, Unreached

PROGRAM = Path(on_host.__file__)

_ANSWER_MAX = 64 * 1024
_LOOK_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallWish:
    """What is wanted: `do` is install, back or remove; `upgrade` allows to replace another version."""

    do: str = "install"
    upgrade: bool = False
    wheelhouse: Path | None = None
    python: str = "python3"


def install(
    hosts: Sequence[FleetHost], access: FleetAccess, wish: InstallWish, *, say: Callable[[str], None] = lambda _: None
) -> list[Installed | Unreached]:
    """Install, put back or remove virtune on every host; a failure concerns its host only.

    Hosts are told apart first: one by two names would be installed to twice at once.
    """
    wheels: dict[HostPlatform, Wheels] = {}
    one_by_one = Lock()

    def task(ready: Ready) -> Installed:
        here = _Python(ready.connection, wish.python)
        before = here.do("look")
        done = partial(Installed, host=ready.connection.host, before=(current := _version(before)))
        if wish.do != "install":
            return done(state=wish.do, version=_version(here.do(wish.do)))
        if current == __version__ and not wish.upgrade:
            return done(state="kept", version=current)
        if current not in (None, __version__) and not wish.upgrade:
            raise HostError(f"has virtune {current} already", hint="--upgrade replaces it, and --back puts it back")
        platform = platform_of(before)
        with one_by_one:
            if platform not in wheels:
                wheels[platform] = wheels_for(platform, wish.wheelhouse)
        after = here.install(wheels[platform], access.timeout_seconds)
        return done(state="installed", version=_version(after))

    found = ask_apart(hosts, access, task, meet=named_on, say=say)
    return [one if isinstance(one, Unreached) else one.said for one in found]


class _Python:
    """The Python of a host, to which the program `on_host.py` is sent."""

    def __init__(self, connection: Connection, python: str) -> None:
        self._connection, self._python = connection, python
        self._program = PROGRAM.read_bytes()

    def do(self, what: str, seconds: float = _LOOK_SECONDS, **more: object) -> Mapping[str, Any]:
        """Do one thing there and return what it says."""
        done = self._connection.run(
            [self._python, "-", json.dumps({"do": what, **more})],
            timeout_seconds=seconds, most_bytes=_ANSWER_MAX, stdin=self._program, ok=(0, 1),
        )  # fmt: skip
        if done.status:
            said = error_in(done.stderr)
            raise HostError(said[0] if said else "its Python gave no reason")
        try:
            found = read_json(done.stdout)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise HostError("what its Python said is not to be understood")
        return found

    def install(self, wheels: Wheels, seconds: float) -> Mapping[str, Any]:
        """Send the wheels and install them."""
        incoming = str(self.do("begin").get("incoming"))
        self._connection.run(
            ["tar", "-C", incoming, "-xf", "-"],
            timeout_seconds=seconds,
            most_bytes=_ANSWER_MAX,
            stdin=wheels.packed(),
        )
        return self.do("install", seconds, version=__version__, sums=wheels.sums)


def _version(found: Mapping[str, Any]) -> str | None:
    version = found.get("current")
    return version if isinstance(version, str) else None


def platform_of(found: Mapping[str, Any]) -> HostPlatform:
    """Return what a host's wheels depend on. Raises HostError for one that no wheels are made for."""
    libc = found.get("libc")
    name, number = (libc[0], str(libc[1])) if isinstance(libc, list) and len(libc) == 2 else ("", "")
    if found.get("implementation") != "CPython" or name != "glibc":
        raise HostError(
            "its Python is not CPython on glibc, for which wheels are made", hint="install it by hand there"
        )
    python = str(found.get("python"))
    if [int(one[:9]) for one in python.split(".") if one.isdecimal()] < [3, 11]:
        raise HostError(f"has Python {python}, and 3.11 is needed", hint="`--python PATH` names another one there")
    major, _, minor = number.partition(".")
    try:
        glibc = (int(major[:9]), int(minor[:9]))
    except ValueError:
        raise HostError(f"its glibc {number} is not to be understood") from None
    return HostPlatform(python=python, machine=str(found.get("machine")), glibc=glibc)
