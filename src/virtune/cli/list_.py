# SPDX-License-Identifier: Apache-2.0
"""`virtune list`: the studies in the store."""

import json

import click

from virtune.cli.common.options import json_option, no_store, store_option
from virtune.model.errors import StorePlace
from virtune.model.evidence import Damaged, Listed

NEWEST = 200
"""Studies that are listed as text unless told otherwise: the store of a fleet has ten thousand."""


@click.command(name="list")
@click.option("--all", "every", is_flag=True, help=f"List all studies, not only the newest {NEWEST}.")
@json_option
@store_option
def command(*, every: bool, as_json: bool, store: StorePlace) -> None:
    """List the stored studies, the newest first. Each measurement that virtune keeps is a study."""
    from virtune.cli.common.output import put
    from virtune.report.json.listing import listing_document
    from virtune.report.pages.study import listing
    from virtune.store.store import Store

    studies: tuple[Listed | Damaged, ...] = ()
    older = 0
    if no_store(store) is None:
        with Store(store, reading=True) as kept:
            if every or as_json:
                studies = kept.list()
            else:
                page = kept.page(words="", kind="", limit=NEWEST, offset=0)
                studies, older = page.rows, page.total - len(page.rows)
    if as_json:
        # the standard library's writer: pydantic's fails on the id of a damaged study that is not text
        click.echo(json.dumps(listing_document(studies), indent=2))
    elif studies:
        put(listing(studies, store=str(store)))
        if older:
            click.echo(f"{older:,} older: `virtune list --all`", err=True)
    else:
        click.echo("no studies yet; `virtune compare` makes one", err=True)
