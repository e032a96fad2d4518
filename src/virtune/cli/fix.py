# SPDX-License-Identifier: Apache-2.0
"""`virtune fix`: from a slow VM to a better one: audited, measured, shown, asked, applied, checked."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virtune.cli.common import options
from virtune.cli.domains import advice_text, journal_option, restart_options
from virtune.model.errors import StorePlace, UsageError
from virtune.model.text import printable

if TYPE_CHECKING:
    from virtune.cli.common.result_output import ResultOutput
    from virtune.flows.domains.domains import FoundDomain
    from virtune.flows.run.fix import ChosenFix, Fixes
    from virtune.model.evidence import StudyRecord
    from virtune.model.study_options import StudyOptions
    from virtune.store.store import Store

_MEASURED = ("connect", "rig", "workloads", "metric", "margin", "quick", "budget", "rounds", "seconds", "ramp",
             "seed", "scratch", "span", "attempts", "target")  # fmt: skip
"""The options of `compare` that a fix takes too."""


@click.command(name="fix")
@click.argument("vm", metavar="VM[:DISK]")
@options.adding(*(options.study_option(name, "compare") for name in _MEASURED))
@click.option("--again", is_flag=True, help="Measure again, although the same was measured in the last 24 h.")
@click.option("--dry-run", is_flag=True, help="Measure and show the change, and make none.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@restart_options
@journal_option
@options.progress_options
@options.store_option
def fix(vm: str, *, again: bool, dry_run: bool, yes: bool, journal: Path, store: StorePlace, **asked: Any) -> int:
    """Find what a VM's disk should have, prove it, and change it, step by step.

    The VM is audited. What the audit says, each try alone and all together, is measured on a scratch disk
    like the VM's, against the disk as it is (`--like` of `virtune compare`). The change that is surely better by
    the most is shown as a diff, and virtune asks before it makes it, as `virtune apply` does: journaled, checked, put
    back on any failure. Where nothing is better, nothing is changed but for the audit's errors and warnings.

    VM is a libvirt domain, a Proxmox VM's number, or a file with a configuration; only a libvirt domain is changed,
    of the others the changed text or the command that changes it is written. Call it again to go on where it was
    left.

    \b
    Examples:
      virtune fix web1
      virtune fix web1:vdb --workload randwrite-4k --restart --healthy guest-agent
      virtune fix web1.xml:sda --dry-run
    """  # noqa: D301 - \b is click's mark for lines to keep
    from virtune.cli.common.result_output import ResultOutput
    from virtune.flows.domains.like import disk_of, find_vm, liken
    from virtune.flows.run.fix import fixes_for

    if (asked["rig"] or "").startswith("simulated"):
        raise UsageError("no change rests on invented figures", hint="leave --rig out, or `--rig vhost-user`")
    out = ResultOutput.read(asked)
    question = options.read_options("compare", asked)
    found, name = find_vm(vm, question.connect)
    disk = disk_of(found, name)
    like = liken(found, name, rig=question.rig, scratch=question.scratch, target=question.target is not None)
    fixes = fixes_for(found, disk, like)
    _say_audit(found, fixes)
    if not fixes.candidates:
        click.echo("nothing to measure" if not fixes.needed else "nothing of it can be measured here", err=True)
        return _change(found, fixes.needed, asked, journal, dry_run=dry_run, yes=yes)
    from virtune.store.store import Store

    with Store(store) as kept:
        record, choice = _measured(kept, vm, question, fixes, out, again=again)
    click.echo(f"\n{choice.why} ({record.study.id})")
    if not record.finished:
        click.echo("the measurement is not finished: call it again to go on", err=True)
    return _change(found, choice.turns, asked, journal, dry_run=dry_run, yes=yes)


def _say_audit(found: "FoundDomain", fixes: "Fixes") -> None:
    """Say what the audit found of this disk, what will be measured, and what not."""
    name = found.subject.domain.name or found.origin
    click.echo(printable(f"{name}:{fixes.disk.target}  {len(fixes.findings)} findings"))
    for finding in fixes.findings:
        click.echo(printable(f"  {finding.rule.severity:<8}{finding.rule.id}  {finding.seen.seen}"))
    for one in fixes.candidates:
        click.echo(printable(f"  measured as {one.name}: {', '.join(one.settings)}"))
    for text in fixes.left:
        click.echo(printable(f"  left alone: {text}"))


def _measured(
    store: "Store", vm: str, asked: "StudyOptions", fixes: "Fixes", out: "ResultOutput", *, again: bool
) -> "tuple[StudyRecord, ChosenFix]":
    """Measure the candidates, go on with the same measurement, or take a finished one of the last hours."""
    from dataclasses import replace

    from virtune.cli.common.run_study import going_on
    from virtune.flows.run.fix import HOURS_KEPT, choose, measured_before, question_of
    from virtune.flows.run.preconditions import Leave
    from virtune.flows.run.question import facts_text, study_for
    from virtune.flows.run.study import resume_study, run_study
    from virtune.flows.stored.show import current

    title = f"fix {vm}"
    since = (datetime.now(UTC) - timedelta(hours=HOURS_KEPT)).isoformat(timespec="seconds")
    study = study_for(question_of(replace(asked, like=vm), fixes, title=title))
    known = None if again else measured_before(store, study, since=since)
    leave = Leave()
    if known is None:
        facts = facts_text(Path(study.scratch))
        going_on(store, study, lambda say: run_study(study, store=store, say=say, leave=leave, facts=facts), out)
    elif not known.finished:
        study, record = known.study, known
        going_on(store, study, lambda say: resume_study(record, store=store, say=say, leave=leave), out)
    else:
        study = known.study
        click.echo(f"measured before: {study.id}; --again measures anew", err=True)
    record, result = current(store, study.id)
    return record, choose(record, result, fixes)


def _change(found: "FoundDomain", turns: Any, asked: dict[str, Any], place: Path, *, dry_run: bool, yes: bool) -> int:
    """Show the change, ask, and make it where a libvirt has the VM."""
    from virtune.flows.domains.advise import Wish, advise

    name = found.subject.domain.name or found.origin
    if not turns:
        click.echo(printable(f"{name}: nothing to change"))
        return 0
    wish = Wish(turns=tuple(turns))
    if dry_run or found.subject.connect is None:
        click.echo(advice_text(name, advise(found, wish)))
        return 0
    from virtune.cli.domains import change, means_of
    from virtune.virsh import Virsh

    if not yes and not sys.stdin.isatty():
        click.echo(advice_text(name, advise(found, wish)))
        raise UsageError("cannot ask for confirmation: stdin is not a terminal", hint="add --yes, or --dry-run")
    change(
        Virsh(found.subject.connect, write=True),
        name,
        wish,
        means_of(asked),
        place,
        yes=yes,
    )
    return 0
