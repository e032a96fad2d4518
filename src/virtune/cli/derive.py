# SPDX-License-Identifier: Apache-2.0
"""`virtune derive`: the figures of stored studies, derived again by today's method."""

import json

import click

from virtune.cli.common.options import json_option, require_store, store_option
from virtune.model.errors import StorePlace

PARALLEL_MAX = 256


@click.command(name="derive")
@click.argument("studies", metavar="[STUDY]...", nargs=-1)
@click.option("--parallel", type=click.IntRange(1, PARALLEL_MAX), default=None, metavar="N",
              help="Processes that derive at once, at most.  [default: one for each CPU]")  # fmt: skip
@json_option
@store_option
def command(studies: tuple[str, ...], *, parallel: int | None, as_json: bool, store: StorePlace) -> int:
    """Derive the figures of stored studies from their raw captures by today's method: all studies, or each STUDY.

    `virtune show` does so for the study it shows. This does it for all at once, such as those of a fleet after a
    newer virtune has come. Older figures stay beside the new ones, and what is interrupted goes on where it was. Of a
    PostgreSQL database several machines may do this at once. Exit 1 when a study is damaged.

    \b
    virtune derive
    virtune derive --store postgresql://fleet@db.example/virtune --parallel 8
    """  # noqa: D301 - \b is click's mark for lines to keep
    from virtune.flows.stored.derive import DerivedStudy, derive_studies
    from virtune.model.measurement import METHOD
    from virtune.report.json.listing import derive_document
    from virtune.report.words import count_text
    from virtune.workers import cpus

    require_store(store, "last")
    found: list[DerivedStudy] = []
    for one in derive_studies(store, studies, processes=parallel or cpus()):
        found.append(one)
        if not as_json and (one.derived or one.unreadable or one.because):
            left = f", {count_text(one.unreadable, 'trial')} cannot be read and keep their figures"
            said = one.because or f"{count_text(one.derived, 'trial')} derived{left if one.unreadable else ''}"
            click.echo(f"{one.name}: {said}")
    rows = [(one.name, one.derived, one.current, one.unreadable, one.because) for one in found]
    if as_json:
        click.echo(json.dumps(derive_document(rows), indent=2))
    else:
        done = sum(one.derived for one in found)
        click.echo(f"{count_text(done, 'trial')} of {len(found)} studies derived by method {METHOD}")
    return 1 if any(one.because for one in found) else 0
