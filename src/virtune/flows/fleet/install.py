# SPDX-License-Identifier: Apache-2.0
"""Install this virtune on many hosts by our Ansible role: the real `ansible-playbook` runs it on the user's hosts."""

import json
import math
import re
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

import virtune
from virtune.bounded import read_bounded, read_json
from virtune.fleet.ssh import CONNECT_SECONDS, ansible_variables, error_in, reason_in
from virtune.flows.fleet.ask import Fleet, FleetAccess
from virtune.model.errors import MissingToolError, PreconditionError, UsageError
from virtune.model.fleet import FleetHost, Installed, Unreached
from virtune.model.text import printable
from virtune.shell import find_ansible, last_line, run

PLACES = (Path(virtune.__file__).parent / "ansible", Path(virtune.__file__).parents[2] / "ansible")
"""Where the collection is: in what was installed, and in a checkout."""

_STEPS = 20
"""The role has fewer steps for a host, of which each may take as long as a host may."""

_PACK_SECONDS = 1800.0
"""How long the role waits for what it sends to be packed."""

_RESULT_MAX = 64 * 1024
"""The most bytes for a host: the role cuts a reason to 2,000 characters, and a name to 400."""

_RECAP = "PLAY RECAP"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallWish:
    """What is wanted: the role's state (present, previous or absent); `upgrade` allows to replace another version.

    `options` are `ansible-playbook`'s own, such as --become.
    """

    state: str = "present"
    upgrade: bool = False
    wheelhouse: Path | None = None
    python: str = "python3"
    options: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _End(Installed):
    """How it ended on a host, as the role writes it."""

    because: str = ""


def install(
    fleet: Fleet, hosts: Sequence[FleetHost], access: FleetAccess, wish: InstallWish
) -> list[Installed | Unreached]:
    """Install, put back or remove virtune on these hosts of a fleet; a failure concerns its host only.

    Raises PreconditionError where Ansible itself came to nothing.
    """
    with tempfile.TemporaryDirectory(prefix="virtune-") as made:
        place = Path(made)
        command = _command(place, fleet, hosts, access, wish)
        seconds = access.timeout_seconds * _STEPS * math.ceil(len(hosts) / access.parallel) + _PACK_SECONDS
        every = tuple(range(256))
        # it refuses every other encoding, and ends its own children when it is asked to end
        done = run(command, timeout_seconds=seconds, ok=every, locale="C.UTF-8", gently=True)
        ends = _ends(place / "results.json", len(hosts))
    if not ends and _RECAP not in done.stdout:
        said = re.findall(r"^(?:\[ERROR\]|ERROR!)[: ]+(.*)$", done.stderr, flags=re.MULTILINE)
        why = said[0] if said else last_line(done.stderr) or last_line(done.stdout) or "it gave no reason"
        raise PreconditionError(f"ansible-playbook came to nothing: {printable(why, most=300)}")
    return [_said(host, ends.get(host.name)) for host in hosts]


def _variables(host: FleetHost) -> dict[str, object]:
    """Return how Ansible reaches a host. Raises UsageError for a pod: what is brought into one is gone with it."""
    if host.way == "kubectl":
        raise UsageError(f"{host.name} is a pod, which gets its virtune with its image", hint="leave it out")
    return {"ansible_connection": "local"} if host.way == "local" else ansible_variables(host)


def _command(
    place: Path, fleet: Fleet, hosts: Sequence[FleetHost], access: FleetAccess, wish: InstallWish
) -> list[str]:
    """Write what Ansible is to read, and return what calls it."""
    collection = next((one for one in PLACES if one.is_dir()), None)
    if collection is None:
        hint = "install virtune's own wheel, or call it in a checkout"
        raise MissingToolError("this virtune came without its Ansible collection", hint=hint)
    ours = {host.name: _variables(host) for host in hosts if not host.of_ansible}
    (place / "hosts.json").write_text(json.dumps({"all": {"hosts": ours}}))
    (place / "limit").write_text("".join(f"{host.name}\n" for host in hosts))
    asked: dict[str, object] = {
        "virtune_state": wish.state,
        "virtune_version": virtune.__version__,
        "virtune_upgrade": wish.upgrade,
        "virtune_python": wish.python,
        "virtune_here": [sys.executable, "-P", "-m", "virtune"],
        "virtune_wheelhouse": "" if wish.wheelhouse is None else str(wish.wheelhouse.absolute()),
        "virtune_results": str(place / "results.json"),
    }
    (place / "asked.json").write_text(json.dumps(asked))
    told = {
        "ANSIBLE_ROLES_PATH": str(collection / "roles"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_STDOUT_CALLBACK": "default",
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(place / "cp"),
        "ANSIBLE_TIMEOUT": str(CONNECT_SECONDS),
        "ANSIBLE_TASK_TIMEOUT": str(max(1, round(access.timeout_seconds))),
    }
    sources = [*([str(place / "hosts.json")] if ours else []), *fleet.ansible]
    words = [word for source in sources for word in ("-i", source)]
    if fleet.ansible and fleet.ssh_config:
        words += ["--ssh-common-args", f"-F {shlex.quote(str(fleet.ssh_config.absolute()))}"]
    words += ["--limit", f"@{place / 'limit'}", "--forks", str(access.parallel), "-e", f"@{place / 'asked.json'}"]
    playbook = str(collection / "playbooks" / "install.yml")
    known = [f"{name}={value}" for name, value in told.items()]
    return ["env", *known, find_ansible("ansible-playbook"), *words, playbook, *wish.options]


def _ends(path: Path, hosts: int) -> dict[str, _End]:
    """Return how it ended on every host that the role knows the end of."""
    try:
        found = read_json(read_bounded(path, hosts * _RESULT_MAX).decode())
        return {one.name: one for one in TypeAdapter(list[_End]).validate_python(found)}
    except (OSError, ValueError, ValidationError):
        return {}


def _said(host: FleetHost, end: _End | None) -> Installed | Unreached:
    if end is None:
        hint = "the same command tries it again"
        return Unreached(host=host, because="the connection was lost before it was done", hint=hint)
    if end.state != "failed":
        before, version = (printable(one or "", most=100) or None for one in (end.before, end.version))
        return Installed(name=host.name, state=end.state, before=before, version=version)
    known = error_in(end.because) or reason_in(end.because, host)
    if known is None:
        return Unreached(host=host, because=f"Ansible: {last_line(end.because) or 'it gave no reason'}")
    why, then = known
    return Unreached(host=host, because=printable(why, most=300), hint=then and printable(then, most=300))
