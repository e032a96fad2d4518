# SPDX-License-Identifier: Apache-2.0
"""`virtune top`: the disks of this host's running VMs, sample after sample."""

import contextlib
import itertools
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virtune.cli.common.options import SECONDS, json_option
from virtune.model.errors import PreconditionError, UsageError

if TYPE_CHECKING:
    from virtune.model.bottleneck import TopFrame
    from virtune.model.live import LiveSample
    from virtune.model.result import Neighbour

INTERVAL_MIN = 0.2
"""The kernel counts CPU time in steps of 10 ms; with shorter intervals a share is mostly rounding."""

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(name="top")
@click.option("--connect", "uri", metavar="URI", default=None,
              help="Only the VMs of this libvirt.  [default: all VMs of this host]")  # fmt: skip
@click.option(
    "--qmp", "sockets", multiple=True, type=click.Path(path_type=Path), metavar="SOCKET",
    help="Only a QEMU by its QMP socket; may be repeated. Without --connect no libvirt is asked.",
)  # fmt: skip
@click.option("--interval", type=SECONDS, default=1.0, help="Time between two samples.  [default: 1s]")
@click.option("--once", is_flag=True, help="Print one interval as text, and end.")
@click.option("--by", type=click.Choice(["disk", "device"]), default="disk",
              help="What --once prints: the disks of VMs, or this host's devices with the disks on each and what"
                   " others do to it.  [default: disk]")  # fmt: skip
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print a CSV row for each disk and interval, until Ctrl-C.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="End --csv or --record after N intervals.")
@click.option("--record", type=_FILE, metavar="FILE", help="Write every sample to this new file, as JSON lines.")
@click.option("--replay", type=_FILE, metavar="FILE", help="Show what was recorded, instead of what runs.")
def top(*, uri: str | None, sockets: tuple[Path, ...], replay: Path | None, **asked: Any) -> None:
    """Watch the disks of the VMs that run on this host.

    All are found: libvirt's, Proxmox VE's, and each QEMU whose monitor has a socket, which its owner can use too.
    A line for each disk: IOPS, MB/s, latency with a bar of its layers, QEMU's CPU time for each I/O, I/Os in flight,
    and what limits it. Enter looks into a disk, 2, 3 and 4 show VMs, threads and the host, ? lists all keys. Nothing
    is changed on a VM, and nothing written but --record's file. A QEMU that answers wrongly is named; the exit is 3.

    \b
    Examples:
      virtune top
      virtune top --once --json
      virtune top --once --by device
      virtune top --qmp /run/vm1.qmp --qmp /run/vm2.qmp --csv --interval 10s --count 360 > hour.csv
      virtune top --record night.jsonl --interval 10s
      virtune top --replay night.jsonl --csv
    """  # noqa: D301 - click wants the escape itself
    _require_sense(asked)
    if replay is not None:
        if asked["record"] is not None or uri is not None or sockets:
            raise UsageError("--replay shows a recording, so it takes no --record, --connect and --qmp")
        _replay(replay, asked)
        return
    from virtune.flows.live.top import Recorder, samples, watching

    interval, record, count = asked["interval"], asked["record"], asked["count"]
    with contextlib.ExitStack() as ends:
        watch = ends.enter_context(watching(uri, sockets))
        if record is not None:
            watch.recorder = ends.enter_context(Recorder(record, watch.header))
        taken = samples(watch, interval_seconds=interval, wait=time.sleep, now=time.monotonic)
        if asked["once"]:
            _print_once(taken, asked)
        elif asked["as_csv"]:
            _print_csv(itertools.islice(_frames(taken), count))
        elif not _on_terminal() and record is None:
            raise _no_screen("`--once` prints one interval, `--csv` one after another")
        elif _on_terminal() and count is None:
            _screen(watch.sample, samples=[], interval=interval)
        else:
            click.echo(f"recording to {record}{', until Ctrl-C' if count is None else ''}", err=True)
            for _ in itertools.islice(taken, None if count is None else count + 1):
                pass
        watch.require_all()


def _require_sense(asked: Mapping[str, Any]) -> None:
    """Raise UsageError where options do not go together."""
    once, as_csv, count = asked["once"], asked["as_csv"], asked["count"]
    if not asked["interval"] >= INTERVAL_MIN:
        raise UsageError(f"--interval is at least {INTERVAL_MIN:g}s", hint="the kernel counts in steps of 10 ms")
    if asked["as_json"] and not once:
        raise UsageError("--json needs --once", hint="`virtune top --once --json`")
    if asked["by"] == "device" and (asked["as_json"] or not once):
        hint = "`virtune top --once --by device`; the screen has devices behind the key 4, --json in `host.devices`"
        raise UsageError("--by device is for the text of --once", hint=hint)
    if count is not None and not as_csv and asked["record"] is None:
        raise UsageError("--count needs --csv or --record", hint="`virtune top --csv --count 10`")
    if once and (as_csv or count is not None):
        raise UsageError("--once is one interval, so it takes no --csv and --count")


def _frames(taken: "Iterable[LiveSample]") -> "Iterator[TopFrame]":
    from virtune.analyse.layers.path import frame

    return (found for before, after in itertools.pairwise(taken) if (found := frame(before, after)) is not None)


def _screen(take: "Callable[[], LiveSample] | None", **session: Any) -> None:
    """Show the screen until it is left: of what `take` samples, or of a recording."""
    from virtune.tui.app import TopApp
    from virtune.tui.session import TopSession

    ascii_alone = "utf" not in (sys.stdout.encoding or "").lower()
    app = TopApp(TopSession(plain=ascii_alone, **session), take)
    try:
        app.run()
    finally:
        app.close()


def _on_terminal() -> bool:
    """Whether there is a terminal for the screen: keys come from stdin, and Textual draws on stderr."""
    return sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()


def _no_screen(hint: str) -> UsageError:
    return UsageError("the screen needs a terminal, on stdin, stdout and stderr", hint=hint)


def _replay(path: Path, asked: Mapping[str, Any]) -> None:
    from virtune.flows.live.top import Recording

    with Recording(path) as samples:
        if len(samples) < 2:
            raise PreconditionError(f"{path} has {len(samples)} samples, and two are the fewest that tell")
        if asked["as_csv"]:
            _print_csv(_frames(samples))
        elif asked["once"]:
            last = next(_frames(samples[-2:]), None)
            if last is None:
                raise PreconditionError(f"no time passes between the last two samples of {path}")
            _print(last, asked)
        elif not _on_terminal():
            raise _no_screen("`--once` prints the last interval, `--csv` all of them")
        else:
            _screen(None, samples=samples, position=1, replay=True, paused=True, interval=asked["interval"])


def _print_once(taken: "Iterator[LiveSample]", asked: Mapping[str, Any]) -> None:
    """Print the first interval, by device with the processes that move most meanwhile."""
    from virtune.probe.neighbours import look, neighbours

    ours = set[int]()

    def noted() -> "Iterator[LiveSample]":
        for sample in taken:
            ours.update(vm.pid for vm in sample.vms if vm.pid is not None)
            yield sample

    before = look() if asked["by"] == "device" else None
    found = next(_frames(noted()))
    _print(found, asked, None if before is None else neighbours(before, look(), by_bytes=True, without=ours))


def _print(found: "TopFrame", asked: Mapping[str, Any], others: "Sequence[Neighbour] | None" = None) -> None:
    from virtune.cli.common.output import show
    from virtune.report.json.live import top_document
    from virtune.report.top import DevicesText, TopText

    page = DevicesText(found, others) if asked["by"] == "device" else TopText(found)
    show(lambda: top_document(found), lambda: page, as_json=asked["as_json"])


def _print_csv(frames: "Iterable[TopFrame]") -> None:
    from virtune.report.top import csv_head, csv_rows

    click.echo(csv_head(), nl=False)
    for one in frames:
        click.echo(csv_rows(one), nl=False)
        sys.stdout.flush()
