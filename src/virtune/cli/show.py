# SPDX-License-Identifier: Apache-2.0
"""`virtune show`, and below it `list`, `label` and `derive`: the studies in the store, what their owner says of them,
and their figures by today's method; `report` and `export`: one as a file with pictures, or for other programs.
"""

import contextlib
import json
import os
import pwd
import re
import socket
import stat
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virtune.cli.common import options
from virtune.cli.common.result_output import ResultOutput, fill, not_written, require_report, threshold_options
from virtune.cli.common.verb import Verb, verbs_and_files
from virtune.model.errors import MissingToolError, StorePlace, UsageError
from virtune.model.text import printable

if TYPE_CHECKING:
    from virtune.model.evidence import Damaged, Listed
    from virtune.model.study import Study
    from virtune.store.store import Store


def require_no_more(study: "Study", asked: dict[str, Any]) -> None:
    """Refuse options of comparisons for a search or a sweep, instead of ignoring them."""
    if asked["fail_if"] or asked["junit"]:
        raise UsageError(
            "results of tune and sweep have no --fail-if and no --junit",
            hint="a sweep has its --fail-if from its start on; a search has constraints, by --subject-to",
        )
    if study.sweep is not None and asked["markdown"] is not None:
        raise UsageError("a sweep has no --markdown", hint="`--report FILE` writes it as text")


def _require_captures_alone(trial: int | None, capture: str | None, others: dict[str, Any]) -> None:
    """Refuse of captures what only the study's result has."""
    if trial is None and capture is None:
        return
    given = [f"--{name.replace('_', '-')}" for name, value in others.items() if value]
    if given:
        raise UsageError(
            f"{'--capture prints' if trial is None else '--trial lists'} raw captures, which have no {given[0]}",
            hint="without --trial and --capture it is the study's result",
        )


@click.command(name="show", cls=Verb)
@click.argument("study", default="last", shell_complete=verbs_and_files)
@click.option("--trial", type=click.IntRange(1), default=None, help="List the raw captures of one trial.")
@click.option(
    "--capture",
    default=None,
    metavar="NAME",
    help="With --trial: print one capture, byte for byte; without: a job file that the study was asked with.",
)
@options.report_option
@threshold_options
@options.verbose_option
@options.json_option
@options.store_option
def show(study: str, *, trial: int | None, capture: str | None, store: StorePlace, **asked: Any) -> int:
    """Show STUDY (an id, the beginning of one, or `last`): table, verdicts, verified settings."""
    from virtune.cli.common.results import proof_shown, show_result, show_sweep, show_tuning
    from virtune.flows.stored.show import current

    report, verbose = asked.pop("report"), asked["verbose"]
    _require_captures_alone(trial, capture, {"json": asked["as_json"], "report": report, "verbose": verbose, **asked})
    out = ResultOutput.read({**asked})
    with options.stored(store, study) as (kept, name):
        if trial is None and capture is not None:
            return _job_file(kept.get(name).study, capture)
        if trial is not None:
            return _captures(kept, name, trial, capture)
        require_report(report)  # only now: where there is no such study, no empty report is left
        out = replace(out, report=report)
        record = kept.get(name)
        if verbose:
            options.say_options(record.study)
        if record.facts_damaged:
            click.echo(f"the facts of this study's host are damaged in {store}, and left out", err=True)
        if record.study.search is not None:
            from virtune.flows.run.tune import finished_tuning

            require_no_more(record.study, asked)
            show_tuning(kept, finished_tuning(kept, name), out)
            return 0
        if record.study.sweep is not None:
            from virtune.flows.run.sweep import finished_sweep

            require_no_more(record.study, asked)
            show_sweep(kept, finished_sweep(kept, name), out)
            return 0
        record, result = current(kept, name)
        proved = proof_shown(kept, record, result)
    return show_result(result, record, out, proved=proved)


def _captures(kept: "Store", name: str, trial: int, capture: str | None) -> int:
    """Write one capture of a trial, or list them all."""
    from virtune.cli.common.output import put
    from virtune.flows.stored.show import captures_of
    from virtune.report.render.terminal import Table, right

    captures = captures_of(kept, name, trial, capture)
    if capture is not None:
        return _written(captures[0].content)
    rows = [(printable(one.name), f"{len(one.content):,} bytes") for one in captures]
    put(Table(["capture", *right("size")], rows))
    click.echo(f"\n`virtune show {name} --trial {trial} --capture NAME` prints one", err=True)
    return 0


def _job_file(study: "Study", name: str) -> int:
    """Write a job file that was one of the study's workloads."""
    from virtune.report.reproduce import job_file_of

    files = {job_file_of(one): one.verbatim for one in study.workloads if one.verbatim is not None}
    if name not in files:
        beside = f"; the study's job files are {', '.join(files)}" if files else ""
        raise UsageError(f"--capture needs the number of its trial{beside}", hint="`--trial 1 --capture fio.json`")
    return _written(files[name].encode())


def _written(content: bytes) -> int:
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()
    return 0


NEWEST = 200
"""Studies that are listed as text unless told otherwise: the store of a fleet has ten thousand."""


@click.command(name="list")
@click.option("--all", "every", is_flag=True, help=f"List all studies, not only the newest {NEWEST}.")
@options.json_option
@options.store_option
def list_(*, every: bool, as_json: bool, store: StorePlace) -> None:
    """List the stored studies, the newest first. Each measurement that virtune keeps is a study."""
    from virtune.cli.common.output import put
    from virtune.report.json.listing import listing_document
    from virtune.report.pages.study import listing
    from virtune.store.store import Store

    studies: tuple[Listed | Damaged, ...] = ()
    older = 0
    if options.no_store(store) is None:
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
            click.echo(f"{older:,} older: `virtune show list --all`", err=True)
    else:
        click.echo("no studies yet; `virtune compare` makes one", err=True)


def _tag(text: str) -> str:
    """Return a word by which studies are found without the `@` that finds it."""
    word = text.removeprefix("@")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}", word):
        raise ValueError(f"{text!r} is no tag: letters, digits, `.`, `_` and `-`, at most 32")
    return word


_TAG = options.Written("tag", _tag)


@click.command(name="label")
@click.argument("study", default="last", shell_complete=verbs_and_files)
@click.option("--title", default=None, metavar="TEXT", help="What was to be found out; an empty one takes it away.")
@click.option("--note", default=None, metavar="TEXT", help="What is to be known of it; an empty one takes it away.")
@click.option("--tag", "tags", type=_TAG, multiple=True, metavar="TAG",
              help="A tag: `@TAG` is the newest study with it; repeatable.")  # fmt: skip
@click.option("--untag", type=_TAG, multiple=True, metavar="TAG", help="Take a tag away; repeatable.")
@options.store_option
def label(
    study: str,
    *,
    title: str | None,
    note: str | None,
    tags: tuple[str, ...],
    untag: tuple[str, ...],
    store: StorePlace,
) -> None:
    """Give STUDY (an id, `last`, `@TAG`) a title, a note or tags; without an option, show them.

    `@TAG` stands for a study wherever one is named: the newest that has the tag, of this host where it has one. So a
    job compares with the last run that was good, and makes itself the next one:

    \b
      virtune compare @good last --fail-if 'iops < -3%' && virtune show label last --tag good
    """  # noqa: D301 - \b is click's mark for lines to keep
    from virtune.report.words import names_text

    def change(found: "Study") -> "Study":
        kept = [one for one in (*found.tags, *tags) if one not in untag]
        return replace(
            found,
            title=found.title if title is None else title,
            note=found.note if note is None else note,
            tags=tuple(dict.fromkeys(kept)),
        )

    if max(len(title or ""), len(note or "")) > _LABEL_MAX:
        raise UsageError(f"a title and a note have at most {_LABEL_MAX} characters each")
    asked = (title, note) != (None, None) or tags or untag
    with options.stored(store, study, reading=not asked) as (kept, name):
        found = kept.label(name, change) if asked else kept.get(name, distributions=False).study
    arms = names_text([one.name for one in found.arms], _ARMS_SAID)
    click.echo(printable(f"{name}, {found.kind.value} of {arms}: {found.words or 'no title, no note and no tags'}"))


_ARMS_SAID = 4

_LABEL_MAX = 200
"""Characters of a title or a note."""

PARALLEL_MAX = 256


@click.command(name="derive")
@click.argument("studies", metavar="[STUDY]...", nargs=-1)
@click.option("--parallel", type=click.IntRange(1, PARALLEL_MAX), default=None, metavar="N",
              help="Processes that derive at once, at most.  [default: one for each CPU]")  # fmt: skip
@click.option("--cluster", default="", metavar="tls://HOST:PORT",
              help="Let the workers of this Dask cluster derive instead; needs a PostgreSQL database.")  # fmt: skip
@options.json_option
@options.store_option
def derive(studies: tuple[str, ...], *, parallel: int | None, cluster: str, as_json: bool, store: StorePlace) -> int:
    """Derive the figures of stored studies from their raw captures by today's method: all studies, or each STUDY.

    `virtune show` does so for the study it shows. This does it for all at once, such as those of a fleet after a
    newer virtune has come. Older figures stay beside the new ones, and what is interrupted goes on where it was. Of a
    PostgreSQL database several machines may do this at once, or the workers of a Dask cluster, of which one that is
    killed loses nothing. Exit 1 when a study is damaged.

    \b
    virtune show derive
    virtune show derive --store postgresql://fleet@db.example/virtune --parallel 8
    virtune show derive --store postgresql://db.example/virtune --cluster tls://dask.example:8786
    """  # noqa: D301 - \b is click's mark for lines to keep
    from virtune.flows.stored.derive import derive_studies
    from virtune.model.evidence import DerivedStudy
    from virtune.model.measurement import METHOD
    from virtune.report.json.listing import derive_document
    from virtune.report.words import count_text
    from virtune.workers import cpus

    if cluster and parallel:
        raise UsageError(
            "--parallel counts processes of this machine, and a cluster has its own", hint="leave one out"
        )
    options.require_store(store, "last")
    found: list[DerivedStudy] = []
    for one in derive_studies(store, studies, processes=parallel or cpus(), cluster=cluster):
        found.append(one)
        if not as_json and (one.derived or one.unreadable or one.because):
            left = f", {count_text(one.unreadable, 'trial')} cannot be read and keep their figures"
            said = one.because or f"{count_text(one.derived, 'trial')} derived{left if one.unreadable else ''}"
            click.echo(f"{one.name}: {said}")
    if as_json:
        click.echo(json.dumps(derive_document(found), indent=2))
    else:
        done = sum(one.derived for one in found)
        click.echo(f"{count_text(done, 'trial')} of {len(found)} studies derived by method {METHOD}")
    return 1 if any(one.because for one in found) else 0


MARK = b'<meta name="generator" content="virtune">'
"""What a page begins with, so that only such a one is replaced by another."""

_HEAD_BYTES = 4096


@click.command(name="report")
@click.argument("study", default="last")
@click.option("--output", "-o", type=click.Path(path_type=Path, dir_okay=False), default=None,
              help="The HTML file.  [default: virtune-STUDY.html]")  # fmt: skip
@click.option("--svg", type=click.Path(path_type=Path, file_okay=False), default=None, metavar="DIR",
              help="Write each picture as SVG into this directory instead.")  # fmt: skip
@click.option("--png", type=click.Path(path_type=Path, file_okay=False), default=None, metavar="DIR",
              help="Write each picture as PNG into this directory instead.")  # fmt: skip
@click.option("--spec", is_flag=True, help="Print the Vega-Lite specifications of the pictures as JSON instead.")
@click.option("--interactive", is_flag=True,
              help="Add a script to the HTML file that shows values under the pointer and zooms; 1 MB more. Without"
                   " scripts the file stays as it is.")  # fmt: skip
@click.option("--open", "shows", is_flag=True, help="Show the HTML file in your browser.")
@options.store_option
def report(study: str, *, output: Path | None, shows: bool, store: StorePlace, **asked: Any) -> int:
    """Write STUDY (an id, the beginning of one, or `last`) as one HTML file with its pictures.

    The file needs no network and no script: the finding and its intervals first, then pictures of latency, time and
    cost, each with its numbers, and the proof.

    \b
    Examples:
      virtune show report --open
      virtune show report last -o result.html
      virtune show report 20261122 --png pictures/
    """  # noqa: D301 - click's own mark for lines that are not to be rewrapped
    import webbrowser

    from virtune.flows.reports.report import charts, pngs, report_html, svgs

    svg, png, interactive = asked["svg"], asked["png"], asked["interactive"]
    if sum(one is not None for one in (output, svg, png)) + asked["spec"] > 1:
        raise UsageError("one of -o, --svg, --png and --spec at a time")
    other = {".md": "--markdown FILE", ".json": "--json", ".png": "report --png DIR", ".svg": "report --svg DIR"}
    if output is not None and output.suffix.lower() in other:
        way = f"`virtune show {other[output.suffix.lower()]}`"
        raise UsageError(f"the report is HTML, which is not what the name of {output} says", hint=way)
    if (interactive or shows) and (svg or png or asked["spec"]):
        raise UsageError("--interactive and --open are for the HTML file")
    with options.stored(store, study) as (kept, name):
        if asked["spec"]:
            click.echo(json.dumps({chart.name: chart.spec for chart in charts(kept, name)}, indent=2))
            return 0
        if svg is not None or png is not None:
            made = charts(kept, name)
            kind, folder = ("svg", svg) if svg is not None else ("png", png)
            folder.mkdir(parents=True, exist_ok=True)
            contents = (text.encode() for text in svgs(made)) if svg is not None else pngs(made)
            for chart, content in zip(made, contents, strict=True):
                _write(folder / f"{chart.name}.{kind}", content)
            return 0
        content = report_html(kept, name, interactive=interactive).encode()
        output = output or Path(f"virtune-{name}.html")
        _write(output, content, "the result with pictures, for a browser: ")
    if shows and not webbrowser.open(output.absolute().as_uri()):
        click.echo("no browser is found here: copy the file to where one is", err=True)
    return 0


def _write(path: Path, content: bytes, what: str = "") -> None:
    """Write a new file, or replace a page of virtune's; anything else that is there is left as it is. `what` is said
    before its name.
    """
    made = not os.path.lexists(path)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", hint="choose another name") from None
    with os.fdopen(descriptor, "r+b") as file:
        there = os.fstat(file.fileno())
        if not stat.S_ISREG(there.st_mode) or (there.st_size and MARK not in file.read(_HEAD_BYTES)):
            raise UsageError(f"{path} exists and is not a report", hint="choose another name, or remove it")
        fill(file.fileno(), content, path, made=made)
    click.echo(f"{what}{path}", err=True)


TEXTFILE = "virtune.prom"


@click.command(name="export")
@click.argument("study", default="last")
@click.option("--csv", type=click.Path(path_type=Path, dir_okay=False), default=None, metavar="FILE",
              help="Write every measured value to this new file instead of stdout.")  # fmt: skip
@click.option("--parquet", type=click.Path(path_type=Path, dir_okay=False), default=None, metavar="FILE",
              help="Write the same as a new Parquet file, with types.")  # fmt: skip
@click.option("--bundle", type=click.Path(path_type=Path, dir_okay=False), default=None, metavar="FILE.zip",
              help="Write result, measurements, facts, raw captures and report to this new file; to stdout without "
                   "report for `-`. It names this host, its paths and VMs, unless --anonymous is given.")  # fmt: skip
@click.option("--anonymous", is_flag=True,
              help="Replace names in every file of the bundle: hosts, users, VMs, paths, volumes, serial numbers, "
                   "UUIDs, MAC and IP addresses. The same name gets the same word everywhere.")  # fmt: skip
@click.option("--hide", multiple=True, metavar="NAME",
              help="With --anonymous: a further name to replace, such as that of a company. Repeatable.")  # fmt: skip
@click.option("--textfile", metavar="DIR", default=None, type=click.Path(path_type=Path, exists=True),
              help=f"Write the store's figures to DIR/{TEXTFILE} for Prometheus' node_exporter.")  # fmt: skip
@options.store_option
def export(study: str, *, csv: Path | None, parquet: Path | None, bundle: Path | None, anonymous: bool,
            hide: tuple[str, ...], textfile: Path | None, store: StorePlace) -> None:  # fmt: skip
    """Export STUDY (an id, the beginning of one, or `last`) for other programs; CSV to stdout by default.

    One row for each attempt and metric, in base units (ns, bytes, 1/s, CPU seconds per I/O).

    \b
    Examples:
      virtune show export > measurements.csv
      virtune show export last --parquet measurements.parquet
      virtune show export 20261122 --bundle study.zip
      virtune show export last --bundle study.zip --anonymous --hide example-corp
      virtune show export --textfile /var/lib/prometheus/node-exporter
    """  # noqa: D301 - click's own mark for lines that are not to be rewrapped
    from virtune.flows.reports import export
    from virtune.store.store import Store

    if sum(one is not None for one in (csv, parquet, bundle, textfile)) > 1:
        raise UsageError("one of --csv, --parquet, --bundle and --textfile at a time")
    if (anonymous and bundle is None) or (hide and not anonymous):
        raise UsageError("--anonymous goes with --bundle, and --hide with --anonymous")
    options.require_store(store, study)
    with Store(store, reading=True) as kept:
        if textfile is not None:
            from virtune.flows.reports.metrics import exposition

            _replace(textfile / TEXTFILE, exposition(kept)[0])
            return
        name = kept.find(study)
        if bundle is not None and anonymous:
            names = [*_own_names(), *(("name", one) for one in hide)]
            with export.anonymous_copy(kept, name, names) as (copy, left):
                _create(bundle, export.bundle(copy, name, pages=_can_draw()))
            _warn(left)
        elif bundle == Path("-"):
            sys.stdout.buffer.write(export.bundle(kept, name, pages=False))
        elif bundle is not None:
            _create(bundle, export.bundle(kept, name, pages=_can_draw()))
        elif parquet is not None:
            _create(parquet, export.measurements_parquet(kept, name))
        elif csv is not None:
            _create(csv, export.measurements_csv(kept, name).encode())
        else:
            click.echo(export.measurements_csv(kept, name), nl=False)


def _own_names() -> list[tuple[str, str]]:
    """Return the names of this host and this user, which evidence may hold without saying what they are."""
    host = socket.gethostname()
    names = [("host", host), ("host", host.partition(".")[0])]
    with contextlib.suppress(KeyError):
        names.append(("user", pwd.getpwuid(os.getuid()).pw_name))
    return names


def _warn(left: list[str]) -> None:
    """Say which names may be left as words."""
    click.echo(
        "names are recognised by their place and form: look through the bundle before you give it away", err=True
    )
    if left:
        words = ", ".join(repr(printable(one, most=40)) for one in left[:8])
        click.echo(f"replaced only where they stand as names, since virtune uses the words too: {words}", err=True)


def _can_draw() -> bool:
    from virtune.flows.reports.report import require_libraries

    try:
        require_libraries()
    except MissingToolError as error:
        click.echo(f"without the report: {error.message}", err=True)
        return False
    return True


def _create(path: Path, content: bytes) -> None:
    """Write a new file; one that is there is left as it is."""
    try:
        with path.open("xb") as file:
            fill(file.fileno(), content, path, made=True)
    except FileExistsError:
        raise UsageError(f"{path} exists", hint="choose another name, or remove it") from None
    except OSError as error:
        raise not_written(path, error) from None
    click.echo(str(path), err=True)


def _replace(path: Path, content: bytes) -> None:
    """Replace a file at once, so that its reader sees the old or the new one whole."""
    part: Path | None = None
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        part = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o644)  # the exporter is another user's
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        part.replace(path)
    except OSError as error:
        if part is not None:
            part.unlink(missing_ok=True)
        raise not_written(path, error) from None
