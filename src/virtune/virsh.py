# SPDX-License-Identifier: Apache-2.0
"""Access libvirt through its client `virsh`: list domains, read their XML, on a read-only connection by default.

`virsh` is used instead of the Python binding: it comes with libvirt itself, supports every URI that the user's
libvirt does (SSH with the user's own configuration included), and needs no compiler. Domains are named by UUID, never
by name, so no name can be taken for an option.
"""

import contextlib
import math
import os
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from virtune import shell
from virtune.model.errors import MissingToolError, PreconditionError, VirtuneError

_PATIENCE_SECONDS = 60.0
"""A host behind a slow link, with an SSH handshake, needs some seconds for a hundred domains."""

_KEPT_SECONDS = 20.0
"""How long the virsh that is kept may take; then another one is asked, which says what is wrong."""

_BATCH = 50
"""Domains per call: a call costs 30 ms, and an SSH handshake more."""

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UNREACHABLE = re.compile("onnect|authenti|End of file")
_BEHIND = re.compile("guest agent|monitor", re.IGNORECASE)
"""Errors of libvirt's own connections (to a guest agent or QEMU's monitor): libvirt itself was reached."""
_PLAIN = re.compile(r"[A-Za-z0-9-]+")
"""A word that virsh's own shell reads as it is."""
_LOCAL = re.compile(r"(qemu|xen|ch)(\+unix)?:///")


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedDomain:
    """One domain from libvirt: the XML of its next start, the live XML if it runs, its state and the reason."""

    uuid: str
    inactive: str | None
    live: str | None
    state: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFacts:
    """The host at the other end of a URI. `local`: it is this host, so its files and processes can be read."""

    hypervisor: str
    hypervisor_version: tuple[int, ...] | None
    libvirt: tuple[int, ...] | None
    cpus: int | None
    local: bool


@contextlib.contextmanager
def as_file(content: str | bytes) -> Iterator[str]:
    """Yield a path from which virsh reads some bytes while the block runs. They are in memory that ends with this
    process, so that no kill leaves a file, which might hold a password.
    """
    descriptor = os.memfd_create("virtune.xml", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        yield f"/proc/{os.getpid()}/fd/{descriptor}"


class Virsh:
    """A libvirt URI, read-only unless `write`."""

    def __init__(self, uri: str, *, write: bool = False) -> None:
        self.uri = uri
        self._words = [shell.find("virsh"), "-q", *([] if write else ["-r"]), "-c", uri]

    def run(self, *words: str, ok: tuple[int, ...] = (0,)) -> str:
        """Run one command of virsh and return what it printed; raises PreconditionError with libvirt's own words."""
        try:
            return shell.run([*self._words, *words], timeout_seconds=_PATIENCE_SECONDS, ok=ok).stdout
        except MissingToolError:
            raise
        except VirtuneError as error:
            said = (error.hint or error.message).removeprefix("error: ")
            if _UNREACHABLE.search(said) and not _BEHIND.search(said):
                raise PreconditionError(f"cannot reach libvirt at {self.uri}: {said}", hint=_HINT) from None
            raise LibvirtRefused(f"libvirt refused `{words[0]}`: {said}") from None

    def agent(self, uuid: str, command: str, *, timeout_seconds: float) -> str:
        """Send a JSON command to a domain's guest agent and return its JSON answer; raises LibvirtRefused."""
        seconds = max(1, min(math.ceil(timeout_seconds), int(_PATIENCE_SECONDS) - 5))
        return self.run("qemu-agent-command", uuid, "--timeout", str(seconds), command)

    def command(self, *words: str) -> list[str]:
        """Return the command line of a long-running virsh command."""
        return [word for word in self._words if word != "-q"] + list(words)

    def state(self, uuid: str) -> str:
        """Return the state of a domain in libvirt's words: running, paused, shut off."""
        return self.run("domstate", uuid).strip()

    def facts(self) -> ConnectionFacts:
        """Return the facts of the connection."""
        said = self.run("version", "--daemon", ok=(0, 1)) or self.run("version")
        running = re.search(r"Running hypervisor: (\S+) (\S+)", said)
        daemon = re.search(r"Running against daemon: (\S+)", said) or re.search(r"Using library: libvirt (\S+)", said)
        cpus = re.search(r"^CPU\(s\):\s+(\d+)", self.run("nodeinfo", ok=(0, 1)), re.MULTILINE)
        return ConnectionFacts(
            hypervisor=running[1] if running else "unknown",
            hypervisor_version=version_of(running[2]) if running else None,
            libvirt=version_of(daemon[1]) if daemon else None,
            cpus=int(cpus[1]) if cpus else None,
            local=_LOCAL.match(self.uri) is not None,
        )

    def uuids(self) -> tuple[str, ...]:
        """Return the UUIDs of all domains, running or not."""
        return tuple(word for word in self.run("list", "--all", "--uuid").split() if _UUID.fullmatch(word))

    def uuid(self, domain: str) -> str:
        """Return the UUID of a domain given by name or UUID; raises PreconditionError when there is none."""
        if domain.startswith("-") or not domain.isprintable() or not domain:
            raise PreconditionError(f"no domain {domain!r}")
        try:
            found = self.run("domuuid", "--domain", domain).strip()
        except LibvirtRefused:
            raise PreconditionError(
                f"no domain {domain!r} at {self.uri}", hint=f"`virsh -c {self.uri} list --all` lists them"
            ) from None
        return found

    def dump(self, uuids: Sequence[str], *, secrets_too: bool = False) -> tuple[DumpedDomain, ...]:
        """Return domains with their XML. One that vanishes in between is left out.

        `secrets_too` needs a connection that may write: without it a password is missing from the XML.
        """
        found: list[DumpedDomain] = []
        for start in range(0, len(uuids), _BATCH):
            found += self._batch(uuids[start : start + _BATCH], "--security-info" if secrets_too else "")
        return tuple(found)

    def _batch(self, uuids: Sequence[str], flag: str) -> list[DumpedDomain]:
        # a random text that no domain contains, to separate the answers
        mark = f"virtune-{secrets.token_hex(16)}"
        asked = [f"echo {mark} {number} {part}; {words}" for number, uuid in enumerate(uuids) for part, words in (
            ("state", f"domstate {uuid} --reason"),
            ("live", f"dumpxml {uuid} {flag}"),
            ("inactive", f"dumpxml {uuid} --inactive {flag}"),
        )]  # fmt: skip
        said = self.run("; ".join(asked), ok=(0, 1))
        if mark not in said:
            self.uuids()  # says why libvirt cannot be reached
            raise LibvirtRefused("libvirt gave no answer about its domains")
        answers: dict[tuple[int, str], str] = {}
        for piece in said.split(mark)[1:]:
            head = re.match(r" (\d+) (state|live|inactive)", piece)
            if head is not None:
                answers[int(head[1]), head[2]] = piece[head.end() :]
        return [one for index, uuid in enumerate(uuids) if (one := _dumped(uuid, index, answers)) is not None]


class KeptVirsh(Virsh):
    """The same, read-only, through one virsh that is kept for commands that come every second: its start takes 17 ms
    of CPU time. Use as a context manager. What it does not answer as it should is asked of a virsh of its own, which
    says why.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._ends = contextlib.ExitStack()
        self._terminal: shell.Terminal | None = None
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def run(self, *words: str, ok: tuple[int, ...] = (0,)) -> str:
        """Run one command of virsh and return what it printed; raises PreconditionError with libvirt's own words."""
        answer = self._ask(" ".join(words)) if all(map(_PLAIN.fullmatch, words)) else None
        return super().run(*words, ok=ok) if answer is None else answer

    def _ask(self, line: str) -> str | None:
        """Return the answer of the virsh that is kept; None without a good one."""
        self._count += 1
        mark, said, deadline = f"end-{self._count}", "", time.monotonic() + _KEPT_SECONDS
        try:
            terminal = self._terminal = self._terminal or self._start()
            terminal.write(f"{line}; echo {mark}\n")
        except (OSError, VirtuneError):
            self._give_up()
            return None
        while (end := re.search(rf"^{mark}", said, re.MULTILINE)) is None:
            if terminal.ended or time.monotonic() > deadline:
                self._give_up()
                return None
            said = (said + terminal.read(1.0)).replace("\r\n", "\n")
        # what was typed is in the output too, up to the end of its line
        answer = said[: end.start()].rpartition(f"; echo {mark}\n")[2]
        return None if re.search("^error: ", answer, re.MULTILINE) else answer

    def _start(self) -> shell.Terminal:
        # whoever asks first begins the libvirtd of a session, which must not have the cache directory of below
        super().run("uri")
        # a dumb terminal is not sent any control sequences; when its terminal is gone virsh writes what was typed
        # into the history of its user, if it finds the place
        surroundings = ["TERM=dumb", "XDG_CACHE_HOME=/dev/null"]
        return self._ends.enter_context(shell.on_terminal([shell.find("env"), *surroundings, *self._words]))

    def _give_up(self) -> None:
        self._ends.close()
        self._terminal = None


class LibvirtRefused(VirtuneError):  # noqa: N818 - it is libvirt that errs on us
    """libvirt refused a request."""


_HINT = "`virsh -c URI list --all` must work first; URIs are libvirt's own (qemu:///system, qemu+ssh://host/system)"


def default_uri() -> str:
    """Return virsh's default libvirt URI: by LIBVIRT_DEFAULT_URI, libvirt's configuration, or the user."""
    try:
        return shell.run([shell.find("virsh"), "uri"], timeout_seconds=_PATIENCE_SECONDS).stdout.strip()
    except MissingToolError:
        raise
    except VirtuneError as error:
        raise PreconditionError(f"cannot reach libvirt: {error.hint or error.message}", hint=_HINT) from None


def version_of(text: str) -> tuple[int, ...] | None:
    """Return the leading numbers of a version."""
    found = _VERSION.match(text)
    return tuple(int(part) for part in found.groups() if part is not None) if found else None


def _dumped(uuid: str, index: int, answers: dict[tuple[int, str], str]) -> DumpedDomain | None:
    state, _, reason = answers.get((index, "state"), "").strip().partition(" (")
    texts = {part: answers.get((index, part), "").strip() for part in ("live", "inactive")}
    if not state or not texts["live"]:
        return None
    active = state not in ("shut off", "crashed")
    return DumpedDomain(
        uuid=uuid,
        inactive=texts["inactive"] + "\n" if texts["inactive"] else None,
        live=texts["live"] + "\n" if active else None,
        state=state,
        reason=reason.rstrip(")"),
    )
