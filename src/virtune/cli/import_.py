# SPDX-License-Identifier: Apache-2.0
"""`virtune explain import`: store fio results of other days and other hosts."""

import contextlib
import io
from pathlib import Path
from typing import IO, Any

import click

from virtune.bounded import read_up_to
from virtune.cli.common.options import json_option, store_option
from virtune.model.errors import StorePlace, UsageError

PIPED_MAX = 64 * 1024**2
"""The largest bundle that comes through a FIFO and is held in memory: a day of trials of 10 s has twice as much."""


@click.command(name="import")
@click.argument("inputs", metavar="FILE|FOLDER...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--arm", "arms", multiple=True, metavar="NAME",
              help="The arm of all files, or, given as often as there are files, of each.  "
                   "[default: from their names]")  # fmt: skip
@click.option("--baseline", metavar="ARM", help="The arm to compare the others with.  [default: the first]")
@click.option("--metric", default="iops", show_default=True, help="The metric of the verdicts, such as latency.p99.")
@click.option("--quiet", "-q", is_flag=True, help="Do not list the files.")
@json_option
@store_option
def import_(inputs: tuple[Path, ...], *, store: StorePlace, **asked: Any) -> None:
    """Keep fio results, or studies of another virtune, for `show`, `explain` and `compare`.

    FILE is what fio wrote: JSON, JSON+ or its text. Of a FOLDER every result in it is read, bench-fio's folders too.
    A file is an arm; files (and folders) whose names differ by a counter only, such as before-1.json and
    before-2.json, are repeats of one, and so are several runs in one file (FILE:NUMBER is one of them). Subfolders
    of a single FOLDER are arms where they hold the same jobs. Each fio job (each reporting group, where a file has
    several) is a workload. Files are kept byte for byte.

    A FILE.zip is a bundle of `virtune show export --bundle`: its study is stored as it was, once however often it is
    imported. Of one that has gone on since, the new trials are added.

    \b
    Examples:
      virtune explain import result.json
      virtune explain import before-*.json after-*.json
      virtune explain import bench-fio-output/
      virtune explain import monday/ tuesday/ --arm old --arm new
      virtune explain import study.zip
    """  # noqa: D301 - click's own mark for lines that are not to be rewrapped
    from virtune.cli.common.output import show_result
    from virtune.cli.common.result_output import ResultOutput
    from virtune.flows.stored.import_results import Terms, find_results, keep
    from virtune.flows.stored.show import current
    from virtune.model.metric import checked_metric
    from virtune.store.store import Store

    if all(path.suffix.lower() == ".zip" for path in inputs):
        _bundles(inputs, store)
        return

    def say(text: str) -> None:
        if not asked["quiet"]:
            click.echo(text, err=True)

    terms = Terms(baseline=asked["baseline"], metric=checked_metric(asked["metric"]))
    found = find_results(inputs, asked["arms"], each=False, say=say)
    with Store(store) as kept:
        kept_as = keep(found, terms, kept, say)
        record, result = current(kept, kept_as.study.id)
    show_result(result, record, ResultOutput(as_json=asked["as_json"]))


def _bundles(paths: tuple[Path, ...], store: StorePlace) -> None:
    """Import the studies of bundles."""
    from virtune.flows.stored.import_bundle import merge, read_bundle
    from virtune.flows.stored.show import exchanged
    from virtune.store.store import Store

    with contextlib.ExitStack() as opened:
        # one that is damaged is named before anything is stored
        bundles = [
            opened.enter_context(read_bundle(opened.enter_context(_opened(path)), source=str(path))) for path in paths
        ]
        kept = opened.enter_context(Store(store))
        for bundled in bundles:
            done = merge(bundled, kept)
            more = "" if done.new else "more "
            added = f"{done.attempts} {more}trials" if done.new or done.attempts else "nothing new"
            click.echo(f"{done.id}: {added}")
            for (number, _), whose in exchanged(kept, kept.get(done.id)):
                click.echo(f"{done.id}: trial {number} is invalid: its result is {whose}", err=True)


def _opened(path: Path) -> IO[bytes]:
    try:
        if path.is_file():
            return path.open("rb")
        content = read_up_to(path, PIPED_MAX + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
    if len(content) > PIPED_MAX:
        raise UsageError(f"{path} is larger than {PIPED_MAX // 1024**2} MiB", hint="keep it in a file first")
    return io.BytesIO(content)
