# SPDX-License-Identifier: Apache-2.0
"""`virtune list`: the studies in the store."""

import json

import click

from virtune.cli.common.options import json_option, no_store, store_option
from virtune.model.evidence import Damaged, Listed
from virtune.model.store_place import StorePlace


@click.command(name="list")
@json_option
@store_option
def command(as_json: bool, store: StorePlace) -> None:  # noqa: FBT001
    """List the stored studies, the newest first. Each measurement that virtune keeps is a study."""
    from virtune.cli.common.output import put
    from virtune.report.json.listing import listing_document
    from virtune.report.text.listing import listing
    from virtune.store.store import Store

    studies: tuple[Listed | Damaged, ...] = ()
    if no_store(store) is None:
        with Store(store, reading=True) as kept:
            studies = kept.list()
    if as_json:
        click.echo(json.dumps(listing_document(studies), indent=2))
    elif studies:
        put(listing(studies, store=str(store)))
    else:
        click.echo("no studies yet; `virtune compare` makes one", err=True)
