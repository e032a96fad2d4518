# SPDX-License-Identifier: Apache-2.0
"""`virtune diagnose`: what limits a disk under its load, and where the time of a request goes."""

import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from virtune.cli.common import options
from virtune.cli.common.result_output import MARKDOWN_HELP
from virtune.cli.common.verb import Verb
from virtune.cli.domains import journal_option
from virtune.model.bottleneck import Diagnosis, answered
from virtune.model.errors import StorePlace, UsageError
from virtune.model.study_options import was_said
from virtune.model.text import format_seconds, printable


@click.command(name="diagnose", cls=Verb)
@click.argument("vm", metavar="[VM[:DISK]]", default="")
@click.option("--connect", "uri", metavar="URI", default=None, help="libvirt URI of VM.  [default: virsh's]")
@click.option(
    "--qmp",
    type=click.Path(path_type=Path),
    metavar="SOCKET",
    help="A QEMU started by hand, by its QMP socket. DISK alone is one of its disks.",
)
@click.option(
    "--seconds", type=options.SECONDS, default=10.0, help="How long a live VM is looked at.  [default: 10s]"
)
@click.option("--histograms", is_flag=True,
              help="Have the running QEMU keep histograms of latency meanwhile, for percentiles; taken back at the"
                   " end.")  # fmt: skip
@click.option("--run", "study", metavar="STUDY[:TRIAL]", help="A stored study (an id or `last`) or a trial.")
@click.option(
    "--prove",
    is_flag=True,
    help="Say whether the diagnosis holds: with --run the accused layer is replaced on a scratch disk; of a running"
    " VM a limit of QEMU's is lifted, the polling of an IOThread set or a pin widened, and put back, in turn.",
)
@click.option(
    "--yes",
    is_flag=True,
    help="With --prove: turn it on a running VM without asking; with -q without a word either.",
)
@journal_option
@click.option("--answer", metavar="ANSWERS", default=None,
              help="What nobody sees of the VM's drives, for the tuning guideline: own=yes (it may have the drive for"
                   " itself), free=/dev/NAME (another one is free).")  # fmt: skip
@options.study_option("rounds", "compare")
@options.study_option("budget", "compare")
@options.study_option("scratch", "compare")
@options.study_option("seed", "compare")
@options.report_option
@click.option("--markdown", metavar="FILE|-", help=MARKDOWN_HELP)
@options.progress_options
@options.json_option
@options.store_option
def diagnose(vm: str, *, qmp: Path | None, study: str | None, store: StorePlace, **asked: Any) -> None:
    """Say what limits a disk under its load, with the evidence and the next experiment.

    A live VM (a libvirt domain, or any QEMU of this host by its name, process id or Proxmox VE's number) is looked at
    under its own load; nothing is added to it, and nothing changed, but for --histograms. The time of a request is
    split into layers: application, guest block layer, virtqueue, QEMU, host device. Of a live VM the load is told in
    fio's words too, as `--workload` takes them.

    --prove tests it: confirmed if the load changes as it promises, else refuted or undecided. Of a stored study by
    the stack without what is accused (null-co for the device, another engine, an IOThread, no throttle) on a scratch
    disk; of a running VM by turning a limit, a pin or the polling, once agreed to, and putting it back, journalled.

    \b
    Examples:
      virtune diagnose sql1
      virtune diagnose sql1:vdb --seconds 60 --json
      virtune diagnose sql1 --seconds 60 --histograms
      virtune diagnose virtio0 --qmp /run/vm1.qmp
      virtune diagnose --run last
      virtune diagnose --run last --answer own=no,free=/dev/nvme1n1
      virtune diagnose sql1:vda --prove
    """  # noqa: D301 - click wants the escape itself
    from virtune.cli.common.result_output import require_report

    if (bool(vm) and qmp is None) + (qmp is not None) + (study is not None) != 1:
        raise UsageError(
            "one of VM, --qmp and --run is needed", hint="`virtune diagnose --run last` looks at your last study"
        )
    if asked["prove"] and study is not None:
        _prove(study, store, asked)
        return
    _require_fit(study, asked)
    require_report(asked["report"])
    told = _answers(asked["answer"])
    found = _live(vm, qmp, asked) if study is None else _of_study(study, store)
    found = (_proven_live(found, vm, qmp, asked),) if asked["prove"] else found
    _write(tuple(map(told, found)), asked)


def _require_fit(study: str | None, asked: dict[str, Any]) -> None:
    """Raise UsageError for an option of --prove, or for a running VM's histograms of a stored study."""
    given = next((name for name in _OF_PROOF if was_said(asked[name])), None)
    if given is not None:
        raise UsageError(f"--{given} is for --run with --prove", hint="`virtune diagnose --run last --prove`")
    if asked["histograms"] and study is not None:
        raise UsageError("--histograms is for a running VM", hint="`virtune show` has the percentiles of a study")


def _answers(words: str | None) -> Callable[[Diagnosis], Diagnosis]:
    """Return what puts the answers that were given into a diagnosis."""
    from virtune.advise.guidelines import given_answers

    try:
        said = given_answers([] if words is None else words.split(","))
    except ValueError as error:
        raise UsageError(str(error)) from None

    def told(one: Diagnosis) -> Diagnosis:
        return one if one.guideline is None else replace(one, guideline=answered(one.guideline, said))

    return told


def _write(found: tuple[Diagnosis, ...], asked: Mapping[str, Any]) -> None:
    from virtune.cli.common.output import screen_lines, show
    from virtune.report.json.live import diagnose_document
    from virtune.report.pages.diagnose import DiagnosisScreen, render

    if asked["report"] is not None:
        _report(found, asked["report"])
    page = render(found) if asked["verbose"] else DiagnosisScreen(found=found, lines=screen_lines())
    show(lambda: diagnose_document(found), lambda: page, as_json=asked["as_json"])


_OF_PROOF = ("rounds", "budget", "scratch", "seed", "markdown")


def _report(found: tuple[Diagnosis, ...], path: Path) -> None:
    from virtune.cli.common.output import write_report
    from virtune.report.pages.diagnose import render

    def page() -> str:
        from virtune.flows.reports.report import page_html
        from virtune.report.html.page import diagnosis_page

        return page_html(diagnosis_page(found))

    write_report(path, page=page, plain=lambda: render(found))
    click.echo(f"report: {path}", err=True)


def _prove(study: str, store: StorePlace, asked: dict[str, Any]) -> None:
    from virtune.cli.common.result_output import ResultOutput
    from virtune.cli.common.run_study import run_proof

    if asked["answer"] is not None:
        raise UsageError("--answer is for the tuning guideline, of which --prove tests nothing", hint="leave it out")
    name, number = _trial_of(study)
    options.require_store(store, name)
    out = ResultOutput.read(asked)
    words = {**asked, "seconds": None}  # that is how long a live VM is looked at, and no trial's
    run_proof(store, name, number, options.read_options("compare", words), out)


def _proven_live(found: tuple[Diagnosis, ...], vm: str, qmp: Path | None, asked: Mapping[str, Any]) -> Diagnosis:
    """Test what was found on the running VM itself, where that can be taken back and is agreed to; where that was so
    beforehand and `quiet` is asked for, nothing is said meanwhile.
    """
    from virtune.apply.journal import Journal
    from virtune.cli.common.rest import Rest
    from virtune.flows.live.diagnose_live import monitor_of
    from virtune.flows.live.prove_live import PAIRS, LiveTest, accused_of, live_test, prove_turning

    accused, uri, yes, quiet = accused_of(found), asked["uri"], asked["yes"], asked["quiet"]
    test = live_test(accused, uri, qmp or monitor_of(uri, vm.partition(":")[0], without_libvirt=True))
    if not isinstance(test, LiveTest):
        return replace(accused, proof=test)
    if not (quiet and yes):
        click.echo(
            printable(
                f"to test it, {test.one.named} is {test.one.turned} on the running VM and put back, at most {PAIRS}"
                f" times in {format_seconds(test.seconds)}: {test.one.risk} meanwhile"
            ),
            err=True,
        )
    if not options.confirmed("Do it?", yes=yes, err=True):
        return accused
    unseen = quiet or not sys.stderr.isatty()  # where the bar would be its label alone
    with (
        Rest(128 + signal.SIGTERM) as rest,
        click.progressbar(length=2 * PAIRS, label="turns", file=sys.stderr, hidden=unseen) as bar,
    ):
        return prove_turning(accused, test, Journal(asked["journal"]), done=lambda: bar.update(1), wait=rest)


def _live(vm: str, qmp: Path | None, asked: Mapping[str, Any]) -> tuple[Diagnosis, ...]:
    from virtune.cli.common.rest import Rest
    from virtune.flows.live.diagnose_live import diagnose_monitor, diagnose_named

    seconds, histograms = asked["seconds"], asked["histograms"]
    if seconds < 1:
        raise UsageError("--seconds of a live VM is at least 1s", hint="the kernel counts in steps of 10 ms")
    with Rest(128 + signal.SIGTERM) as rest:
        if qmp is not None:
            return diagnose_monitor(qmp, vm, seconds=seconds, histograms=histograms, wait=rest)
        domain, _, disk = vm.partition(":")
        return diagnose_named(asked["uri"], domain, disk=disk, seconds=seconds, histograms=histograms, wait=rest)


def _of_study(name: str, path: StorePlace) -> tuple[Diagnosis, ...]:
    from virtune.flows.live.diagnose import diagnose_study

    study, number = _trial_of(name)
    with options.stored(path, study) as (kept, found):
        return diagnose_study(kept, found, number)


def _trial_of(name: str) -> tuple[str, int | None]:
    """Read `STUDY` or `STUDY:TRIAL`."""
    study, _, number = name.partition(":")
    if number and not (number.isdecimal() and len(number) < 9):
        raise UsageError(f"no trial {number!r}", hint="`--run last:3` is the third trial of the last study")
    return study, int(number) if number else None
