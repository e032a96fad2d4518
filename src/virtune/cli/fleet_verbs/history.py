# SPDX-License-Identifier: Apache-2.0
"""`virtune fleet runs` and `virtune fleet history`: what a fleet did over weeks."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virtune.cli.common.options import json_option
from virtune.cli.fleet_verbs import tell
from virtune.cli.fleet_verbs.run import fleet_place, fleet_store_option, folder_option, page_option

if TYPE_CHECKING:
    from virtune.model.errors import StorePlace


@click.command(name="runs")
@json_option
def runs(*, as_json: bool) -> int:
    """List the runs that are kept here, the newest last: when each began, what it ran, how its hosts ended.

    No host is asked: `open` are hosts whose end was not seen here. `virtune fleet status RUN` asks them.

    \b
    virtune fleet runs
    virtune fleet runs --json | jq '.runs[-1]'
    """  # noqa: D301 - \b is click's mark for lines to keep
    from virtune.flows.fleet.run import kept_runs
    from virtune.report.json.fleet import runs_document
    from virtune.report.pages.fleet import runs_lines

    found, damaged = kept_runs()
    return tell(runs_document(found, damaged), runs_lines(found, damaged), as_json=as_json)


@click.command(name="history")
@folder_option("--from", "The folder of gathered studies")
@fleet_store_option
@click.option("--host", "names", multiple=True, metavar="NAME", help="Only this host; repeatable.")
@click.option("--reference", default="", metavar="HOST",
              help="A host that nobody changes: what its level does is taken out of the others'.")  # fmt: skip
@page_option
@json_option
def history(*, folder: Path, store: "StorePlace | None", html: Path | None, as_json: bool, **asked: Any) -> int:
    """Say how the level of hosts changed over weeks, and which recorded facts changed with it.

    The question that was repeated most often is taken, and of each host all studies of it: the level of its baseline
    from study to study. A change is named where its own variation does not explain it.

    \b
    virtune fleet history --html weeks.html
    virtune fleet history --reference web1 --json | jq '.hosts[] | select(.changes != [])'
    """  # noqa: D301 - \b is click's mark for lines to keep
    from virtune.cli.common.result_output import require_report, write_page
    from virtune.flows.fleet.results import fleet_history
    from virtune.report.json.fleet import history_document
    from virtune.report.pages.fleet import history_lines

    require_report(html)
    found = fleet_history(fleet_place(folder, store), **asked)
    if html is not None:
        from virtune.report.html.page import fleet_history_page

        write_page(html, fleet_history_page(found))
    return tell(history_document(found), history_lines(found), as_json=as_json)
