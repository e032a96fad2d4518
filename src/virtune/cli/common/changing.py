# SPDX-License-Identifier: Apache-2.0
"""Changes of VMs as `apply` and `fix` show, ask for, make, measure and undo them."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virtune.cli.common.options import confirmed
from virtune.model.errors import UsageError
from virtune.model.text import printable
from virtune.model.verdict import Verdict

if TYPE_CHECKING:
    from virtune.apply.journal import Entry, Journal
    from virtune.cli.common.result_output import ResultOutput
    from virtune.flows.domains.advise import Wish
    from virtune.flows.domains.apply import Applied, Back, Means
    from virtune.flows.domains.domains import FoundDomain
    from virtune.flows.domains.like import LikeVm
    from virtune.flows.run.fix import Candidate, ChosenFix, Fixes
    from virtune.model.evidence import StudyRecord
    from virtune.model.finding import Advice
    from virtune.model.result import Result
    from virtune.model.study_options import StudyOptions
    from virtune.model.workload import Workload
    from virtune.store.store import Store
    from virtune.virsh import Virsh


def advice_text(domain: str, advice: "Advice", ways: Sequence[str] | None = None) -> str:
    from virtune.report.pages.audit import advice_lines

    return "\n".join(advice_lines(domain, advice, ways))


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The change of one VM as it is shown: what the VM is, what is advised, how each setting becomes effective where
    that is known; and what makes it, given the name of what is changed together.
    """

    found: "FoundDomain"
    advice: "Advice"
    ways: Sequence[str] | None
    make: "Callable[[str], Applied]"

    @property
    def name(self) -> str:
        """The VM's name."""
        return self.found.subject.domain.name or self.found.origin


def planned(virsh: "Virsh", name: str, wish: "Wish", means: "Means", place: Path) -> Planned:
    """Return the requested change of one domain."""
    from virtune.apply.journal import Journal
    from virtune.apply.libvirt import LibvirtDomain
    from virtune.flows.domains import advise as advising
    from virtune.flows.domains import apply as applying
    from virtune.flows.domains.domains import surroundings

    uuid = virsh.uuid(name)
    domain = LibvirtDomain(virsh, uuid)
    domain.require_persistent(name)
    found = surroundings(virsh, domain.dump())
    advice = advising.advise(found, wish)
    ways = applying.ways_of(advice, means, running=found.subject.running is not None)

    def make(group: str) -> "Applied":
        now = datetime.now(UTC)
        done = applying.apply(
            virsh, uuid, advice, found.text, journal=Journal(place), when=now, means=means, group=group
        )
        click.echo("\n".join(_told(done, restart=means.restart is not None, saved=domain.is_saved())))
        return done

    return Planned(found=found, advice=advice, ways=ways, make=make)


def planned_proxmox(path: Path, wish: "Wish", means: "Means", place: Path) -> Planned:
    """Return the same of a Proxmox VM of this node, which `qm set` changes."""
    from virtune.apply.journal import Journal
    from virtune.apply.proxmox import ProxmoxVm
    from virtune.flows.domains import advise as advising
    from virtune.flows.domains.apply import Applied
    from virtune.flows.domains.like import find_vm

    if means.restart is not None or means.replug:
        raise UsageError(
            "a Proxmox VM is not restarted or replugged here", hint="`qm shutdown` and `qm start`, when it suits"
        )
    vm = ProxmoxVm(path)
    found, _ = find_vm(str(path), None)
    advice = advising.advise(found, wish)

    def make(group: str) -> "Applied":
        now = datetime.now(UTC)
        entry, after = vm.apply(advice.turns, found.text, advice.after, journal=Journal(place), when=now, group=group)
        click.echo(f"changed; `virtune apply undo {entry.id}` puts it back")
        waiting = found.language.live is not None and found.language.live(after) is not None
        if waiting:
            click.echo("the VM is running: what `qm pending` shows is in effect after a shutdown and start")
        later = advice.turns if waiting else ()
        return Applied(entry=entry.id, after=after, now=(), later=later, running=waiting, restarted=False)

    return Planned(found=found, advice=advice, ways=None, make=make)


def agreed(plans: Sequence[Planned], *, yes: bool) -> bool:
    """Show changes and ask for them; whether they are to be made."""
    for one in plans:
        click.echo(advice_text(one.name, one.advice, one.ways))
    names = [one.name for one in plans if one.advice.turns]
    if not names:
        return False
    first, others = names[0], ", ".join(names[1:])
    question = printable(f"Change {first}" + (f" first, then {others}?" if others else "?"))
    return confirmed(question, yes=yes, hint="add --yes; `virtune apply advise` shows what would be changed")


def _told(done: "Applied", *, restart: bool, saved: bool) -> Iterator[str]:
    """Yield the report on a change that was made."""
    yield f"changed; `virtune apply undo {done.entry}` puts it back"
    if saved:
        yield "it was saved (managedsave): its next start resumes it with its old disks; the one after is new"
    if done.restarted:
        yield "it was powered off and on, is healthy, and runs with all of it"
    elif restart:
        yield "it is off, so there was nothing to restart: its next start has all of it"
    elif done.running and done.later:
        yield (
            f"the VM is running: {len(done.now)} in effect now, {len(done.later)} after a full power-off and start"
            " (a reboot is not enough)"
        )


def means_of(asked: Mapping[str, Any]) -> "Means":
    """Read the disruptions allowed for a running domain; raises UsageError for options that exclude each other, or
    that lack one they need.
    """
    from virtune.apply.health import read_sign
    from virtune.apply.journal import Restart
    from virtune.flows.domains.apply import Means

    signs, replug, seconds = asked["signs"], asked["replug"], asked["timeout_seconds"]
    if not asked["restart"]:
        if signs or asked["force_off"]:
            raise UsageError("--healthy and --force-off belong to --restart", hint="add --restart, or leave them out")
        return Means(restart=None, replug=replug, replug_seconds=seconds)
    if not signs:
        raise UsageError(
            "--restart needs --healthy: what tells that the guest is back?",
            hint="--healthy guest-agent, ping, ping:HOST or console:REGEX (console:login:)",
        )
    if replug:
        raise UsageError("--restart and --replug cannot be together", hint="with --restart every change takes effect")
    for sign in signs:
        read_sign(sign)
    power = Restart(healthy=signs, timeout_seconds=seconds, force_off=asked["force_off"])
    return Means(restart=power, replug=replug, replug_seconds=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """How a VM's disk is measured, and where that is kept; `loads` are the workloads where they are those of another
    study.
    """

    store: "Store"
    vm: str
    asked: "StudyOptions"
    out: "ResultOutput"
    loads: "Sequence[Workload]" = ()

    def choose(self, fixes: "Fixes", like: "LikeVm", *, again: bool) -> "ChosenFix | None":
        """Measure the candidates, go on with the same measurement, or take a finished one of the last hours; say what
        that shows. None where there is no candidate.
        """
        from virtune.flows.run.fix import choose

        if not fixes.candidates:
            click.echo("nothing of it can be measured here" if fixes.needed else "nothing to measure", err=True)
            return None
        record, result = self._result(fixes.candidates, like, title=f"fix {self.vm}", again=again)
        choice = choose(record, result, fixes)
        click.echo(f"\n{choice.why} ({record.study.id})")
        if not record.finished:
            click.echo("the measurement is not finished: call it again to go on", err=True)
        return choice

    def again(self, done: "tuple[FoundDomain, Applied]", target: str) -> Verdict | None:
        """Measure a disk as it was configured against how it is now, and say and return what that shows; None where
        nothing was measured.
        """
        from virtune.flows.run.fix import is_better, is_worse

        found, applied = done
        like, changed = self.changed(found, target, applied.after)
        if changed is None:
            click.echo(f"not measured again: nothing that changed of {target} is seen on rig={like.rig}")
            return None
        record, result = self._result([changed], like, title=f"verify {self.vm} {applied.entry}", again=True)
        verdict, said = Verdict.UNDECIDED, "not surely better"
        if is_better(record.study, result, changed.name):
            verdict = said = Verdict.BETTER
        elif is_worse(record.study, result, changed.name):
            verdict = said = Verdict.WORSE
        click.echo(f"\nmeasured again: {target} is {said} than it was ({record.study.id})")
        return verdict

    def changed(self, found: "FoundDomain", target: str, after: bytes) -> "tuple[LikeVm, Candidate | None]":
        """Return what a VM's disk is like, and a changed configuration as an arm; None where what changes is not seen
        on that rig. Raises where it cannot be measured.
        """
        from virtune.flows.domains.like import liken
        from virtune.flows.run.fix import candidate_of, question_of
        from virtune.flows.run.question import study_for

        like = liken(found, target, self.asked)
        changed = candidate_of(found, target, after, like)
        if changed is not None:
            study_for(question_of(self.asked, [changed], like, title="", loads=self.loads))
        return like, changed

    def _result(
        self, candidates: "Sequence[Candidate]", like: "LikeVm", *, title: str, again: bool
    ) -> "tuple[StudyRecord, Result]":
        from virtune.cli.common.run_study import going_on
        from virtune.flows.run.fix import measured_before, question_of
        from virtune.flows.run.preconditions import Leave
        from virtune.flows.run.question import facts_text, study_for
        from virtune.flows.run.study import resume_study, run_study
        from virtune.flows.stored.show import current

        store = self.store
        study = study_for(question_of(self.asked, candidates, like, title=title, loads=self.loads))
        known = None if again else measured_before(store, study)
        leave = Leave()
        if known is None:
            facts = facts_text(Path(study.scratch))
            going_on(
                store, study, lambda say: run_study(study, store=store, say=say, leave=leave, facts=facts), self.out
            )
        elif not known.finished:
            study, record = known.study, known
            going_on(store, study, lambda say: resume_study(record, store=store, say=say, leave=leave), self.out)
        else:
            study = known.study
            click.echo(f"measured before: {study.id}; --again measures anew", err=True)
        return current(store, study.id)


def put_back(verdict: Verdict | None, applied: "Applied", *, stays: bool, journal: Path, yes: bool) -> bool:
    """Offer to put back a change that was measured and not surely better, and do so where it is worse and nobody is
    asked; whether it was put back. It `stays` where errors, warnings and --also asked for all of it: what keeps data
    safe may well be slower.
    """
    from virtune.apply.journal import Journal
    from virtune.flows.domains.apply import Back

    if verdict in (Verdict.BETTER, None):
        return False
    worse = verdict is Verdict.WORSE
    if stays:
        click.echo(
            f"it stays, since errors, warnings or --also asked for it; `virtune apply undo {applied.entry}` undoes it"
        )
        return False
    if worse if yes or not sys.stdin.isatty() else click.confirm("Put it back?", default=worse):
        kept = Journal(journal)
        entry = kept.find(applied.entry)
        back = Back(restart=applied.restarted, replug=bool(entry.plugs))
        click.echo(undone(entry, kept, entry.uri, back, anyway=False))
        return True
    click.echo(f"`virtune apply undo {applied.entry}` puts it back")
    return False


def undone(entry: "Entry", kept: "Journal", uri: str, back: "Back | None", *, anyway: bool) -> str:
    """Undo one change and say what was done; without `back`, say how the domain differs from what was made of it."""
    from virtune.apply.libvirt import LibvirtDomain
    from virtune.apply.proxmox import SCHEME, ProxmoxVm, changed_since
    from virtune.flows.domains import apply as applying
    from virtune.flows.domains.domains import unified
    from virtune.flows.live.turnable import MONITOR, put_back
    from virtune.virsh import Virsh

    if uri.startswith(MONITOR):
        if back is None:
            said = ", ".join(f"{one.knob}={one.value}" for one in entry.turns)
            return f"{entry.domain}: it has {said} for a test as long as that runs"
        return put_back(entry, kept)
    if uri.startswith(SCHEME):
        vm = ProxmoxVm(Path(uri.removeprefix(SCHEME)))
        if back is not None:
            return vm.undo(entry, journal=kept, anyway=anyway)
        shown = unified(entry.found or entry.after, text := vm.text(), name=entry.domain)
        return shown if changed_since(entry, text) else f"{entry.domain}: unchanged since"
    virsh = Virsh(uri, write=True)
    if back is not None:
        return applying.undo(virsh, entry, journal=kept, anyway=anyway, back=back)
    current = LibvirtDomain(virsh, entry.uuid).configuration()
    return applying.changed_since(entry, current) or f"{entry.domain}: unchanged since"
