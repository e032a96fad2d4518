# SPDX-License-Identifier: Apache-2.0
"""`virtune explain` and `explain import`: read fio results and say what they mean, or store them."""

import contextlib
import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import click

from virtune.analyse.trial.explain import beside
from virtune.analyse.trial.explain import explain as said_of
from virtune.analyse.trial.measure import measurement_of, phases_of
from virtune.bounded import file_and_run, read_up_to
from virtune.cli.common.options import json_option, store_option
from virtune.cli.common.output import show
from virtune.cli.common.verb import Verb, verbs_and_files
from virtune.fio.results import LIMIT, read_runs, refuse_length, run_of, text_of
from virtune.model.errors import ReadError, StorePlace, UsageError
from virtune.model.measurement import FioResult
from virtune.model.remark import Remark
from virtune.model.text import printable
from virtune.report.json.explain import explained_document
from virtune.report.pages.explain import Concurrent, Explained, Flow, render


@click.command(name="explain", cls=Verb)
@click.argument("inputs", metavar="FILE|RUN|-...", nargs=-1, required=True, shell_complete=verbs_and_files)
@json_option
@store_option
def explain(inputs: tuple[str, ...], *, as_json: bool, store: StorePlace) -> None:
    """Read fio results, and those of DiskSpd and Vdbench, and say what they mean.

    FILE is what any fio wrote: JSON, JSON+ or its normal text, with or without a terminal's or a log's lines around
    it; DiskSpd's report of a Windows VM, as text or XML; or Vdbench's flatfile.html, summary.html or what it printed.
    `-` reads standard input. RUN is a study in the store (an id, the beginning of one, or `last`): the first trial of
    each of its arms, or the one trial that `RUN:NUMBER` names. Several are shown side by side, and so are jobs of one
    FILE that ran one after another, and runs that stand one after another in it: their figures are not added.
    `FILE:NUMBER` is one run of a FILE.

    \b
    Examples:
      virtune explain result.json
      fio job.fio | virtune explain -
      virtune explain before.txt after.txt
      virtune explain article.txt:2
      virtune explain last:3
    """  # noqa: D301 - click wants the escape itself
    explained = [one for name in inputs for given in load_input(name, store) for one in _explain(given)]
    together = tuple(remark for other in explained[1:] for remark in beside_each_other(explained[0], other))
    show(lambda: explained_document(explained, together), lambda: render(explained, together), as_json=as_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """The input behind a name. `at_once`: a trial of virtune, whose jobs all ran together. `only` is the one of its
    runs that is wanted; None for all.
    """

    shown: str
    text: str
    at_once: bool = False
    only: int | None = None


def load_input(name: str, store: StorePlace) -> list[Input]:
    """Return the input of a name: `-` is standard input, then a file or one run of it, then a study."""
    only = None
    try:
        if name == "-":
            content, shown = sys.stdin.buffer.read(LIMIT + 1), "standard input"
        else:
            path, only = file_and_run(Path(name))
            shown = printable(path.name)
            content = read_up_to(path, LIMIT + 1)
    except FileNotFoundError:
        return _from_store(name, store)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"cannot read {name!r}: {reason}", hint="give the path of a fio result") from None
    refuse_length(len(content))
    return [Input(shown=shown, text=text_of(content), only=only)]


def _from_store(name: str, store: StorePlace) -> list[Input]:
    from virtune.flows.stored.show import fio_outputs
    from virtune.store.store import Store

    unknown = UsageError(f"no file and no study {name!r}", hint="give the path of a fio result, a study, or -")
    study, _, number = name.partition(":")
    if not store.exists() or not (number.isdecimal() or number == "") or len(number) > 9:
        raise unknown
    with Store(store, reading=True) as kept:
        try:
            found = kept.find(study)
        except UsageError:
            raise unknown from None
        outputs = fio_outputs(kept, found, int(number) if number else None)
        own = not kept.get(found).study.imported
    return [Input(shown=label, text=text_of(content), at_once=own) for label, content in outputs]


def _explain(given: Input) -> Iterator[Explained]:
    try:
        runs = read_runs(given.text)
        only = None if given.only is None else run_of(runs, given.only)
    except ReadError as error:
        raise ReadError(f"{given.shown}: {error.message}", hint=error.hint) from None
    for number, run in enumerate(runs, 1):
        name = given.shown if len(runs) == 1 else f"{given.shown}:{number}"
        if run.states > 1:
            click.echo(f"{name}: {run.states} states of one run (--status-interval); the last is read", err=True)
        if only is None or only is run:
            yield explained(name, run.result, at_once=given.at_once)


def explained(name: str, result: FioResult, *, at_once: bool = False) -> Explained:
    """Derive a result's figures and remarks, separately for parts that are not known to have run together."""
    parts = (result,) if at_once else phases_of(result)
    return Explained(
        name=name,
        result=result,
        parts=tuple(_part(part) for part in parts),
        remarks=said_of(result, parts=len(parts)),
    )


def _part(result: FioResult) -> Concurrent:
    """Derive the figures of jobs that ran together, per direction and in total."""
    flows = [
        Flow(
            load=load,
            stream=stream,
            measurement=measurement_of(replace(result, loads=(replace(load, streams=(stream,)),))),
        )
        for load in result.loads
        for stream in load.streams
    ]
    return Concurrent(loads=result.loads, flows=tuple(flows), measurement=measurement_of(result))


def beside_each_other(first: Explained, other: Explained) -> Iterator[Remark]:
    """Compare two results, part by part where both have the same jobs one after another."""
    names = [[part.name for part in one.parts] for one in (first, other)]
    if len(names[0]) != len(names[1]) or (len(names[0]) > 1 and names[0] != names[1]):
        return
    for mine, theirs in zip(first.parts, other.parts, strict=True):
        remark = beside(replace(first.result, loads=mine.loads), replace(other.result, loads=theirs.loads))
        if remark is not None:
            who = f"`{mine.name}`: " if len(first.parts) > 1 else ""
            yield replace(remark, text=f"{who}{remark.text}")


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
    """Keep results of fio, DiskSpd or Vdbench, or studies of another virtune, for `show`, `explain` and `compare`.

    FILE is what fio wrote, JSON, JSON+ or its text, or a report of DiskSpd or Vdbench. Of a FOLDER every result in it
    is read, bench-fio's folders too, and of a folder of Vdbench its flatfile.html. A file is an arm; files (and
    folders) whose names differ by a counter only, such as before-1.json and before-2.json, are repeats of one, and so
    are several runs in one file (FILE:NUMBER is one of them). The files of a folder of HCIBench are VMs that ran at
    the same time, and one run. Subfolders of a single FOLDER are arms where they hold the same jobs. Each fio job
    (each reporting group, where a file has several) is a workload. Files are kept byte for byte.

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
    from virtune.cli.common.result_output import ResultOutput
    from virtune.cli.common.results import show_result
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
