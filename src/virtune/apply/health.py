# SPDX-License-Identifier: Apache-2.0
"""Check a guest's health: its agent answers, its address answers, or its console shows the expected text."""

import ipaddress
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from virtune import shell
from virtune.dialects.libvirt.domain import has_agent, has_console
from virtune.model.errors import PreconditionError, UsageError, VirtuneError
from virtune.virsh import LibvirtRefused, Virsh

KINDS = ("guest-agent", "ping", "console")

_LOOK_SECONDS = 0.3
"""The interval of checks. A guest needs seconds to boot, and a check costs some 30 ms of a CPU."""

_CONSOLE_MAX = 256 * 1024
"""How much of a console is kept to be searched: a boot prints some 60 kB."""

_PING_SECONDS = 1
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:%_-]{0,253}")
_ADDRESS = re.compile(r"\s(?:ipv4|ipv6)\s+(\S+?)/\d+\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """One sign of health. `detail`: the host to ping (empty: the guest's own addresses), or what a console shows."""

    kind: Literal["guest-agent", "ping", "console"]
    detail: str = ""


def read_sign(text: str) -> Sign:
    """Read `guest-agent`, `ping`, `ping:HOST` or `console:REGEX`; raises UsageError."""
    kind, colon, detail = text.partition(":")
    match kind:
        case "guest-agent" if not colon:
            return Sign(kind="guest-agent")
        case "ping" if not colon or _HOST.fullmatch(detail):
            return Sign(kind="ping", detail=detail)
        case "console" if detail:
            try:
                re.compile(detail)
            except re.error as error:
                raise UsageError(f"{detail!r} is not a regular expression: {error}") from None
            return Sign(kind="console", detail=detail)
    raise UsageError(
        f"{text!r} is not a sign of health",
        hint="write guest-agent, ping, ping:HOST or console:REGEX (console:login:)",
    )


def require_tellable(virsh: Virsh, uuid: str, signs: Sequence[Sign], xml: bytes) -> None:
    """Raise PreconditionError for a health sign that the running guest does not show before the change.

    A sign that is missing before could not show afterwards whether the change did harm. A console only has to exist,
    because it shows new output only.
    """
    for sign in signs:
        match sign.kind:
            case "guest-agent":
                if not has_agent(xml):
                    raise PreconditionError("the domain has no channel for QEMU's guest agent", hint=_OTHERS)
                if not _agent(virsh, uuid):
                    raise PreconditionError("the guest's agent does not answer now", hint=_OTHERS)
            case "ping":
                shell.find("ping")
                if not _ping(virsh, uuid, sign.detail):
                    raise PreconditionError(f"{sign.detail or 'the guest'} does not answer a ping now", hint=_OTHERS)
            case "console":
                if not has_console(xml):
                    raise PreconditionError("the domain has no console that libvirt can open", hint=_OTHERS)


def wait_until_well(
    virsh: Virsh, uuid: str, signs: Sequence[Sign], resume: Callable[[], None], seconds: float
) -> None:
    """Resume a paused guest, and return when it shows every sign; raises VirtuneError when it does not in time.

    The console is opened before the guest runs, so that no output is missed.
    """
    words = virsh.command("console", uuid)
    if any(sign.kind == "console" for sign in signs):
        with shell.on_terminal(words) as terminal:
            console = _Console(terminal)
            console.until_open(seconds)
            resume()
            _wait(virsh, uuid, signs, console, seconds)
    else:
        resume()
        _wait(virsh, uuid, signs, None, seconds)


class _Console:
    """What a guest has printed since its console was opened."""

    def __init__(self, terminal: shell.Terminal) -> None:
        self._terminal, self._said = terminal, ""

    def until_open(self, seconds: float) -> None:
        """Wait for virsh to report that it is connected; the guest's output follows."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._terminal.ended:
            self._said += self._terminal.read(_LOOK_SECONDS)
            if (at := self._said.find("Escape character is")) >= 0:
                self._said = self._said[at:].partition("\n")[2]
                return
        raise VirtuneError("the guest's console could not be opened", hint=shell.last_line(self._said))

    def shows(self, regex: str, seconds: float) -> bool:
        self._said = (self._said + self._terminal.read(seconds))[-_CONSOLE_MAX:]
        return re.search(regex, self._said, re.MULTILINE) is not None

    def end(self) -> str | None:
        return shell.last_line(self._said)


def _wait(virsh: Virsh, uuid: str, signs: Sequence[Sign], console: _Console | None, seconds: float) -> None:
    deadline, waiting = time.monotonic() + seconds, list(signs)
    while waiting:
        waiting = [sign for sign in waiting if not _given(virsh, uuid, sign, console)]
        if not waiting:
            return
        state = virsh.state(uuid)
        if state not in ("running", "idle"):
            raise VirtuneError(f"the guest did not come back: it is {state}{_last(console)}")
        if time.monotonic() > deadline:
            missing = "; ".join(map(_missing, waiting))
            raise VirtuneError(f"the guest did not come back within {seconds:g} s: {missing}{_last(console)}")
        if console is None:
            time.sleep(_LOOK_SECONDS)


def _given(virsh: Virsh, uuid: str, sign: Sign, console: _Console | None) -> bool:
    match sign.kind:
        case "guest-agent":
            return _agent(virsh, uuid)
        case "ping":
            return _ping(virsh, uuid, sign.detail)
        case "console":
            return console is not None and console.shows(sign.detail, _LOOK_SECONDS)


def _agent(virsh: Virsh, uuid: str) -> bool:
    try:
        virsh.agent(uuid, '{"execute":"guest-ping"}', timeout_seconds=2)
    except LibvirtRefused:
        return False
    return True


def _ping(virsh: Virsh, uuid: str, host: str) -> bool:
    for one in [host] if host else _addresses(virsh, uuid):
        words = [shell.find("ping"), "-n", "-q", "-c", "1", "-W", str(_PING_SECONDS), "--", one]
        if shell.run(words, timeout_seconds=_PING_SECONDS + 10, ok=(0, 1, 2)).status == 0:
            return True
    return False


def _addresses(virsh: Virsh, uuid: str) -> Iterator[str]:
    """The guest's own addresses, as libvirt's DHCP, the guest's agent or the host's ARP table has them."""
    for source in ("lease", "agent", "arp"):
        try:
            said = virsh.run("domifaddr", uuid, "--source", source)
        except LibvirtRefused:
            continue
        for text in _ADDRESS.findall(said):
            try:
                address = ipaddress.ip_address(text)
            except ValueError:
                continue
            if not address.is_loopback and not address.is_link_local:
                yield str(address)


def _missing(sign: Sign) -> str:
    match sign.kind:
        case "guest-agent":
            return "its agent does not answer"
        case "ping":
            return f"{sign.detail or 'its address'} does not answer a ping"
        case "console":
            return f"its console never showed {sign.detail!r}"


def _last(console: _Console | None) -> str:
    last = console.end() if console is not None else None
    return f" (its console's last line: {last})" if last else ""


_OTHERS = "--healthy takes guest-agent, ping, ping:HOST and console:REGEX"
