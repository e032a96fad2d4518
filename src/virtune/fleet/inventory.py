# SPDX-License-Identifier: Apache-2.0
"""Read which hosts a fleet has: a list of hosts or libvirt URIs, an ssh_config, `ansible-inventory --list`'s JSON."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from virtune.model.errors import UsageError
from virtune.model.fleet import KUBECTL, LOCAL, FleetHost
from virtune.model.text import printable

HOSTS_MAX = 5_000
"""The most hosts of an inventory; Proxmox and OpenStack name a few hundred to a cell."""

LABELS_MAX = 50
"""The most labels of a host."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}")
_TARGET = re.compile(
    r"(?:ssh://)?(?:[A-Za-z0-9_][A-Za-z0-9._-]{0,63}@)?"
    r"(?:[A-Za-z0-9_][A-Za-z0-9._:-]{0,252}|\[[0-9A-Fa-f:.%a-z]{2,60}\](?::\d{1,5})?)"
)
"""What ssh is called with: never an option (`-oProxyCommand=...`), and nothing that a shell would read."""

_REACH = re.compile(
    rf"{LOCAL}|{KUBECTL}[a-z0-9][a-z0-9-]{{0,62}}/[a-z0-9][a-z0-9.-]{{0,252}}(?:/[a-z0-9][a-z0-9-]{{0,62}})?"
)
"""What reaches a host without ssh."""

_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,62}")
_SSH_CONFIG = re.compile(r"^[ \t]*host(?:[ \t]|=)", re.IGNORECASE | re.MULTILINE)

_ALIASES = re.compile(r"^[ \t]*uri_aliases[ \t]*=[ \t]*\[", re.MULTILINE)
"""In libvirt.conf: `uri_aliases = ["kvm1=qemu+ssh://root@kvm1.example/system"]`."""

_ALIAS = re.compile(r"\"([^\"\n]*)\"|'([^'\n]*)'|\]")
_COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_URI = re.compile(
    r"([a-z]+)\+(?:ssh|libssh2?)://(?:([^@:/?]*)@)?(\[[^\]/]*\]|[^@:/?\[\]]+)(?::(\d{1,5}))?(/[^?]*)?(?:\?.*)?"
)
"""A libvirt URI over one of its transports that are SSH."""

Found = tuple[int, FleetHost]
"""A host, and the line of the file that names it (0 where it has no lines)."""


def read_inventory(text: str, *, source: str) -> tuple[FleetHost, ...]:
    """Return the hosts of an inventory; its content tells the format. `source` is what messages call it.

    Raises UsageError, one sentence with the line, for anything that is not such an inventory.
    """
    found: dict[str, Found] = {}
    for line, host in _read(text, source):
        if host.name in found:
            where = f" (lines {found[host.name][0]} and {line})" if line else ""
            raise UsageError(f"{source} names the host {host.name!r} twice{where}", hint="give each host one name")
        found[host.name] = line, host
        if len(found) > HOSTS_MAX:
            raise UsageError(f"{source} names more than {HOSTS_MAX} hosts")
    if not found:
        raise UsageError(f"{source} names no host", hint="a line such as `web1 rack=3` names one")
    return tuple(host for _, host in found.values())


def is_ssh_config(text: str) -> bool:
    """Whether a text is an ssh_config that names hosts."""
    return not text.lstrip().startswith("{") and _SSH_CONFIG.search(text) is not None


def _read(text: str, source: str) -> Iterator[Found]:
    if "\0" in text:
        raise UsageError(f"{source} is not a text file")
    if text.lstrip().startswith("{"):
        return _from_ansible(text, source)
    if _ALIASES.search(text):
        return _from_aliases(text, source)
    return (_from_ssh_config if is_ssh_config(text) else _from_list)(text, source)


def _from_list(text: str, source: str) -> Iterator[Found]:
    """A host a line: its name or its libvirt URI, where ssh is called with something else `ssh=TARGET`, where ssh
    does not reach it `reach=local` or `reach=kubectl:NAMESPACE/POD[/CONTAINER]`, and labels `KEY=VALUE`.
    """
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"{source}, line {number}"
        name, target, more = _by_uri(words[0], where) if "://" in words[0] else (words[0], words[0], [])
        labels = [*more, *(_label(word, where) for word in words[1:])]
        said = {key: value for key, value in reversed(labels) if key in ("ssh", "reach")}
        if len(said) > 1:
            raise UsageError(f"{where}: it is reached by ssh or otherwise", hint="leave ssh= or reach= out")
        mine = [one for one in labels if one[0] not in said]
        yield number, _host(name, said.get("ssh", target), mine, where, reach=said.get("reach", ""))


def _from_aliases(text: str, source: str) -> Iterator[Found]:
    """The aliases of a libvirt.conf whose URIs go over SSH; others are no hosts that this can reach."""
    bare = _COMMENT.sub("", text)
    begin = _ALIASES.search(bare)
    for found in _ALIAS.finditer(bare, begin.end() if begin else len(bare)):
        if found[0] == "]":
            return
        name, _, uri = (found[1] or found[2] or "").partition("=")
        where = f"{source}, alias {printable(name, most=60)!r}"
        if _URI.fullmatch(uri):
            _, target, labels = _by_uri(uri, where)
            yield 0, _host(name, target, labels, where)


def _by_uri(uri: str, where: str) -> tuple[str, str, list[tuple[str, str]]]:
    """Return the host of a libvirt URI, what ssh is called with, and as a label the URI that means the same there:
    `qemu+ssh://root@kvm1/system` is `qemu:///system` on kvm1. Parameters such as `?keyfile=` are left to ssh_config.
    """
    found = _URI.fullmatch(uri)
    if found is None:
        shown = printable(uri.rpartition("@")[2], most=60)  # what stands before it may be a password
        hint = "such as qemu+ssh://root@kvm1/system: a fleet runs virtune on its hosts, which goes over SSH only"
        raise UsageError(f"{where}: {shown!r} is no libvirt URI over SSH", hint=hint)
    driver, user, address, port, path = found.groups()
    return address, _target(address, user, port), [("libvirt", f"{driver}://{path or '/system'}")]


def _from_ssh_config(text: str, source: str) -> Iterator[Found]:
    """The names of its `Host` lines; a pattern (`*.example`, `!web1`) names none."""
    for number, line in enumerate(text.splitlines(), 1):
        key, _, rest = line.strip().replace("=", " ", 1).partition(" ")
        if key.lower() != "host":
            continue
        for name in rest.partition("#")[0].replace('"', " ").split():
            if not set(name) & set("*?!"):
                yield number, _host(name, name, [], f"{source}, line {number}")


def _from_ansible(text: str, source: str) -> Iterator[Found]:
    """The hosts of `ansible-inventory --list`, by the variables that say how SSH or kubectl reaches them.

    A group is the label `group.NAME=yes`; other labels are the mapping `virtune_labels` of a host. No other variable
    is kept, since variables may hold passwords.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"{source} begins as JSON and is not JSON", hint="`ansible-inventory --list`") from None
    variables = _table(_table(found.get("_meta"), source).get("hostvars"), source)
    groups: dict[str, list[str]] = {}
    for group, members in found.items():
        if group != "_meta" and isinstance(members, dict):
            mine = members.get("hosts", [])
            if not isinstance(mine, list) or not all(isinstance(one, str) for one in mine):
                raise UsageError(f"{source} has a group whose hosts are not a list of names")
            for name in mine:
                groups.setdefault(name, []).append(group)
    for name in dict.fromkeys([*groups, *variables]):
        mine = _table(variables.get(name, {}), source)
        where = f"{source}, host {printable(name, most=60)!r}"
        if (by := str(mine.get("ansible_connection", "ssh")).rpartition(".")[2]) not in _CONNECTIONS:
            what = f"{where}: it is reached neither by SSH nor by kubectl"
            raise UsageError(what, hint="`ansible-inventory --list --limit GROUP`")
        labels = [(f"group.{group}", "yes") for group in groups.get(name, []) if group not in ("all", "ungrouped")]
        own = mine.get("virtune_labels", {})
        labels += [_label(f"{key}={value}", where) for key, value in _table(own, source).items()]
        space, pod, inside = (mine.get(f"ansible_kubectl_{one}") for one in ("namespace", "pod", "container"))
        in_pod = "/".join([KUBECTL + str(space or "default"), str(pod), *([str(inside)] if inside else [])])
        reach = {"local": LOCAL, "kubectl": in_pod}.get(by, "")
        target = _target(str(mine.get("ansible_host", name)), mine.get("ansible_user"), mine.get("ansible_port"))
        yield 0, _host(name, target, labels, where, reach=reach)


_CONNECTIONS = ("ssh", "smart", "paramiko", "local", "kubectl")


def _target(address: str, user: object, port: object) -> str:
    """Write what ssh is called with; an IPv6 address with a port is told from it by brackets."""
    if port is not None and ":" in address and not address.startswith("["):
        address = f"[{address}]"
    whole = address if user is None else f"{user}@{address}"
    return whole if port is None else f"ssh://{whole}:{port}"


def _table(found: object, source: str) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        hint = "`ansible-inventory --list` writes it"
        raise UsageError(f"{source} is JSON, and not that of an Ansible inventory", hint=hint)
    return found


def _host(name: str, target: str, labels: Sequence[tuple[str, str]], where: str, *, reach: str = "") -> FleetHost:
    if not _NAME.fullmatch(name):
        hint = "ssh_config says a host's port and user; `NAME ssh=USER@ADDRESS` says what ssh is called with"
        raise UsageError(f"{where}: {printable(name, most=60)!r} is not the name of a host", hint=hint)
    if not _TARGET.fullmatch(target):
        raise UsageError(f"{where}: {printable(target, most=60)!r} is not what ssh can be called with")
    if reach and not _REACH.fullmatch(reach):
        hint = "reach=local, reach=kubectl:NAMESPACE/POD or reach=kubectl:NAMESPACE/POD/CONTAINER"
        raise UsageError(f"{where}: {printable(reach, most=60)!r} is no way to a host", hint=hint)
    # a host that ssh reaches may have the name by which this machine is meant
    target = reach or (f"ssh://{target}" if target == LOCAL else target)
    if len(labels) > LABELS_MAX:
        raise UsageError(f"{where}: more than {LABELS_MAX} labels")
    if twice := [key for key, count in Counter(key for key, _ in labels).items() if count > 1]:
        raise UsageError(f"{where}: the label {twice[0]!r} is given twice")
    return FleetHost(name=name, target=target, labels=tuple(sorted(labels)))


def _label(word: str, where: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals or not _LABEL.fullmatch(key) or not value or value != printable(value, most=200):
        hint = "labels are KEY=VALUE, such as rack=3"
        raise UsageError(f"{where}: {printable(word, most=60)!r} is not a label", hint=hint)
    return key, value


def chosen(hosts: Iterable[FleetHost], *, names: Sequence[str], labels: Sequence[str]) -> tuple[FleetHost, ...]:
    """Return the hosts of these names that have all of these labels; no names mean all hosts.

    Raises UsageError for an unknown name and where none is left.
    """
    every = {one.name: one for one in hosts}
    for name in names:
        if name not in every:
            raise UsageError(f"no host {name!r} in the inventory", hint="`virtune fleet inventory` lists them")
    wanted = {_label(word, "--label") for word in labels}
    named = (one for name, one in every.items() if not names or name in names)
    left = tuple(one for one in named if wanted <= {*one.labels})
    if not left:
        raise UsageError(f"no host has the label {' and '.join(labels)}", hint="`virtune fleet inventory` lists them")
    return left
