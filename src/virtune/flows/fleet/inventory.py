# SPDX-License-Identifier: Apache-2.0
"""The hosts of a fleet: read from the files and the Ansible sources that the user names."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from virtune.fleet.inventory import chosen, is_ssh_config, read_inventory
from virtune.fleet.ssh_settings import address_of
from virtune.model.errors import UsageError
from virtune.model.fleet import Address, FleetHost
from virtune.probe.reading import read_up_to
from virtune.shell import find, run

BYTES_MAX = 16 * 1024**2
"""The largest inventory: 5,000 hosts with 3 kB of variables each."""

_ANSIBLE_SECONDS = 120.0
"""A plugin of Ansible may ask a cloud for all its hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What the user named: files, Ansible sources, libvirt URIs, an ssh_config for all, and which hosts of them."""

    files: Sequence[Path] = ()
    ansible: Sequence[str] = ()
    libvirt: Sequence[str] = ()
    ssh_config: Path | None = None
    names: Sequence[str] = ()
    labels: Sequence[str] = ()


def hosts_of(fleet: Fleet) -> tuple[FleetHost, ...]:
    """Return the chosen hosts of a fleet. Raises UsageError with one sentence for what is no inventory."""
    others = [*fleet.ansible, *fleet.libvirt]
    files = fleet.files or ([fleet.ssh_config] if fleet.ssh_config and not others else [])
    if not files and not others:
        raise UsageError("no inventory", hint="`--inventory FILE` names a file with a host a line, or an ssh_config")
    every: dict[str, FleetHost] = {}
    for host in _all(fleet, files):
        if host.name in every:
            raise UsageError(f"two inventories name the host {host.name!r}", hint="give each host one name")
        every[host.name] = host
    return chosen(every.values(), names=fleet.names, labels=fleet.labels)


def _all(fleet: Fleet, files: Sequence[Path]) -> Iterator[FleetHost]:
    given = None if fleet.ssh_config is None else str(fleet.ssh_config.absolute())
    for path in files:
        text = _text_of(path)
        config = str(path.absolute()) if is_ssh_config(text) else given
        yield from (replace(host, config=config) for host in read_inventory(text, source=str(path)))
    if fleet.libvirt:
        named = read_inventory("\n".join(fleet.libvirt), source="--libvirt")
        yield from (replace(host, config=given) for host in named)
    for source in fleet.ansible:
        listed = [find("ansible-inventory"), "-i", source, "--list"]
        printed = run(listed, timeout_seconds=_ANSIBLE_SECONDS, locale="C.UTF-8")  # it refuses every other encoding
        yield from (replace(host, config=given) for host in read_inventory(printed.stdout, source=source))


def _text_of(path: Path) -> str:
    try:
        content = read_up_to(path, BYTES_MAX + 1)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        hint = "name a file with a host a line, or an ssh_config"
        raise UsageError(f"cannot read the inventory {path}: {why}", hint=hint) from None
    if len(content) > BYTES_MAX:
        raise UsageError(f"the inventory {path} has more than {BYTES_MAX // 1024**2} MiB")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise UsageError(f"the inventory {path} is not text in UTF-8") from None


def addressed(hosts: Sequence[FleetHost]) -> Iterator[tuple[FleetHost, Address]]:
    """Yield each host with where ssh would connect to; nothing is connected to."""
    for host in hosts:
        yield host, address_of(host)
