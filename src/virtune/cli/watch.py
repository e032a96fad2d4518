# SPDX-License-Identifier: Apache-2.0
"""`virtune watch`: rules over the disks of running VMs, their figures for Prometheus, and what was slow, and why."""

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virtune.cli.common.options import SECONDS, in_data, json_option
from virtune.cli.common.rest import Rest
from virtune.cli.common.result_output import BREACHED
from virtune.cli.top import INTERVAL_MIN
from virtune.model.errors import PreconditionError, UsageError

if TYPE_CHECKING:
    from virtune.analyse.watch import Alarms
    from virtune.flows.live.watch import Look, Watched

HISTORY_BYTES = 256 * 1024**2
"""A look at a disk takes some 250 bytes: a hundred busy disks, each 10 seconds, for more than a day."""

_AT = ("%H:%M", "%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S")


@click.command(name="watch")
@click.argument("vms", metavar="[VM]...", nargs=-1)
@click.option(
    "--connect", "uri", metavar="URI", help="Only the VMs of this libvirt.  [default: all VMs of this host]"
)
@click.option(
    "--qmp", "sockets", multiple=True, type=click.Path(path_type=Path), metavar="SOCKET",
    help="Only a QEMU by its QMP socket; may be repeated.",
)  # fmt: skip
@click.option("--interval", type=SECONDS, default=10.0, help="Time between two looks.  [default: 10s]")
@click.option("--if", "rules", multiple=True, metavar="RULE",
              help="Say when a disk does so: 'latency > 5ms for 1min', 'p99 > 20ms for 2min', 'iops < 100', "
                   "'oldest > 10s'; may be repeated.")  # fmt: skip
@click.option("--once", is_flag=True, help="Look for as long as the rules ask, and end: exit 4 where one holds.")
@click.option("--until-first", is_flag=True, help="End with exit 4 as soon as a rule holds.")
@click.option("--webhook", metavar="URL", help="POST each event there as JSON, too.")
@click.option("--listen", metavar="ADDRESS:PORT", help="Answer Prometheus there (/metrics), without a password.")
@click.option("--histograms", is_flag=True,
              help="Have QEMU keep histograms of latency meanwhile, for percentiles: this is set on the running QEMU,"
                   " and taken back at the end.")  # fmt: skip
@click.option("--history", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Where looks are kept, and read with --last and --at.  [default: in the user's data; with --once"
                   " and --until-first none is written]")  # fmt: skip
@click.option("--last", type=SECONDS, metavar="TIME", help="Say what was slow in the last 8h, and why.")
@click.option("--at", metavar="TIME", help="Show the disks as they were at 03:12, or '2026-11-26 03:12'.")
@json_option
def watch(vms: tuple[str, ...], *, last: float | None, at: str | None, **asked: Any) -> int:
    """Watch the disks of running VMs for hours: say when a rule holds and why, and keep what was seen.

    All VMs of this host are watched, or those that are named; VMs that start are found. A line says that a rule holds
    for a disk, with the layer, the cause and its evidence, another that it holds no longer: not before it has not
    held for as long as it had to, and for two looks at least. A monitor is held for some milliseconds a look.

    What was slow, and why, is kept in a file that does not grow beyond 256 MiB: --last and --at ask it, later or from
    another shell. A rule about a percentile needs --histograms, or a QEMU that keeps them already.

    \b
    Examples:
      virtune watch --if 'latency > 20ms for 1min' --if 'oldest > 10s'
      virtune watch sql1 --histograms --if 'p99 > 20ms for 2min' --webhook https://alerts.example/hook
      virtune watch --listen 127.0.0.1:9177
      virtune watch --last 8h
      virtune watch --at 03:12 --json
    """  # noqa: D301 - click wants the escape itself
    from virtune.analyse.watch import Alarms
    from virtune.flows.live.watch import Watched
    from virtune.plan.goal import parse_rule

    rules, history = asked["rules"], asked["history"]
    if last is not None or at is not None:
        others = (value for name, value in asked.items() if name not in ("interval", "history", "as_json"))
        if any(others) or (last and at):
            raise UsageError("--last or --at asks the history: with VM, --history and --json, and nothing else")
        _ask(history or in_data("watch.history")(), vms, last, at, as_json=asked["as_json"])
        return 0
    if not asked["interval"] >= INTERVAL_MIN:
        raise UsageError(f"--interval is at least {INTERVAL_MIN:g}s", hint="the kernel counts in steps of 10 ms")
    if (asked["once"] or asked["until_first"] or asked["webhook"]) and not rules:
        raise UsageError("--once, --until-first and --webhook need a rule", hint="`--if 'latency > 20ms for 1min'`")
    alarms = Alarms(tuple(dict.fromkeys(map(parse_rule, rules))))
    watched = Watched(uri=asked["uri"], sockets=asked["sockets"], names=vms, interval_seconds=asked["interval"],
                      keep=asked["histograms"])  # fmt: skip
    if history is None and not (asked["once"] or asked["until_first"]):
        history = in_data("watch.history")()
    with contextlib.ExitStack() as ends:
        rest = ends.enter_context(Rest(0))  # a service that is stopped has not failed
        return _run(ends, watched, alarms, {**asked, "history": history}, rest)


def _run(
    ends: contextlib.ExitStack, watched: "Watched", alarms: "Alarms", asked: Mapping[str, Any], rest: Rest
) -> int:
    """Look until it is over; returns the exit status."""
    from virtune.analyse.watch import looks_of
    from virtune.flows.live.history import History
    from virtune.flows.live.watch import Webhook, looks
    from virtune.report.json.live import event_document
    from virtune.report.top import event_line

    hook = ends.enter_context(Webhook(asked["webhook"], _tell)) if asked["webhook"] else None
    kept = ends.enter_context(History(asked["history"], HISTORY_BYTES)) if asked["history"] else None
    take = _exporter(ends, asked["listen"], alarms) if asked["listen"] else None
    longest = max((one.seconds for one in alarms.rules), default=0.0)
    seen = 0.0
    with contextlib.closing(looks(watched, wait=rest, now=time.monotonic, tell=_tell)) as every:
        for look in every:
            for event in alarms.look(look.frame):
                document = event_document(event)
                click.echo(json.dumps(document) if asked["as_json"] else event_line(event))
                if hook is not None:
                    hook.post(document)
            if take is not None:
                take(look)
            if kept is not None and (said := kept.add(looks_of(look.frame))):
                _tell(said)
            seen += look.frame.seconds
            over = asked["once"] and seen >= longest - look.frame.seconds / 2
            if over or (asked["until_first"] and alarms.raised):
                return BREACHED if alarms.raised else 0
    raise AssertionError("looks have no end")


def _exporter(ends: contextlib.ExitStack, address: str, alarms: "Alarms") -> "Callable[[Look], None]":
    from virtune.shell import require_modules

    require_modules("prometheus_client")
    from virtune.flows.live.exporter import Exported, listening

    exported = Exported(alarms)
    _tell(f"http://{ends.enter_context(listening(address, exported))}/metrics")
    return exported.take


def _tell(words: str) -> None:
    click.echo(words, err=True)


def _ask(path: Path, vms: tuple[str, ...], last: float | None, at: str | None, *, as_json: bool) -> None:
    """Answer from the history."""
    from rich.console import Group

    from virtune.analyse.watch import slow_windows
    from virtune.cli.common.output import show
    from virtune.flows.live.history import kept_looks
    from virtune.report.json.live import watch_document
    from virtune.report.top import history_lines, moment_lines

    now = time.time()
    moment = None if at is None else _moment(at, datetime.fromtimestamp(now))
    between = (now - (last or 0), now) if moment is None else (moment - AT_SECONDS, moment + AT_SECONDS)
    found, torn = kept_looks(path, *between)
    found = [one for one in found if not vms or one.vm in vms]
    if not found:
        raise PreconditionError(f"nothing is kept of that time in {path}")
    if moment is not None:
        nearest = {}
        for one in sorted(found, key=lambda one: -abs(one.wall_seconds - one.seconds / 2 - moment)):
            nearest[one.name] = one
        found = list(nearest.values())
    windows = {} if moment is not None else slow_windows(found)
    flat, disks = [one for some in windows.values() for one in some], found if moment is not None else []
    show(
        lambda: watch_document(between, len(found), torn, flat, disks),
        lambda: Group(*(moment_lines(disks, torn) if disks else history_lines(between, len(found), torn, windows))),
        as_json=as_json,
    )


AT_SECONDS = 60.0
"""--at shows the nearest look of each disk, at most so far away."""


def _moment(text: str, now: datetime) -> float:
    """Read a time of day, the last one that has been, or a date and time; raises UsageError."""
    for form in _AT:
        with contextlib.suppress(ValueError):
            found = datetime.strptime(text.strip(), form)
            if "%d" in form:
                return found.timestamp()
            today = found.replace(year=now.year, month=now.month, day=now.day)
            return (today - timedelta(days=today > now)).timestamp()
    raise UsageError(f"not a time: {text[:40]!r}", hint="write 03:12 or '2026-11-26 03:12'")
