# SPDX-License-Identifier: Apache-2.0
"""`virtune import`: store fio results of other days and other hosts."""

from pathlib import Path

import click

from virtune.cli.options import json_option, store_option


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
def command(
    inputs: tuple[Path, ...],
    arms: tuple[str, ...],
    baseline: str | None,
    metric: str,
    quiet: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
    store: Path,
) -> None:
    """Keep fio results that were made elsewhere, as a study for `show`, `explain` and `compare`.

    FILE is what fio wrote: JSON, JSON+ or its text. Of a FOLDER every result in it is read, bench-fio's folders too.
    A file is an arm; files (and folders) whose names differ by a counter only, such as before-1.json and
    before-2.json, are repeats of one. Subfolders of a single FOLDER are arms where they hold the same jobs. Each
    fio job (each reporting group, where a file has several) is a workload. Files are kept byte for byte.

    \b
    Examples:
      virtune import result.json
      virtune import before-*.json after-*.json
      virtune import bench-fio-output/
      virtune import monday/ tuesday/ --arm old --arm new
    """  # noqa: D301 - click's own mark for lines that are not to be rewrapped
    from virtune.cli.output import show_result
    from virtune.flows.find_results import find_results
    from virtune.flows.import_results import Terms, keep
    from virtune.flows.question import checked_metric
    from virtune.flows.show import current
    from virtune.model.study_options import OPTIONS
    from virtune.store.sqlite import Store

    def say(text: str) -> None:
        if not quiet:
            click.echo(text, err=True)

    terms = Terms(
        baseline=baseline,
        metric=checked_metric(metric),
        margin=OPTIONS["margin"].default,
        confidence=OPTIONS["confidence"].default,
    )
    found = find_results(inputs, arms, each=False, say=say)
    with Store(store) as kept:
        kept_as = keep(found, terms, kept, say)
        record, result = current(kept, kept_as.study.id)
    show_result(result, record, as_json=as_json, report=None)
