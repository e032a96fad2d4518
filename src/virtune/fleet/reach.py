# SPDX-License-Identifier: Apache-2.0
"""What carries a command to a host: ssh, `kubectl exec` to a pod, or nothing where the host is this machine.

One row each says how a connection is opened, how a command is written for it, and whether it was the connection that
failed and not the command.
"""

import contextlib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from virtune.fleet import ssh
from virtune.fleet.ssh import HostError, Lost, error_in
from virtune.model.fleet import KUBECTL, FleetHost
from virtune.model.text import printable
from virtune.shell import CommandError, Output, Warden, find, last_line, run

_NOT_FOUND = (126, 127)

_MISSING = {"virtune": "`virtune fleet install` brings it there; `--virtune PATH` names one that is there"}
"""What helps where a program is not found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """One way to hosts: the `program` that it needs here, empty for none.

    `opened` opens a connection, which all commands to a host share, and gives the words that begin them. `command` is
    what runs a command there. `lost` says of the exit status and the output of such a command why the connection
    failed, and None where the status is that of the command. `whose` PATH is searched there. A command of this
    machine runs in `place`.
    """

    program: str
    whose: str
    opened: Callable[[Warden, FleetHost, str, int], AbstractContextManager[tuple[str, ...]]]
    command: Callable[["Connection", Sequence[str]], list[str]]
    lost: Callable[[int, str], Lost | None]
    place: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """An open connection to a host; `words` begin every command over it."""

    host: FleetHost
    words: tuple[str, ...]

    def command(self, command: Sequence[str]) -> list[str]:
        """Return what runs a command there."""
        return CARRIERS[self.host.way].command(self, command)

    def lost(self, status: int, said: str) -> HostError | None:
        """Return why the connection failed, by the exit status of a command and what it printed; None where the
        status is that of the command.
        """
        found = CARRIERS[self.host.way].lost(status, said)
        return None if found is None else HostError(found[0], hint=found[1])

    def run(
        self,
        command: Sequence[str],
        *,
        timeout_seconds: float,
        most_bytes: int,
        ok: tuple[int, ...] = (0,),
        into: IO[bytes] | None = None,
    ) -> Output:
        """Run a command there to its end and return its output, but for what it prints `into` a file. Raises
        HostError with the reason.
        """
        way, every = CARRIERS[self.host.way], tuple(range(256))
        named = "a shell of ours" if command[0] == "sh" else f"`{shlex.join(command)}`"
        try:
            done = run(
                way.command(self, command), timeout_seconds=timeout_seconds, most_bytes=most_bytes, ok=every,
                into=into, place=way.place,
            )  # fmt: skip
        except CommandError as error:
            raise HostError(f"{error.message.partition(': ')[0]}: {named}") from None
        if done.status != 0 and (lost := self.lost(done.status, done.stderr)) is not None:
            raise lost
        if done.status in ok:
            return done
        if done.status in _NOT_FOUND:
            said = f"`{command[0]}` is not installed there, or not on the PATH of {way.whose}"
            raise HostError(said, hint=_MISSING.get(PurePosixPath(command[0]).name))
        if (known := error_in(done.stderr)) is not None:  # the words of a virtune there
            raise HostError(known[0], hint=known[1])
        why = last_line(done.stderr) or last_line(done.stdout) or "it gave no reason"
        raise HostError(f"{named} ended with {done.status}: {why}")


@contextlib.contextmanager
def connected(warden: Warden, host: FleetHost, *, name: str, connect_seconds: int) -> Iterator[Connection]:
    """Open a connection to a host and close it with the block; `name` is one of its own among the warden's processes.

    Nothing is asked. Raises HostError with the reason.
    """
    with CARRIERS[host.way].opened(warden, host, name, connect_seconds) as words:
        yield Connection(host=host, words=words)


def require_programs(hosts: Sequence[FleetHost]) -> None:
    """Raise MissingToolError for a program that is needed to reach these hosts and is not installed here."""
    for program in dict.fromkeys(CARRIERS[host.way].program for host in hosts):
        if program:
            find(program)


@contextlib.contextmanager
def _in_pod(warden: Warden, host: FleetHost, name: str, seconds: int) -> Iterator[tuple[str, ...]]:  # noqa: ARG001
    # each command connects by itself; what follows a study would run elsewhere, and KUBECONFIG may be relative
    at = ("env", "-C", str(Path.cwd()))
    namespace, pod, *container = host.target.removeprefix(KUBECTL).split("/")
    in_it = (word for one in container for word in ("-c", one))
    yield (*at, find("kubectl"), "exec", "-n", namespace, pod, *in_it)


_ENDED_THERE = re.compile(r"command terminated with exit code (\d+)")
"""What kubectl says last where it was the command that ended so; its own failures have the exit code 1, too."""

_KUBECTL_SAYS = (
    (re.compile(r"pods? \S+ not found|pod does not exist"), "there is no such pod",
     "pods of a DaemonSet get new names: list them again (`kubectl get pods`)"),
    (re.compile(r"container \S+ is not valid|container not found"), "the pod has no such container that runs",
     "kubectl:NAMESPACE/POD/CONTAINER names one"),
    (re.compile(r"Unauthorized|Forbidden|must be logged in"), "kubectl is not let in",
     "`kubectl auth can-i create pods/exec` says whether you may"),
    (re.compile(r"Unable to connect to the server|The connection to the server .* was refused"),
     "the cluster does not answer", "`kubectl cluster-info` tries it by hand"),
    (re.compile(r"executable file not found|no such file or directory"), "the container has not what is to run there",
     "it needs a shell, the usual commands and a virtune: --virtune PATH names one"),
)  # fmt: skip
"""What kubectl says, in plain words, and the next thing to do."""


def _kubectl_lost(status: int, said: str) -> Lost | None:
    last = last_line(said) or ""
    if status == 0 or ((ended := _ENDED_THERE.search(last)) and int(ended[1]) == status):
        return None
    for pattern, words, hint in _KUBECTL_SAYS:
        if pattern.search(last):
            return words, hint
    return printable(f"the connection was lost: {last or 'kubectl gave no reason'}", most=300), None


CARRIERS: Mapping[str, Carrier] = {
    "ssh": Carrier(
        program="ssh",
        whose="ssh's commands",
        opened=ssh.opened,
        command=lambda to, command: [*to.words, *ssh.destination(to.host), shlex.join(command)],  # a shell reads it
        lost=ssh.lost,
    ),
    "local": Carrier(
        program="",
        whose="this virtune",
        opened=lambda *_: contextlib.nullcontext(()),
        command=lambda _, command: list(command),
        lost=lambda *_: None,
        place=Path("/"),  # as a study that is begun there runs
    ),
    "kubectl": Carrier(
        program="kubectl",
        whose="its container",
        opened=_in_pod,
        command=lambda to, command: [*to.words, "--", *command],  # no shell reads it
        lost=_kubectl_lost,
    ),
}
"""How hosts are reached, by what `FleetHost.way` says."""
