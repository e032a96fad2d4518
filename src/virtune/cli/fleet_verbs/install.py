# SPDX-License-Identifier: Apache-2.0
"""`virtune fleet install`: this virtune on many hosts, which need no network for it."""

import json
from pathlib import Path
from typing import Any

import click

from virtune.cli.common.options import json_option
from virtune.cli.fleet_verbs.hosts import FAILED, progress
from virtune.cli.fleet_verbs.options import access_of, access_options, fleet_of, inventory_options
from virtune.model.errors import UsageError


@click.command(name="install")
@inventory_options
@click.option("--wheelhouse", type=click.Path(path_type=Path, file_okay=False, exists=True), metavar="DIR",
              help="Wheels of pip and of all that virtune needs.  [default: fetched by pip, and kept]")  # fmt: skip
@click.option("--python", default="python3", show_default=True, metavar="PATH", help="The Python of the hosts.")
@click.option("--upgrade", is_flag=True, help="Replace another version, or install the same one again.")
@click.option("--back", is_flag=True, help="Put the version before back, and remove this one.")
@click.option("--remove", is_flag=True, help="Remove all that was installed so; studies stay.")
@access_options
@json_option
def install(
    *, wheelhouse: Path | None, python: str, upgrade: bool, back: bool, remove: bool, as_json: bool, **words: Any
) -> int:
    """Install this virtune on many hosts. Wheels are sent over SSH: a host needs Python 3.11, and no network.

    Each host gets an environment of its own in ~/.local/share/virtune-fleet and a command ~/.local/bin/virtune;
    nothing else is touched. A host that has another version is refused without --upgrade; --back puts that one back.
    Exit 1 when a host failed.

    \b
    virtune fleet install -i hosts.txt
    virtune fleet install -i hosts.txt --upgrade
    virtune fleet install -i hosts.txt --back
    """  # noqa: D301 - \b is click's mark for lines to keep
    if sum((upgrade, back, remove)) > 1:
        raise UsageError("one of --upgrade, --back and --remove at a time")
    from virtune.flows.fleet.ask import hosts_of
    from virtune.flows.fleet.install import InstallWish
    from virtune.flows.fleet.install import install as install_on
    from virtune.model.fleet import Unreached
    from virtune.report.json.fleet import install_document
    from virtune.report.pages.fleet import lost_lines

    wish = InstallWish(
        do="back" if back else "remove" if remove else "install",
        upgrade=upgrade,
        wheelhouse=wheelhouse,
        python=python,
    )
    found = install_on(hosts_of(fleet_of(words)), access_of(words), wish, say=progress(words))
    lost = [one for one in found if isinstance(one, Unreached)]
    done = [one for one in found if not isinstance(one, Unreached)]
    if as_json:
        click.echo(json.dumps(install_document(done, lost), indent=2))
        return FAILED if lost else 0
    for one in done:
        before = f", was {one.before}" if one.version and one.before not in (None, one.version) else ""
        click.echo(f"{one.host.name}: {_WORDS[one.state]} {one.version or one.before or ''}{before}".rstrip())
    click.echo("\n".join(lost_lines(lost, len(done))))
    return FAILED if lost else 0


_WORDS = {"installed": "installed", "kept": "has it already:", "back": "put back", "remove": "removed"}
