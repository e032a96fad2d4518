# SPDX-License-Identifier: Apache-2.0
"""What the system's ssh makes of a host's name: its address, user and port, by `ssh -G`."""

import re

from virtune.model.errors import PreconditionError
from virtune.model.fleet import Address, FleetHost
from virtune.shell import CommandError, find, run

_SECONDS = 20.0
"""`ssh -G` connects to nothing; a program that `Match exec` names may take its time."""

_IN_BRACKETS = re.compile(r"(?:ssh://)?([^@]*@)?\[([^\]]*)\](?::(\d+))?")
"""An IPv6 address as URIs write it. OpenSSH 9.2 takes the brackets for a part of the name, or ends with its usage."""


def address_of(host: FleetHost) -> Address:
    """Return where ssh would connect to for a host. Raises PreconditionError with ssh's own reason."""
    try:
        done = run([find("ssh"), "-G", *config_words(host), *destination(host)], timeout_seconds=_SECONDS)
    except CommandError as error:
        raise PreconditionError(f"ssh refuses the host {host.name!r}: {error.hint or error.message}") from None
    settings = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    try:
        return Address(user=settings["user"], host=settings["hostname"], port=int(settings["port"]))
    except (KeyError, ValueError):
        raise PreconditionError(f"`ssh -G` says nothing usable of the host {host.name!r}") from None


def config_words(host: FleetHost) -> list[str]:
    """Return the option that names the ssh_config of a host."""
    return [] if host.config is None else ["-F", host.config]


def destination(host: FleetHost) -> list[str]:
    """Return the last options of ssh, and what it is to connect to."""
    found = _IN_BRACKETS.fullmatch(host.target)
    if found is None:
        return ["--", host.target]
    user, address, port = found.groups()
    return [*(["-p", port] if port else []), "--", f"{user or ''}{address}"]
