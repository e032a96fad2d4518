# SPDX-License-Identifier: Apache-2.0
"""`virtune fix`: from a slow VM to a better one: audited, measured, shown, asked, applied, checked."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virtune.cli.common import options
from virtune.cli.common.changing import (
    Measuring,
    advice_text,
    agreed,
    means_of,
    planned,
    planned_proxmox,
    put_back,
    undone,
)
from virtune.cli.common.verb import Verb
from virtune.cli.domains import journal_option, restart_options
from virtune.model.errors import StorePlace, UsageError
from virtune.model.study_options import DEFAULT_WORKLOAD
from virtune.model.text import printable
from virtune.model.verdict import Verdict

if TYPE_CHECKING:
    from virtune.flows.domains.apply import Applied
    from virtune.flows.domains.domains import FoundDomain
    from virtune.flows.run.fix import Fixes
    from virtune.model.study_options import StudyOptions

_MEASURED = ("connect", "rig", "workloads", "its_load", "metric", "margin", "quick", "budget", "rounds", "seconds",
             "ramp", "seed", "scratch", "span", "attempts", "target")  # fmt: skip
"""The options of `compare` that a fix takes too."""


@click.command(name="fix", cls=Verb)
@click.argument("vm", metavar="VM[:DISK]")
@options.adding(*(options.study_option(name, "compare") for name in _MEASURED))
@click.option("--also", metavar="RULE", multiple=True,
              help="Make this rule's change too, though it risks data (R25) or lifts what may be meant (R47);"
                   " repeatable.")  # fmt: skip
@click.option("--again", is_flag=True, help="Measure again, although the same was measured in the last 24 h.")
@click.option("--dry-run", is_flag=True, help="Measure and show the change, and make none.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@restart_options
@journal_option
@options.progress_options
@options.store_option
def fix(
    vm: str, *, also: tuple[str, ...], again: bool, dry_run: bool, yes: bool, journal: Path, store: StorePlace,
    **asked: Any,
) -> int:  # fmt: skip
    """Find what a VM's disk should have, prove it, and change it, step by step.

    The VM is audited. What the audit says, each try alone and all together, is measured on a scratch disk
    like the VM's, against the disk as it is (`--like` of `virtune compare`). The change with the largest certain
    gain is shown as a diff, and virtune asks before it makes it, as `virtune apply` does: journaled, checked, put
    back on any failure. Where nothing is better, only what errors and warnings ask for is changed. At the end the new
    configuration is measured against the old one; one that is worse is put back, but for what these ask for (exit 4).

    VM is a libvirt domain, a Proxmox VM's number, or a file with a configuration, of which the changed text or the
    command that changes it is written. A QEMU that runs here without a libvirt (its name or process id) is
    measured too, for changes by hand. Call it again to go on where it was left; what was cut short is put back first.

    \b
    Examples:
      virtune fix web1
      virtune fix web1:vdb --workload randwrite-4k --restart --healthy guest-agent
      virtune fix web1 --also R47
      virtune fix web1.xml:sda --dry-run
    """  # noqa: D301 - \b is click's mark for lines to keep
    from virtune.cli.common.result_output import ResultOutput
    from virtune.flows.domains.like import as_it_is_now, disk_of, find_vm, liken
    from virtune.flows.run.fix import fixes_for
    from virtune.store.store import Store

    question = _question(asked)
    found, name = find_vm(vm, question.connect)
    if not dry_run and put_back_first(found, journal, yes=yes):
        found, name = find_vm(vm, question.connect)
    disk = disk_of(as_it_is_now(found), name)
    like = liken(found, name, question)
    comes_back = asked["restart"] and found.subject.running is not None
    fixes = fixes_for(found, disk, like, also=also, comes_back=comes_back)
    _say_audit(found, fixes)
    out = ResultOutput.read(asked)
    with Store(store) as kept:
        measuring = _loaded(Measuring(store=kept, vm=vm, asked=question, out=out), found, fixes, again=again)
        choice = measuring.choose(fixes, like, again=again)
        turns = fixes.needed if choice is None else choice.turns
        done = _change(found, fixes, turns, asked, journal, dry_run=dry_run, yes=yes)
        if done is None or choice is None or choice.candidate is None:
            return 0
        verdict = measuring.again(done, disk.target)
        if put_back(verdict, done[1], stays={*turns} <= {*fixes.needed}, journal=journal, yes=yes) and fixes.needed:
            click.echo("what errors, warnings and --also ask for is made by itself:")
            _change(found, fixes, fixes.needed, asked, journal, dry_run=False, yes=yes)
        return 4 if verdict is Verdict.WORSE else 0


def _question(asked: dict[str, Any]) -> "StudyOptions":
    """Return what is to be measured; raises UsageError for figures that are none of this host's."""
    if (asked["rig"] or "").startswith("simulated"):
        raise UsageError("no change rests on invented figures", hint="leave --rig out, or `--rig vhost-user`")
    return options.read_options("compare", asked)


def _loaded(measuring: Measuring, found: "FoundDomain", fixes: "Fixes", *, again: bool) -> Measuring:
    """Return the same with the load of `--its-load`, where there is something to measure: as it was seen before where
    this goes on, else as it is now. Of a running VM it is said that its own load can be taken.
    """
    from virtune.cli.common.run_study import with_its_load
    from virtune.flows.run.fix import load_before

    asked, vm = measuring.asked, measuring.vm
    if not fixes.candidates:
        return measuring
    if found.subject.running is not None and not (asked.its_load or asked.workloads):
        click.echo(f"measured under {DEFAULT_WORKLOAD}; --its-load takes what the VM does now", err=True)
    loads = () if again or not asked.its_load else load_before(measuring.store, f"fix {vm}")
    if not loads:
        return replace(measuring, asked=with_its_load(asked, vm))
    click.echo(printable(f"its load as it was seen before: {loads[0].meaning}; --again looks anew"), err=True)
    return replace(measuring, loads=loads)


def _say_audit(found: "FoundDomain", fixes: "Fixes") -> None:
    """Say what the audit found of this disk, what will be measured, and what not."""
    name = found.subject.domain.name or found.origin
    click.echo(printable(f"{name}:{fixes.disk.target}  {len(fixes.findings)} findings"))
    for finding in fixes.findings:
        click.echo(printable(f"  {finding.rule.severity:<8}{finding.rule.id}  {finding.seen.seen}"))
    for one in fixes.candidates:
        click.echo(printable(f"  measured as {one.name}: {one.text}"))
    for text in fixes.left:
        click.echo(printable(f"  left alone: {text}"))


def put_back_first(found: "FoundDomain", place: Path, *, yes: bool) -> bool:
    """Put back a change of this VM that was cut short; whether one was. Raises UsageError where it is to stay."""
    from virtune.apply.journal import Journal
    from virtune.flows.domains.apply import GENTLY

    uuid, kept = found.subject.domain.uuid, Journal(place)
    ours = {uuid, f"qm:{Path(found.origin).absolute()}"} - {None}
    cut = [entry for entry in kept.entries() if entry.open and not ours.isdisjoint((entry.uuid, entry.uri))]
    for entry in reversed(cut):
        name = found.subject.domain.name
        click.echo(printable(f"{name}: the change {entry.id} was cut short ({entry.steps[-1].value})"), err=True)
        if not yes and (not sys.stdin.isatty() or not click.confirm("Put it back first?", default=True)):
            raise UsageError(f"{name} may be half changed", hint=f"`virtune apply undo {entry.id}` puts it back")
        click.echo(undone(entry, kept, entry.uri, GENTLY, anyway=False), err=True)
    return bool(cut)


def _unless(fixes: "Fixes") -> str:
    """Say which findings stay as they may be meant, and what changes them."""
    meant = dict.fromkeys(one.rule.id for one in fixes.findings if one.seen.meant and one.seen.turns)
    return f" while what may be meant stays; --also {' --also '.join(meant)} changes it" if meant else ""


def _change(
    found: "FoundDomain", fixes: "Fixes", turns: Any, asked: dict[str, Any], place: Path, *, dry_run: bool, yes: bool
) -> "tuple[FoundDomain, Applied] | None":
    """Show the change, ask, and make it where a libvirt has the VM; return what was done."""
    from virtune.apply.proxmox import is_here
    from virtune.flows.domains.advise import Wish, advise

    name = found.subject.domain.name or found.origin
    if not turns:
        click.echo(printable(f"{name}: nothing to change{_unless(fixes)}"))
        return None
    if not found.language.writes:
        from virtune.flows.run.fix import by_hand

        click.echo(printable(f"{name}: virtune does not change {found.language.title}; to be done by hand:"))
        for line in by_hand(found, fixes.disk.target, turns):
            click.echo(f"  {printable(line)}")
        return None
    wish = Wish(turns=tuple(turns))
    ours = found.language.name == "proxmox" and is_here(Path(found.origin))
    if dry_run or (found.subject.connect is None and not ours):
        click.echo(advice_text(name, advise(found, wish)))
        return None
    from virtune.virsh import Virsh

    means = means_of(asked)
    if found.subject.connect is None:
        plan = planned_proxmox(Path(found.origin), wish, means, place)
    else:
        plan = planned(Virsh(found.subject.connect, write=True), name, wish, means, place)
    return (plan.found, plan.make("")) if agreed([plan], yes=yes) else None
