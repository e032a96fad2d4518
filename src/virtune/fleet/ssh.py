# SPDX-License-Identifier: Apache-2.0
"""A host over the system's own ssh: one connection that all commands share, no questions, every wait with a limit."""

import contextlib
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from virtune.bounded import read_bounded
from virtune.model.errors import PreconditionError, VirtuneError
from virtune.model.fleet import Address, FleetHost
from virtune.model.text import printable
from virtune.shell import Child, CommandError, Output, Warden, find, last_line, run

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


CONNECT_SECONDS = 15
"""How long a host may take to answer; a jump host doubles it."""

_ALIVE_SECONDS, _ALIVE_COUNT = 5, 3
"""A connection that is cut off is noticed after 15 s."""

_SPARE_SECONDS = 30.0
"""Beyond ssh's own limit of connecting: authentication by a hardware key or an agent."""

_LOG_MAX = 20_000
_TICK_SECONDS = 0.02
SSH_FAILED = 255
"""The exit code of ssh where the connection failed."""

_NOT_FOUND = (126, 127)
_ERROR, _HINT = "error: ", "hint: "

_MISSING = {
    "virtune": "`virtune fleet install` brings it there; `--virtune PATH` names one that is there",
    "python3": "install Python 3.11 or newer there; `--python PATH` names one that is there",
}
"""What helps where a program is not found."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """An open connection to a host; `words` begin every command over it."""

    host: FleetHost
    words: tuple[str, ...]

    def command(self, command: Sequence[str]) -> list[str]:
        """Return what runs a command there."""
        return [*self.words, *destination(self.host), shlex.join(command)]

    def run(
        self,
        command: Sequence[str],
        *,
        timeout_seconds: float,
        most_bytes: int,
        ok: tuple[int, ...] = (0,),
        into: IO[bytes] | None = None,
        stdin: bytes | None = None,
    ) -> Output:
        """Run a command there to its end and return its output, but for what it prints `into` a file. Raises
        HostError with the reason.
        """
        asked = self.command(command)
        every = tuple(range(256))
        try:
            done = run(
                asked, timeout_seconds=timeout_seconds, ok=every, most_bytes=most_bytes, into=into, stdin=stdin
            )
        except CommandError as error:
            raise HostError(f"{error.message.partition(': ')[0]}: `{shlex.join(command)}`") from None
        if done.status in ok:
            return done
        if done.status == SSH_FAILED:
            raise HostError(f"the connection was lost: {last_line(done.stderr) or 'ssh gave no reason'}")
        if done.status in _NOT_FOUND:
            raise HostError(
                f"`{command[0]}` is not installed there, or not on the PATH of ssh's commands",
                hint=_MISSING.get(PurePosixPath(command[0]).name),
            )
        raise _ended(command, done)


@contextlib.contextmanager
def connected(
    warden: Warden, host: FleetHost, *, name: str, connect_seconds: int = CONNECT_SECONDS
) -> Iterator[Connection]:
    """Open a connection to a host and close it with the block; `name` is one of its own among the warden's processes.

    The host's key must be known, and nothing is asked. Raises HostError with the reason.
    """
    socket = warden.directory / f"{name}.s"
    words = (find("ssh"), *config_words(host), "-T", *_options(connect_seconds))
    master = [*words, "-M", "-N", "-S", str(socket), *destination(host)]
    with warden.running(master, name=name) as child:
        _await(child, socket, connect_seconds + _SPARE_SECONDS, host)
        yield Connection(host=host, words=(*words, "-o", "ControlMaster=no", "-S", str(socket)))


def _options(connect_seconds: int) -> Iterator[str]:
    for option in (
        "BatchMode=yes",
        "StrictHostKeyChecking=yes",
        "UpdateHostKeys=no",
        f"ConnectTimeout={connect_seconds}",
        f"ServerAliveInterval={_ALIVE_SECONDS}",
        f"ServerAliveCountMax={_ALIVE_COUNT}",
        "ControlPersist=no",
        "ClearAllForwardings=yes",
        "ForwardAgent=no",
        "ForwardX11=no",
        "PermitLocalCommand=no",
        "RemoteCommand=none",
        "LogLevel=ERROR",
    ):
        yield "-o"
        yield option


def error_in(text: str) -> tuple[str, str | None] | None:
    """Return the last error that a virtune, or what it sent there, printed, with its hint; None without one."""
    lines = text.splitlines()
    errors = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
    hints = [line.removeprefix(_HINT) for line in lines if line.startswith(_HINT)]
    return (errors[-1], hints[-1] if hints else None) if errors else None


def _ended(command: Sequence[str], done: Output) -> HostError:
    """Say why a command ended: in the words of the virtune of that host where it was one, with its hint."""
    if (said := error_in(done.stderr)) is not None:
        return HostError(said[0], hint=said[1])
    why = last_line(done.stderr) or last_line(done.stdout) or "it gave no reason"
    return HostError(f"`{shlex.join(command)}` ended with {done.status}: {why}")


def _await(child: Child, socket: Path, seconds: float, host: FleetHost) -> None:
    """Wait until the connection is open. ssh makes its socket when it has been let in."""
    deadline = time.monotonic() + seconds
    while not socket.exists():
        if child.poll() is not None:
            raise _reason(child, host)
        if time.monotonic() > deadline:
            raise HostError(f"ssh was not let in within {seconds:g} s")
        time.sleep(_TICK_SECONDS)


def _reason(child: Child, host: FleetHost) -> HostError:
    said = ""
    with contextlib.suppress(OSError):
        said = read_bounded(child.log, _LOG_MAX, from_end=True).decode(errors="replace")
    for pattern, words, hint in _REASONS:
        if pattern.search(said):
            named = shlex.join([*config_words(host), host.target])
            return HostError(words, hint=hint.replace("HOST", named))
    return HostError(printable(f"ssh: {last_line(said) or 'ended without a reason'}", most=300))
