# SPDX-License-Identifier: Apache-2.0
"""`virtune fleet install` and `pack`: the virtune of many hosts, put there by Ansible."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virtune.cli.common.options import adding, json_option
from virtune.cli.fleet_verbs import access_of, access_options, fleet_of, inventory_options, progress, tell
from virtune.model.errors import UsageError

if TYPE_CHECKING:
    from virtune.model.fleet import Installed

_OF_VAULTS = ("--vault-password-file", "--vault-pass-file", "--vault-id")
_ASKING = ("-J", "--ask-vault-password", "--ask-vault-pass")
_WORDS = {"installed": "installed", "kept": "has it already:", "back": "put back", "remove": "removed"}

wheelhouse_option = adding(
    click.option("--wheelhouse", type=click.Path(path_type=Path, file_okay=False, exists=True), metavar="DIR",
                 help="Wheels of all that virtune needs, and pip's where this Python has none.  "
                      "[default: pip fetches them]"),
)  # fmt: skip


@click.command(name="install")
@click.argument("options", metavar="[-- OPTION...]", nargs=-1, type=click.UNPROCESSED)
@inventory_options
@wheelhouse_option
@click.option("--python", default="python3", show_default=True, metavar="PATH", help="The Python of the hosts.")
@click.option("--upgrade", is_flag=True, help="Replace another version, or install the same one again.")
@click.option("--back", is_flag=True, help="Put the version before back, and remove this one.")
@click.option("--remove", is_flag=True, help="Remove all that was installed so; studies stay.")
@access_options
@json_option
def install(options: tuple[str, ...], *, upgrade: bool, back: bool, remove: bool, as_json: bool, **words: Any) -> int:
    """Install this virtune on many hosts by Ansible. A host needs Python 3.11, and no network.

    `ansible-playbook` runs virtune's own role; what stands behind -- are its options. Root gets /opt/virtune/VERSION
    and the command /usr/local/bin/virtune, a user ~/.local/opt/virtune/VERSION and ~/.local/bin/virtune; nothing
    else is touched. A host that has another version is refused without --upgrade; --back puts that one back. Exit 1
    when a host failed.

    \b
    virtune fleet install -i hosts.txt
    virtune fleet install -i hosts.txt --upgrade -- --become --ask-become-pass
    virtune fleet install --ansible production.yml --back
    """  # noqa: D301 - \b is click's mark for lines to keep
    if sum((upgrade, back, remove)) > 1:
        raise UsageError("one of --upgrade, --back and --remove at a time")
    if options and not options[0].startswith("-"):
        raise UsageError(f"{options[0]!r} is no option of ansible-playbook", hint="`-i FILE` names the hosts")
    from virtune.flows.fleet.ask import hosts_of, parted
    from virtune.flows.fleet.install import InstallWish
    from virtune.flows.fleet.install import install as install_on
    from virtune.report.json.fleet import install_document
    from virtune.report.pages.fleet import lost_lines

    state = "previous" if back else "absent" if remove else "present"
    python, wheels = words["python"], words["wheelhouse"]
    wish = InstallWish(state=state, upgrade=upgrade, wheelhouse=wheels, python=python, options=options)
    fleet = replace(fleet_of(words), vault=tuple(_of_vaults(options)))
    hosts = hosts_of(fleet)
    progress(words)(f"ansible-playbook works on {len(hosts)} hosts")
    done, lost = parted(install_on(fleet, hosts, access_of(words), wish))
    lines = [*map(_installed, done), *lost_lines(lost, len(done))]
    return tell(install_document(done, lost), lines, as_json=as_json, failed=bool(lost))


def _of_vaults(options: Sequence[str]) -> Iterator[str]:
    """Yield the options that open Ansible's vaults: the inventory may be in one."""
    for number, word in enumerate(options):
        if word in _OF_VAULTS:
            yield from options[number : number + 2]
        elif word in _ASKING or word.partition("=")[0] in _OF_VAULTS:
            yield word


def _installed(one: "Installed") -> str:
    before = f", was {one.before}" if one.version and one.before not in (None, one.version) else ""
    return f"{one.name}: {_WORDS.get(one.state, one.state)} {one.version or one.before or ''}{before}".rstrip()


@click.command(name="pack")
@click.argument("platform")
@wheelhouse_option
def pack(platform: str, *, wheelhouse: Path | None) -> int:
    """Pack what a host of PLATFORM needs to run this virtune into an archive in the cache, and print its path.

    It has the modules of virtune and of all that it needs there, for the Ansible role to unpack (virtune_artefact).
    `fleet install` packs by itself.

    \b
    virtune fleet pack CPython-3.11-x86_64-glibc-2.36
    """  # noqa: D301 - \b is click's mark for lines to keep
    from virtune.fleet.artefact import artefact_for, platform_of

    click.echo(artefact_for(platform_of(platform), wheelhouse))
    return 0
