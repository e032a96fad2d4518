# SPDX-License-Identifier: Apache-2.0
"""A host over the system's own ssh: one connection that all commands share, no questions, every wait with a limit."""

import contextlib
import re
import shlex
import time
from collections.abc import Iterator

from virtune.bounded import read_bounded
from virtune.model.errors import PreconditionError, VirtuneError
from virtune.model.fleet import Address, FleetHost
from virtune.model.text import printable
from virtune.shell import Child, CommandError, Warden, find, last_line, run

_SECONDS = 20.0
"""`ssh -G` connects to nothing; a program that `Match exec` names may take its time."""

_PARTS = re.compile(r"(ssh://)?(?:([^@]*)@)?(?:([^\[\]]*)|\[([^\]]*)\](?::(\d+))?)")
"""What ssh is called with, in parts; every target of a host is such a one (inventory.py)."""


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
    """Return the last options of ssh, and what it is to connect to.

    An IPv6 address is written there without the brackets of URIs, which OpenSSH 9.2 takes for a part of the name.
    """
    _, user, _, in_brackets, port = _PARTS.fullmatch(host.target).groups()  # type: ignore[union-attr]
    if in_brackets is None:
        return ["--", host.target]
    address = in_brackets if user is None else f"{user}@{in_brackets}"
    return [*(["-p", port] if port else []), "--", address]


def ansible_variables(host: FleetHost) -> dict[str, object]:
    """Return the variables by which Ansible reaches a host as we do: the same ssh and configuration, which asks
    nothing and takes no unknown key, whatever an ansible.cfg says: ssh takes the first word, and these come first.
    """
    scheme, user, bare, in_brackets, port = _PARTS.fullmatch(host.target).groups()  # type: ignore[union-attr]
    address = in_brackets or bare
    if scheme and not in_brackets:
        address, _, port = address.partition(":")
    words = [*config_words(host), *_options("ControlMaster=auto", "ControlPersist=15s")]
    known = {"ansible_user": user, "ansible_port": port and int(port)}
    return {
        "ansible_connection": "ssh",
        "ansible_host": address,
        "ansible_ssh_args": shlex.join(words),
        "ansible_host_key_checking": True,
        "ansible_pipelining": True,
        **{name: value for name, value in known.items() if value},
    }


_ASKS_NOTHING = (
    "BatchMode=yes", "StrictHostKeyChecking=yes", "UpdateHostKeys=no", "ForwardAgent=no", "ForwardX11=no",
)  # fmt: skip


def _options(*more: str) -> Iterator[str]:
    for option in (*_ASKS_NOTHING, *more):
        yield from ("-o", option)


CONNECT_SECONDS = 15
"""How long a host may take to answer; a jump host doubles it."""

_ALONE = (
    "ServerAliveInterval=5", "ServerAliveCountMax=3", "ControlPersist=no", "ClearAllForwardings=yes",
    "PermitLocalCommand=no", "RemoteCommand=none", "LogLevel=ERROR",
)  # fmt: skip
"""Nothing but our commands; and a connection that is cut off is noticed after 15 s."""

_SPARE_SECONDS = 30.0
"""Beyond ssh's own limit of connecting: authentication by a hardware key or an agent."""

_LOG_MAX = 20_000
_TICK_SECONDS = 0.02
_FAILED = 255
"""The exit code of ssh where the connection failed."""

Lost = tuple[str, str | None]
"""Why a host was not reached, and the next thing to do."""

_ERROR, _HINT = "error: ", "hint: "

_REASONS = (
    (re.compile(r"REMOTE HOST IDENTIFICATION HAS CHANGED"), "its host key is not the one in known_hosts",
     "find out why; `ssh HOST` names the line of known_hosts with the old one"),
    (re.compile(r"No .* host key is known for"), "its host key is not known",
     "`ssh HOST` once shows it and asks; or add it to known_hosts"),
    (re.compile(r"Host key verification failed"), "its host key could not be verified", "see known_hosts"),
    (re.compile(r"Permission denied"), "ssh is not let in without a question",
     "add your key there; ssh-agent has to hold one with a passphrase"),
    (re.compile(r"Connection timed out|No route to host|Network is unreachable|Operation timed out"),
     "it does not answer", "is the host up, and the way to it?"),
    (re.compile(r"Connection refused"), "it refuses the connection: no sshd there", "`ssh HOST` tries it by hand"),
    (re.compile(r"Could not resolve hostname"), "its name is not known",
     "give it an address in ssh_config, or `ssh=ADDRESS` in the inventory"),
)  # fmt: skip
"""What ssh says, in plain words, and the next thing to do."""


class HostError(VirtuneError):
    """A host could not be reached, or did not do what it was asked."""


@contextlib.contextmanager
def opened(warden: Warden, host: FleetHost, name: str, connect_seconds: int) -> Iterator[tuple[str, ...]]:
    """Open a connection to a host, give the words that begin every command over it, and close it with the block;
    `name` is one of its own among the warden's processes.

    The host's key must be known, and nothing is asked. Raises HostError with the reason.
    """
    socket = warden.directory / f"{name}.s"
    words = (find("ssh"), *config_words(host), "-T", *_options(f"ConnectTimeout={connect_seconds}", *_ALONE))
    master = [*words, "-M", "-N", "-S", str(socket), *destination(host)]
    with warden.running(master, name=name) as child:
        limit = connect_seconds + _SPARE_SECONDS
        deadline = time.monotonic() + limit
        while not socket.exists():  # ssh makes it when it has been let in
            if child.poll() is not None:
                raise _reason(child, host)
            if time.monotonic() > deadline:
                raise HostError(f"ssh was not let in within {limit:g} s")
            time.sleep(_TICK_SECONDS)
        yield (*words, "-o", "ControlMaster=no", "-S", str(socket))


def error_in(text: str) -> tuple[str, str | None] | None:
    """Return the last error that a virtune, or our role, printed, with its hint; None without one."""
    lines = text.splitlines()
    errors = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
    hints = [line.removeprefix(_HINT) for line in lines if line.startswith(_HINT)]
    return (errors[-1], hints[-1] if hints else None) if errors else None


def lost(status: int, said: str) -> Lost | None:
    """Return why the connection failed, by how a command over it ended; None where it did not."""
    if status != _FAILED:
        return None
    return f"the connection was lost: {last_line(said) or 'ssh gave no reason'}", None


def _reason(child: Child, host: FleetHost) -> HostError:
    said = ""
    with contextlib.suppress(OSError):
        said = read_bounded(child.log, _LOG_MAX, from_end=True).decode(errors="replace")
    if known := reason_in(said, host):
        return HostError(known[0], hint=known[1])
    return HostError(printable(f"ssh: {last_line(said) or 'ended without a reason'}", most=300))


def reason_in(said: str, host: FleetHost) -> tuple[str, str] | None:
    """Return why a host was not reached, and the next thing to do; None where it is another reason."""
    for pattern, words, hint in _REASONS:
        if pattern.search(said):
            return words, hint.replace("HOST", shlex.join([*config_words(host), host.target]))
    return None
