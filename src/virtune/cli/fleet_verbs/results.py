# SPDX-License-Identifier: Apache-2.0
"""`virtune fleet gather` and `virtune fleet report`: the studies of many hosts, brought here and put together."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virtune.cli.common.options import StoreType, json_option
from virtune.cli.fleet_verbs.hosts import FAILED, progress
from virtune.cli.fleet_verbs.options import Command, access_of, access_options, fleet_of, inventory_options
from virtune.model.errors import UsageError

if TYPE_CHECKING:
    from virtune.flows.fleet.results import FleetPlace
    from virtune.model.errors import StorePlace


def default_folder() -> Path:
    """Return where gathered studies are kept unless told otherwise."""
    from virtune.shell import data_directory

    return data_directory() / "fleet"


def folder_option(name: str, words: str) -> Callable[[Command], Command]:
    """Add the option that names the folder of gathered studies."""
    return click.option(
        name, "folder", type=click.Path(path_type=Path, file_okay=False), default=default_folder, metavar="DIR",
        help=f"{words}, a store for each host.  [default: fleet in your data directory]",
    )  # fmt: skip


def fleet_store_option(command: Command) -> Command:
    """Add the option that names one store for all hosts."""
    return click.option(
        "--store", type=StoreType(), default=None, metavar="FILE|URL",
        help="One store for the studies of all hosts instead: a SQLite file, or postgresql://USER@HOST/NAME.",
    )(command)  # fmt: skip


def fleet_place(folder: Path, store: "StorePlace | None") -> "FleetPlace":
    """Return where the studies of a fleet are. Raises UsageError where two places are named."""
    from virtune.flows.fleet.results import FleetFolder, FleetStore

    if store is None:
        return FleetFolder(folder)
    context = click.get_current_context()
    if context.get_parameter_source("folder") is not click.core.ParameterSource.DEFAULT:
        raise UsageError("two places for the studies", hint="name a folder, or --store")
    return FleetStore(store)


@click.command(name="gather")
@click.argument("studies", metavar="[STUDY]...", nargs=-1)
@inventory_options
@folder_option("--into", "Where the studies are kept")
@fleet_store_option
@access_options
@json_option
def gather(studies: tuple[str, ...], *, folder: Path, store: "StorePlace | None", as_json: bool, **words: Any) -> int:
    """Bring the studies of many hosts here: all, or each STUDY (an id or its beginning).

    Each host's studies go into DIR/HOST.sqlite, as they are, once however often they are gathered; `virtune show
    --store DIR/HOST.sqlite` shows them. With --store all are in one store, each as HOST/STUDY. Nothing changes on the
    hosts. Exit 1 when a host failed.

    \b
    virtune fleet gather -i hosts.txt
    virtune fleet gather -i hosts.txt --into ./fleet 20261122
    virtune fleet gather -i hosts.txt --store postgresql://fleet@db/virtune
    """  # noqa: D301 - \b is click's mark for lines to keep
    from virtune.flows.fleet.ask import hosts_of
    from virtune.flows.fleet.results import gather as gather_from
    from virtune.model.fleet import Unreached
    from virtune.report.json.fleet import GatheredHost, gather_document
    from virtune.report.pages.fleet import lost_lines

    hosts = hosts_of(fleet_of(words))
    found = gather_from(hosts, access_of(words), fleet_place(folder, store), studies=studies, say=progress(words))
    lost = [one for one in found if isinstance(one, Unreached)]
    done: list[GatheredHost] = [
        {
            "name": one.host.name,
            "store": str(one.store),
            "studies": [{"id": each.study, "attempts": each.attempts, "new": each.new} for each in one.studies],
        }
        for one in found
        if not isinstance(one, Unreached)
    ]
    if as_json:
        click.echo(json.dumps(gather_document(done, lost), indent=2))
        return FAILED if lost else 0
    for host in done:
        each = [f"{one['id']} ({one['attempts']} trials)" for one in host["studies"] if one["attempts"] or one["new"]]
        click.echo(f"{host['name']}: {', '.join(each) or 'nothing new'}")
    click.echo("\n".join(lost_lines(lost, len(done))))
    return FAILED if lost else 0


@click.command(name="report")
@folder_option("--from", "The folder of gathered studies")
@fleet_store_option
@click.option("--host", "names", multiple=True, metavar="NAME", help="Only this host; repeatable.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), default=None, metavar="FILE",
              help="Write the report with pictures as one HTML file.")  # fmt: skip
@json_option
def report(
    *, folder: Path, store: "StorePlace | None", names: tuple[str, ...], html: Path | None, as_json: bool
) -> None:
    """Say what the same study says on many gathered hosts.

    Does a setting help everywhere, and on the next host? Which host is odd, and what has it that the others have not?
    The question that was measured on the most hosts is taken, of each host its newest study of it.

    \b
    virtune fleet report
    virtune fleet report --from ./fleet --json | jq .effects
    virtune fleet report --html fleet.html
    """  # noqa: D301 - \b is click's mark for lines to keep
    if html is not None:
        from virtune.cli.common.writing import require_report

        require_report(html)
    from virtune.flows.fleet.results import fleet_report

    found = fleet_report(fleet_place(folder, store), names=names)
    if html is not None:
        from virtune.cli.common.writing import write_text
        from virtune.flows.reports.report import page_html
        from virtune.report.html.other_pages import fleet_report_page

        write_text(html, page_html(fleet_report_page(found)))
        click.echo(f"page: {html}", err=True)
    if as_json:
        from virtune.report.json.fleet import report_document

        click.echo(json.dumps(report_document(found), indent=2))
        return
    from virtune.report.pages.fleet import report_lines

    click.echo("\n".join(report_lines(found)))
