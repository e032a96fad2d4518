# SPDX-License-Identifier: Apache-2.0
"""`virtune fleet run`, `status`, `gather`, `report`: a study on many hosts, and what they say together."""

import contextlib
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import click

from virtune.cli.common.options import SECONDS, Command, StoreType, adding, in_data, json_option
from virtune.cli.fleet_verbs import FAILED, access_of, access_options, fleet_of, inventory_options, progress, tell
from virtune.model.errors import Interrupted, UsageError

if TYPE_CHECKING:
    from virtune.flows.fleet.ask import FleetAccess
    from virtune.flows.fleet.results import FleetPlace
    from virtune.flows.fleet.run import Carrying
    from virtune.model.errors import StorePlace
    from virtune.model.fleet import FleetRun, FleetTask, FleetTuning, GatheredHost, TaskProgress
    from virtune.store.progress import RunProgress


def folder_option(name: str, words: str) -> Callable[[Command], Command]:
    """Add the option that names the folder of gathered studies."""
    return click.option(
        name, "folder", type=click.Path(path_type=Path, file_okay=False), default=in_data("fleet"), metavar="DIR",
        help=f"{words}, a store for each host.  [default: fleet in your data directory]",
    )  # fmt: skip


fleet_store_option = click.option(
    "--store", type=StoreType(), default=None, metavar="FILE|URL",
    help="One store for the studies of all hosts instead: a SQLite file, or postgresql://USER@HOST/NAME.",
)  # fmt: skip


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
    from virtune.flows.fleet.ask import hosts_of, parted
    from virtune.flows.fleet.results import gather as gather_from
    from virtune.report.json.fleet import gather_document
    from virtune.report.pages.fleet import lost_lines

    hosts = hosts_of(fleet_of(words))
    place = fleet_place(folder, store)
    found, lost = parted(gather_from(hosts, access_of(words), place, studies=studies, say=progress(words)))
    lines = [*map(_gathered, found), *lost_lines(lost, len(found))]
    return tell(gather_document(found, lost), lines, as_json=as_json, failed=bool(lost))


def _gathered(host: "GatheredHost") -> str:
    each = [f"{one.id} ({one.attempts} trials)" for one in host.studies if one.attempts or one.new]
    return f"{host.name}: {', '.join(each) or 'nothing new'}"


page_option = click.option("--html", type=click.Path(path_type=Path, dir_okay=False), default=None, metavar="FILE",
                           help="Write the report with pictures as one HTML file.")  # fmt: skip


@click.command(name="report")
@folder_option("--from", "The folder of gathered studies")
@fleet_store_option
@click.option("--host", "names", multiple=True, metavar="NAME", help="Only this host; repeatable.")
@page_option
@json_option
def report(
    *, folder: Path, store: "StorePlace | None", names: tuple[str, ...], html: Path | None, as_json: bool
) -> int:
    """Say what the same study says on many gathered hosts.

    Does a setting help everywhere, and on the next host? Which host is odd, and what has it that the others have not?
    The question that was measured on the most hosts is taken, of each host its newest study of it.

    \b
    virtune fleet report
    virtune fleet report --from ./fleet --json | jq .effects
    virtune fleet report --html fleet.html
    """  # noqa: D301 - \b is click's mark for lines to keep
    from virtune.cli.common.result_output import require_report, write_page
    from virtune.flows.fleet.results import fleet_report
    from virtune.report.json.fleet import report_document
    from virtune.report.pages.fleet import report_lines

    require_report(html)
    found = fleet_report(fleet_place(folder, store), names=names)
    if html is not None:
        from virtune.report.html.page import fleet_report_page

        write_page(html, fleet_report_page(found))
    return tell(report_document(found), report_lines(found), as_json=as_json)


begin_options = adding(
    click.option("--shares", default="shares", show_default=True, metavar="LABEL",
                 help="Hosts with one value of this label share a back end and are never measured at once. NFS, Ceph,"
                      " iSCSI, FC, NVMe over a network and shared disks are seen without it."),
    click.option("--seed", type=int, default=0, show_default=True, help="Seed of the hosts' random order."),
    click.option("--patience", type=SECONDS, default=600.0, metavar="TIME",
                 help="How long a lost or stuck host is waited for; its study goes on.  [default: 10m]"),
    click.option("--stuck", type=click.Choice(["wait", "stop"]), default="wait", show_default=True,
                 help="What becomes of a study in which nothing happens any more."),
    click.option("--again", default=None, metavar="RUN", help="Go on with a run: what still runs is found again."),
    folder_option("--into", "Where the studies are kept"),
    fleet_store_option,
)  # fmt: skip
"""The options of what runs studies on many hosts."""


@click.command(name="run", context_settings={"allow_interspersed_args": False})
@click.argument("words", metavar="VERB [OPTION]...", nargs=-1, type=click.UNPROCESSED)
@inventory_options
@click.option("--batch", type=click.IntRange(1), default=None, metavar="N",
              help="Measure so many hosts, then the reference host, then the next.  [default: all]")  # fmt: skip
@click.option("--reference", default="", metavar="HOST",
              help="Measure this host before, between and after batches, to see what changed meanwhile.")  # fmt: skip
@begin_options
@access_options
@json_option
def run(words: tuple[str, ...], *, again: str | None, as_json: bool, **asked: Any) -> int:
    """Run the same study on many hosts, and gather the results.

    VERB is compare, check, measure, tune, sweep or study, with its options. On each host virtune itself runs it,
    detached: it goes on when the connection or this virtune is gone, and is found again by --again. --parallel hosts
    are measured at once, in random order, and never two that share a back end. Exit 1 when a host failed.

    \b
    virtune fleet run -i hosts.txt compare --vary disk.aio=threads,io_uring
    virtune fleet run -i hosts.txt --reference web1 --batch 5 check
    virtune fleet run --again last
    """  # noqa: D301 - \b is click's mark for lines to keep
    from virtune.flows.fleet.results import drift_of
    from virtune.flows.fleet.run import left_seconds, meet, run_fleet, sharing
    from virtune.model.fleet import TaskState
    from virtune.report.json.fleet import run_document
    from virtune.report.pages.fleet import ended_lines, planned_line

    if again is not None and words:
        raise UsageError("--again goes on with a run, which has its study already", hint="leave one out")
    run_ = _planned(words, asked) if again is None else _found(again)
    carrying, shown = carrying_of(run_, asked), ShownRun(run_, quiet=asked["quiet"] or as_json)
    try:
        with kept(shown):
            shown.run = run_ = (met := meet(run_, carrying.access)).run
            click.echo(planned_line(run_, left_seconds(run_, met.refused_tasks), sharing(run_)), err=True)
            with shown.table():
                found = run_fleet(met, carrying, say=shown.say)
    except KeyboardInterrupt:
        raise interrupted(run_, "run") from None
    drift = drift_of(run_, found, carrying.place)
    lines = ended_lines(run_, found, drift, str(carrying.place))
    failed = any(one.state is not TaskState.FINISHED for one in found.values())
    return tell(run_document(run_, found, drift), lines, as_json=as_json, failed=failed)


def _found(again: str) -> "FleetRun":
    from virtune.flows.fleet.run import RUNS

    found = RUNS.find(again)
    if found.search is not None:
        hint = f"`virtune fleet tune --again {found.name}` goes on with it"
        raise UsageError(f"{found.name} is a search", hint=hint)
    return found


def interrupted(run_: "FleetRun", verb: str) -> Interrupted:
    """Return what is said of a run that was interrupted here, and which verb goes on with it."""
    from virtune.flows.fleet.run import OpenTasks

    noted, again = OpenTasks(run_), f"`{shlex.join(('virtune', 'fleet', verb, '--again', run_.name))}`"
    if any(task in noted for task in run_.tasks):
        hint = f"{again} waits for them, `fleet status {run_.name} --stop` ends them"
        return Interrupted("interrupted: the studies that began go on on their hosts", hint=hint)
    begun = not all(noted.is_new(task) for task in run_.tasks)
    said = "no study runs on a host now" if begun else "no study had begun on any host"
    return Interrupted(f"interrupted: {said}", hint=f"{again} {'goes on' if begun else 'begins them'}")


def access_for(run_: "FleetRun", asked: dict[str, Any]) -> "FleetAccess":
    """Return how the hosts of a run are asked: by the virtune that began it, unless another is named."""
    named = asked["virtune"] if asked["virtune"] != "virtune" else run_.virtune
    return access_of({**asked, "virtune": named})


def carrying_of(run_: "FleetRun", asked: dict[str, Any]) -> "Carrying":
    """Return how the tasks of a run are followed by the options of a verb that runs studies."""
    from virtune.flows.fleet.run import Carrying

    return Carrying(
        access=access_for(run_, asked),
        place=fleet_place(asked["folder"], asked["store"]),
        patience_seconds=asked["patience"],
        stop_stuck=asked["stuck"] == "stop",
    )


def _planned(words: tuple[str, ...], asked: dict[str, Any]) -> "FleetRun":
    from virtune.flows.fleet.ask import hosts_of
    from virtune.flows.fleet.run import FleetPolicy, plan_run

    named = {name: asked[name] for name in ("batch", "reference", "shares", "seed")}
    policy = FleetPolicy(at_once=asked["parallel"], **named)
    return plan_run(hosts_of(fleet_of(asked)), words, policy, now=datetime.now(UTC), virtune=asked["virtune"])


@click.command(name="status")
@click.argument("name", metavar="[RUN]", default="last")
@click.option(
    "--watch", type=SECONDS, default=None, metavar="TIME", help="Show it again so often, until all is over."
)
@click.option("--stop", is_flag=True, help="Ask the studies to stop; what is finished is kept, and --again goes on.")
@access_options
@json_option
def status(name: str, *, watch: float | None, stop: bool, as_json: bool, **asked: Any) -> int:
    """Show how far a run is on each host: state, progress, last verdict. RUN is its name, or `last`.

    Exit 1 when a host failed or gave no answer, or a study there is stuck.

    \b
    virtune fleet status
    virtune fleet status --watch 30s
    virtune fleet status last --json | jq '.tasks[] | {host, state}'
    """  # noqa: D301 - \b is click's mark for lines to keep
    from virtune.flows.fleet.run import MAY_LOAD, RUNS, left_seconds, watched
    from virtune.model.fleet import TaskState
    from virtune.report.json.fleet import run_document
    from virtune.report.pages.fleet import run_lines

    run_ = RUNS.find(name)
    shown = ShownRun(run_, quiet=watch is None or as_json, stderr=False)
    found = shown.found
    with shown.table():
        for states in watched(run_, access_for(run_, asked), seconds=watch, stop=stop):
            found |= states
            if not shown.live:
                lines = run_lines(run_, found, left_seconds(run_, found))
                tell(run_document(run_, found), lines, as_json=as_json)
    return FAILED if any(one.state in (TaskState.FAILED, *MAY_LOAD) for one in found.values()) else 0


@contextlib.contextmanager
def kept(shown: "ShownRun") -> Iterator[None]:
    """Keep how far a run is in a file while this process carries it: `virtune serve` shows that, and asks no host.

    Raises PreconditionError where another process carries it.
    """
    from virtune.flows.fleet.run import RUNS
    from virtune.model.errors import PreconditionError
    from virtune.store.progress import ProgressFile

    name, over = shown.run.name, threading.Event()
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(ProgressFile(RUNS.place, name))
        except PreconditionError:
            hint = f"`virtune fleet status {name} --watch 10s` shows how far it is"
            raise PreconditionError(f"another process carries the run {name} now", hint=hint) from None

        def keep() -> None:
            file.write(shown.progress())
            while not over.wait(1.0):
                file.write(shown.progress())

        thread = threading.Thread(target=keep)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


class ShownRun:
    """A run as it is shown while it runs: a table on a terminal, elsewhere a line for each change of state."""

    def __init__(self, run_: "FleetRun", *, quiet: bool, stderr: bool = True) -> None:
        self.run, self._quiet, self._stderr = run_, quiet, stderr
        self.found: dict[str, TaskProgress] = {}
        self.live = (sys.stderr if stderr else sys.stdout).isatty() and not quiet
        self._one_by_one = threading.Lock()

    def say(self, task: "FleetTask", progress: "TaskProgress") -> None:
        """Show how far a task is."""
        from virtune.model.text import printable
        from virtune.report.pages.fleet import SAID_MAX

        with self._one_by_one:
            before = self.found.get(task.name)
            self.found[task.name] = progress
            if not (self._quiet or self.live) and (before is None or before.state is not progress.state):
                said = printable(progress.said or progress.verdict, most=SAID_MAX)
                click.echo(f"{task.host.name}: {progress.state}{f': {said}' if said else ''}", err=True)

    def progress(self) -> "RunProgress":
        """Return how far the run is, for its page."""
        from virtune.flows.fleet.run import left_seconds
        from virtune.model.fleet import WAITING, TaskState
        from virtune.report.pages.fleet import AT_MOST, run_table, run_title
        from virtune.store.progress import RunProgress

        run_, found = self.run, dict(self.found)
        each, left = [found.get(task.name, WAITING) for task in run_.tasks], left_seconds(run_, found)
        table, over = run_table(run_, found, to_see_first=True, most=1000), (TaskState.FINISHED, TaskState.FAILED)
        parts = [1.0 if it.state in over else it.done / max(it.total, it.done) if it.total else 0.0 for it in each]
        return RunProgress(
            study=run_.name,
            title=run_title(run_),
            most=AT_MOST,
            done=sum(one.state in over for one in each),
            total=len(each),
            now=table.states,
            share=None if run_.search else fmean(parts),  # more turns come
            until=None if left is None else time.time() + left,
            rows=tuple(table.rows),
            conditions=tuple(table.hints),
        )

    def begins(self, run_: "FleetRun", known: "FleetTuning | None") -> None:
        """Show a turn of a search, which begins, and what was found before it; a terminal shows its table alone."""
        from virtune.flows.fleet.run import left_seconds
        from virtune.report.pages.fleet import turn_line

        self.run = run_
        if not (self._quiet or self.live):
            click.echo(turn_line(run_, known, left_seconds(run_, {})), err=True)

    @contextlib.contextmanager
    def table(self) -> Iterator[None]:
        """Keep the table on a terminal, drawn anew twice a second whatever is heard meanwhile."""
        if not self.live:
            yield
            return
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        from virtune.flows.fleet.run import left_seconds
        from virtune.report.pages.fleet import run_lines

        console = Console(stderr=self._stderr)

        def drawn() -> Text:  # a host's words are no markup
            found = dict(self.found)
            lines = run_lines(self.run, found, left_seconds(self.run, found), most=console.height - 1)
            return Text("\n".join(lines))

        with Live(console=console, get_renderable=drawn, refresh_per_second=2):
            yield
