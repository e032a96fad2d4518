# SPDX-License-Identifier: Apache-2.0
"""The verbs about existing VMs: `audit` and `advise` only read them, `apply` changes them, `undo` puts them back."""

import contextlib
import json
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from virtune.advise.placement import NAME as FLASH
from virtune.cli.common.changing import (
    Measuring,
    Planned,
    advice_text,
    agreed,
    means_of,
    planned,
    planned_proxmox,
    put_back,
    undone,
)
from virtune.cli.common.options import adding, in_data, json_option, store_option
from virtune.cli.common.result_output import require_report, write_page
from virtune.cli.common.surroundings import Failure, say
from virtune.cli.common.verb import Verb, verbs_and_files
from virtune.model.errors import StorePlace, UsageError, VirtuneError
from virtune.model.finding import Audited, PassedOver, Severity, Unread
from virtune.model.text import printable

if TYPE_CHECKING:
    from virtune.flows.domains.advise import Wish
    from virtune.flows.domains.apply import Applied, Means
    from virtune.flows.domains.domains import FoundDomain

Command = TypeVar("Command", bound=Callable[..., Any])

BREACHED, UNREADABLE, UNDECIDED = 4, 2, 5
"""A domain that no rule can judge may be as bad as `--fail-on` asks, and nothing shows whether it is: undecided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vms:
    """What the user named: files and folders of configurations, or a libvirt and its domains; and `here`, that the
    files' domains run on this host.
    """

    paths: tuple[Path, ...]
    connect: str | None
    domains: tuple[str, ...]
    here: bool

    @classmethod
    def of(cls, asked: Mapping[str, Any]) -> "Vms":
        """Take them out of all that click parsed."""
        return cls(paths=asked["paths"], connect=asked["connect"], domains=asked["domains"], here=asked["here"])

    def read(self, *, nothing: str, hint: str) -> "Iterator[FoundDomain | Unread | PassedOver]":
        """Yield each domain; raises UsageError with `nothing` and a hint where none is named."""
        from virtune.flows.domains.domains import everywhere

        if self.domains and not self.connect:
            raise UsageError("--domain names a libvirt domain", hint="add --connect qemu:///system")
        if not self.paths and not self.connect:
            raise UsageError(nothing, hint=f"{hint}, or --connect qemu:///system")
        return everywhere(self.paths, self.connect, self.domains, here=self.here)


def vms_options(connect_help: str) -> Callable[[Command], Command]:
    """Add the words of `Vms`."""
    return adding(
        click.argument("paths", metavar="[FILE|FOLDER|VM]...", nargs=-1, type=click.Path(path_type=Path)),
        click.option("--connect", metavar="URI", default=None, help=connect_help),
        click.option("--domain", "domains", metavar="NAME", multiple=True, help="Only this domain; repeatable."),
        click.option("--here", is_flag=True,
                     help="The files' domains run on this host: look at its kernel, QEMU and images."),
    )  # fmt: skip


wish_options = adding(
    click.option("--template", type=click.Choice([FLASH]), default=None,
                 help="For disks on flash: cache=none, io_uring where it is sound, discard, an IOThread."),
    click.option("--rule", "rules", metavar="ID", multiple=True, help="Fix what this audit rule finds (e.g."
                                                                      " R01)."),
    click.option("--set", "turns", metavar="KNOB@PLACE=VALUE", multiple=True,
                 help="Set this knob: disk.cache@vda=none, iothread.pin@iothread:1=3; an empty value"
                      " removes it."),
)  # fmt: skip
"""The options for the requested changes."""

study_options = adding(
    click.option("--from", "study", metavar="STUDY[:ARM]", default=None,
                 help="What this study showed to be better: a search's winner, or a comparison's better arm (one that"
                      " is named: whatever its verdict)."),
    click.option("--disk", metavar="NAME", default="",
                 help="The disk that --from changes.  [default: the one that the study was like]"),
    store_option,
)  # fmt: skip
"""The options for changes that a study of this store showed to be better."""


def wish_of(asked: Mapping[str, Any]) -> "Wish":
    """Read the words of `wish_options`."""
    from virtune.flows.domains.advise import Wish, read_turn

    study, disk = asked.get("study"), asked.get("disk", "")
    if sum(map(bool, (asked["template"], asked["rules"], study))) > 1:
        raise UsageError("--template, --rule and --from cannot be together", hint="do one, then the other")
    if disk and not study:
        raise UsageError("--disk belongs to --from", hint="`--set KNOB@DISK=VALUE` names the disk of a setting")
    turns = tuple(read_turn(text) for text in asked["turns"])
    found = None
    if study:
        from virtune.flows.domains.measured import measured

        found = measured(asked["store"], study, disk=disk)
        click.echo(printable(f"from {found.said}"), err=True)
    return Wish(template=asked["template"], measured=found, rules=asked["rules"], turns=turns)


journal_option = click.option(
    "--journal",
    type=click.Path(path_type=Path, file_okay=False),
    default=in_data("journal"),
    help="Directory of the change journal.  [default: in your data directory]",
)


restart_options = adding(
    click.option(
        "--restart", is_flag=True, help="Power a running VM off and on, so that every change takes effect now."
    ),
    click.option(
        "--healthy", "signs", metavar="SIGN", multiple=True,
        help="Sign that the guest is back: guest-agent, ping, ping:HOST, console:REGEX. Repeatable; all must hold.",
    ),
    click.option(
        "--replug", metavar="DISK", multiple=True,
        help="Detach and attach this disk of a running VM; the guest must not be using it.",
    ),
    click.option(
        "--timeout", "timeout_seconds", metavar="SECONDS", type=click.FloatRange(1, 86400), default=120.0,
        show_default=True, help="Time limit for the guest to shut down, to come back, or to release a disk.",
    ),
    click.option("--force-off", is_flag=True,
                 help="Power off a guest that does not shut down in time, without asking it again."),
)  # fmt: skip
"""How a change becomes effective on a running VM."""


@click.command("audit")
@vms_options("libvirt URI: audit its domains (e.g. qemu:///system).")
@click.option(
    "--fail-on", type=click.Choice([*(one.value for one in Severity), "never"]), default=Severity.WARNING.value,
    show_default=True,
    help="Exit 4 on a finding of at least this severity, 5 where none was found and a domain could not be audited.",
)  # fmt: skip
@click.option("--ignore", metavar="RULE", multiple=True, help="Leave this rule out (R25); repeatable.")
@click.option("--brief", is_flag=True, help="Only a table of VMs and rules.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), default=None, metavar="FILE",
              help="Write the audit with a table of VMs by rules as one HTML file.")  # fmt: skip
@store_option
@json_option
@click.option("--sarif", "as_sarif", is_flag=True, help="Write SARIF 2.1.0 to stdout, for code scanners.")
def audit(*, fail_on: str, ignore: tuple[str, ...], html: Path | None, store: StorePlace, **asked: Any) -> int:
    """Audit VM disk configuration for performance and data-safety problems.

    FILE is a domain's XML as `virsh dumpxml` prints it, or another system's configuration of a VM
    (docs/reference/dialects.md): its content tells. A FOLDER is searched for such files. A libvirt is only read from.
    Errors and warnings hold as they stand; a `try` is a thing worth measuring, with the command that does it. Where a
    kept study of this host has measured that very change, its verdict is given.
    docs/reference/rules.md has every rule.

    \b
    virtune audit vm.xml
    virtune audit /etc/libvirt/qemu --here
    virtune audit /etc/pve/qemu-server
    virtune audit --connect qemu:///system --domain web1
    virtune audit --connect qemu:///system --brief --ignore R25
    virtune audit domains/ --sarif > audit.sarif
    """  # noqa: D301 - \b is click's mark for lines to keep
    require_report(html)
    forms = [form for form in ("as_json", "as_sarif", "brief") if asked[form]]
    if len(forms) > 1:
        raise UsageError("--json, --sarif and --brief cannot be together: each is all that is written to stdout")
    form = "".join(forms)
    vms, each = Vms.of(asked), form in ("as_json", "as_sarif")
    found = vms.read(nothing="nothing to audit", hint="name a running VM, or files or folders of domain XML")
    from virtune.flows.domains.advise import audit_all
    from virtune.report.pages.audit import SHOWN_IN_FULL

    past = None
    if (vms.here or vms.connect) and store.exists():  # else it needs no database's library
        with contextlib.suppress(ModuleNotFoundError):  # an audit without these libraries only lacks the results
            from virtune.flows.stored.earlier_studies import Past

            past = Past(store)
    diffs = sys.maxsize if each else 0 if form == "brief" else SHOWN_IN_FULL
    results = list(audit_all(found, diffs=diffs, each=each, ignored=ignore, past=past))
    audited = [one for one in results if isinstance(one, Audited)]
    unread = [one for one in results if isinstance(one, Unread)]
    if html is not None:
        from virtune.report.html.page import audit_page

        write_page(html, audit_page(audited, unread))
    click.echo(_audit_text(form, audited, unread, [one for one in results if isinstance(one, PassedOver)]))
    return exit_code(audited, fail_on, unread=bool(unread))


def exit_code(audited: Sequence[Audited], fail_on: str, *, unread: bool) -> int:
    """Return 4 for a finding of at least that severity, then 2 for what could not be read, then 5 for a domain that
    could not be audited, which `never` does not ask for.
    """
    never = fail_on == "never"
    worst = max((finding.rule.severity.rank for one in audited for finding in one.findings), default=-1)
    if not never and worst >= Severity(fail_on).rank:
        return BREACHED
    if unread:
        return UNREADABLE
    return UNDECIDED if not never and any(one.not_audited for one in audited) else 0


def _audit_text(form: str, audited: list[Audited], unread: list[Unread], passed: list[PassedOver]) -> str:
    """Return an audit as one of the forms that are written to stdout; the full text if none is named."""
    if form == "as_sarif":
        from virtune.advise.audit import rules
        from virtune.report.sarif import sarif

        return json.dumps(sarif(rules(), audited, unread, passed), indent=2)
    if form == "as_json":
        from virtune.report.json.audit import audit_document

        return json.dumps(audit_document(audited, unread, passed), indent=2)
    from virtune.report.pages import audit as shown

    if form == "brief":
        return "\n".join(shown.brief(audited, unread, passed))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else shown.WIDTH
    return "\n".join(shown.page(audited, unread, passed, width=width))


@click.command("advise")
@vms_options("libvirt URI: advise on its domains.")
@click.option(
    "--for-requirements", "needs", metavar="ANSWERS", default=None,
    help="Which structure of VMs and drives fits: scale-out=yes|no,own=yes|no,virtio=yes|no.",
)  # fmt: skip
@wish_options
@study_options
@json_option
def advise(*, needs: str | None, store: StorePlace, as_json: bool, **asked: Any) -> int:
    """Show the changes that would fix the disks of VMs, as a diff. Nothing is changed.

    Without --template, --rule and --set these are the fixes for the errors and warnings of `virtune audit`. Each
    change has what it takes on a running VM and what it risks. The template `flash` is a published configuration for
    disks on flash; `virtune compare` tells whether it is faster on your host.

    --for-requirements shows a structure's share of bare metal's IOPS as published, and as this host's own studies
    measured it: those in the store with an arm of that structure and one of `rig=metal`. It shows every structure
    that the answers leave open.

    \b
    virtune apply advise vm.xml
    virtune apply advise --template flash --connect qemu:///system
    virtune apply advise --set disk.cache@vda=none vm.xml
    virtune apply advise --from last:io_uring --disk sda web1.xml
    virtune apply advise --set disk.cache@scsi0=none /etc/pve/qemu-server/101.conf
    virtune apply advise --for-requirements scale-out=no,own=no,virtio=yes
    """  # noqa: D301 - \b is click's mark for lines to keep
    vms = Vms.of(asked)
    if needs is not None:
        _structure(needs, store, alone=not (vms.paths or vms.connect or as_json))
        return 0
    named = vms.read(nothing="nothing to advise on", hint="name files of domain XML")
    from virtune.advise.audit import not_audited
    from virtune.flows.domains.advise import advise_all
    from virtune.flows.domains.domains import FoundDomain
    from virtune.report.json.audit import advice_document, advised_domain

    wish = wish_of({**asked, "store": store})
    read = list(named)
    known = list(advise_all([one for one in read if isinstance(one, FoundDomain)], wish))
    for one in (unread := [one for one in read if isinstance(one, Unread)]):
        click.echo(f"not read: {one.origin}: {one.because}", err=True)
    for found, _ in known:
        if because := not_audited(found.subject.domain):
            click.echo(printable(f"{found.subject.domain.name}: not audited: {because}"), err=True)
    if as_json:
        parts = [advised_domain(found.origin, found.subject.domain, advice) for found, advice in known]
        click.echo(json.dumps(advice_document(parts), indent=2))
    for found, advice in () if as_json else known:
        click.echo(advice_text(found.subject.domain.name, advice))
    return 2 if unread else 0


def _structure(needs: str, store: StorePlace, *, alone: bool) -> None:
    """Show the structures of VMs that the published guideline leaves open, by what was answered."""
    from rich.console import Group

    from virtune.advise.guidelines import CONFIGURATION, requirements
    from virtune.cli.common.output import put
    from virtune.flows.stored.earlier_studies import own_shares
    from virtune.model.bottleneck import open_ends, walk
    from virtune.report.pages.diagnose import every_end, open_lines

    if not alone:
        raise UsageError("--for-requirements is a question of its own", hint="leave out files, --connect and --json")
    try:
        answers = requirements(needs.split(","))
    except ValueError as error:
        raise UsageError(str(error)) from None
    found = walk(CONFIGURATION, answers)
    own = {leaf.id: own_shares(store, leaf.id) for leaf, _ in open_ends(CONFIGURATION, answers)}
    put(Group(*open_lines(found, own), *every_end(CONFIGURATION)))


@click.command(name="apply", cls=Verb)
@click.argument("domains", metavar="DOMAIN...", nargs=-1, required=True, shell_complete=verbs_and_files)
@click.option(
    "--connect", metavar="URI", default=None,
    help="libvirt URI of the domains, e.g. qemu:///system.  [default: virsh's]",
)  # fmt: skip
@wish_options
@study_options
@click.option("--verify", is_flag=True,
              help="Measure the changed configuration of the first VM against the old one, as the study of --from was"
                   " measured; one that is worse is put back, and the other VMs are left alone.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show the changes, and make none.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@restart_options
@journal_option
def apply(
    domains: tuple[str, ...], *, connect: str | None, verify: bool, dry_run: bool, yes: bool, journal: Path,
    **asked: Any,
) -> int:  # fmt: skip
    """Apply changes to libvirt and Proxmox VMs (journaled, reversible).

    The changes are those of `virtune apply advise`. They are shown first, and virtune asks before it makes them. They
    are journaled before they are made, and what libvirt made of them is checked. On any failure the VM is put back;
    `virtune apply undo` does so later. Pins, polling, limits and new IOThreads take effect at once, everything else
    after a full power-off and start. --restart does that: the guest is shut down and started, and must come back with
    every change verified, or it gets its old configuration and is started as it was. --replug detaches and attaches
    one disk that the guest does not use, never the one it boots from.

    Of several VMs all changes are shown first. The first VM goes ahead; where its change fails, or it does not come
    back, or is worse (--verify), no other is touched. They are undone together.

    A Proxmox VM of this node is named by its number. `qm set` changes it, and refuses where somebody else did; what a
    running VM takes at its next start waits in its configuration (`qm pending`).

    \b
    virtune apply web1
    virtune apply 101 --set disk.cache@scsi0=none
    virtune apply web1 --connect qemu:///system --template flash
    virtune apply web1 --set disk.cache@vda=none --yes
    virtune apply web1 web2 web3 --from last:io_uring --disk sda --verify
    virtune apply web1 --template flash --restart --healthy guest-agent
    virtune apply web1 --template flash --restart --healthy 'console:login:' --timeout 60
    virtune apply web1 --set disk.aio@vdb=io_uring --replug vdb
    """  # noqa: D301 - \b is click's mark for lines to keep
    if verify and not asked["study"]:
        raise UsageError("--verify belongs to --from", hint="`virtune fix VM` measures what it changes")
    wish, means = wish_of(asked), means_of(asked)
    plans = [_planned(name, connect, wish, means, journal) for name in dict.fromkeys(domains)]
    if dry_run:
        for one in plans:
            click.echo(advice_text(one.name, one.advice, one.ways))
        return 0
    due = [one for one in plans if one.advice.turns]
    with contextlib.ExitStack() as ends:
        verified = _verifying(due[0], asked, journal, ends, yes=yes) if verify and due else None
        return _all_changed(due, verified, yes=yes) if agreed(plans, yes=yes) else 0


def _planned(name: str, connect: str | None, wish: "Wish", means: "Means", place: Path) -> Planned:
    from virtune.bench.live.emulators import emulator_called
    from virtune.flows.domains.like import path_of, require_here
    from virtune.virsh import Virsh, default_uri

    require_here(name, connect)
    if connect is None and (path := path_of(name)).suffix == ".conf" and path.is_file():
        return planned_proxmox(path, wish, means, place)
    if connect is None and (running := emulator_called(name)) is not None:
        if running.configuration.suffix == ".conf":
            return planned_proxmox(running.configuration, wish, means, place)
        raise UsageError(
            f"{name} runs here without a libvirt, and process {running.pid} keeps the line that it was started with",
            hint="change what starts it; its audit says what is to be changed",
        )
    return planned(Virsh(connect or default_uri(), write=True), name, wish, means, place)


def _all_changed(plans: Sequence[Planned], verified: "Callable[[Applied], bool] | None", *, yes: bool) -> int:
    """Change one VM after the other, the first alone; returns the exit status. What fails stops it."""
    group = f"all-{secrets.token_hex(3)}" if plans[1:] else ""
    for number, plan in enumerate(plans):
        done, left = [one.name for one in plans[:number]], ", ".join(one.name for one in plans[number:])
        if number == 1 and not yes and not click.confirm(printable(f"{done[0]} is changed. Go on with {left}?")):
            click.echo(f"`virtune apply undo {group}` puts it back")
            return 0
        if group:
            click.echo(printable(f"{plan.name}:"))
        later = ", ".join(one.name for one in plans[number + 1 :])
        said = [f"{', '.join(done)} stay changed: `virtune apply undo {group}`"] * bool(done)
        said += [f"not touched: {later}"] * bool(later)
        try:
            applied = plan.make(group)
        except VirtuneError as error:
            error.hint = "; ".join(filter(None, (error.hint, *said))) or None
            raise
        except KeyboardInterrupt:
            click.echo(printable("; ".join(said)), err=True, nl=bool(said))
            raise
        if number == 0 and verified is not None and not verified(applied):
            if group:
                click.echo(printable(f"not touched: {', '.join(one.name for one in plans[1:])}"))
            return BREACHED
    if group:
        click.echo(f"{len(plans)} VMs are changed; `virtune apply undo {group}` puts them back")
    return 0


def _verifying(
    plan: Planned, asked: Mapping[str, Any], place: Path, ends: contextlib.ExitStack, *, yes: bool
) -> "Callable[[Applied], bool]":
    """Return what measures a changed VM against what it was, and says whether the change stays; raises where that
    cannot be measured, before anything is changed.
    """
    from virtune.cli.common.result_output import ResultOutput
    from virtune.flows.run.fix import asked_again
    from virtune.model.verdict import Verdict
    from virtune.store.store import Store

    kept = ends.enter_context(Store(asked["store"]))
    source = kept.get(kept.find(asked["study"].partition(":")[0]), distributions=False).study
    loads = [one for one in source.workloads if not one.probe and one.offered_iops is None]
    measuring = Measuring(store=kept, vm=plan.name, asked=asked_again(source), out=ResultOutput(), loads=loads)
    disks = (turn.at for turn in plan.advice.turns if plan.found.subject.domain.disk(turn.at) is not None)
    target = next(disks, None)
    if target is None or not loads or measuring.changed(plan.found, target, plan.advice.after)[1] is None:
        raise UsageError(
            f"nothing that changes of {plan.name} is seen as the study was measured, so it cannot be measured again",
            hint="leave --verify out",
        )

    def verified(applied: "Applied") -> bool:
        verdict = measuring.again((plan.found, applied), target)
        return not put_back(verdict, applied, stays=False, journal=place, yes=yes) and verdict is not Verdict.WORSE

    return verified


@click.command("undo")
@click.argument("change", metavar="[CHANGE|DOMAIN|last]", required=False)
@click.option("--list", "listed", is_flag=True, help="List the changes in the journal.")
@click.option(
    "--show", is_flag=True, help="Show how the domain differs from what virtune made of it; change nothing."
)
@click.option("--anyway", is_flag=True, help="Undo even if the VM was changed by others since.")
@click.option("--restart", is_flag=True, help="Power the VM off and on again too, if `apply --restart` did.")
@click.option(
    "--replug", is_flag=True, help="Replug disks of the running VM back too, if `apply --replug` replugged them."
)
@click.option(
    "--force-off", is_flag=True, help="Power off a guest that does not shut down in time, without asking it again."
)
@click.option("--connect", metavar="URI", default=None, help="libvirt URI to use instead of the journal's.")
@journal_option
def undo(change: str | None, *, listed: bool, show: bool, connect: str | None, journal: Path, **asked: Any) -> int:
    """Put a VM's configuration back, byte for byte, as it was before `virtune apply`.

    Also after virtune was killed half-way. A domain that somebody else has changed since is left alone, unless
    --anyway says otherwise. With nothing named, every change that was cut short is undone, or else the last one.
    One that cannot be read or undone is named, and the others are undone all the same.
    A restart that was cut short is taken back too: the VM is started as it was.

    \b
    virtune apply undo
    virtune apply undo last
    virtune apply undo 20261122-015500-1f2e
    """  # noqa: D301 - \b is click's mark for lines to keep
    from virtune.apply.journal import Journal
    from virtune.flows.domains.apply import Back

    kept = Journal(journal)
    damaged = () if change else kept.damaged()
    for why in damaged:
        click.echo(f"damaged: {why}", err=True)
    code = 1 if damaged else 0
    if listed:
        for entry in kept.entries():
            turns = ", ".join(f"{t.knob}{'@' if t.at else ''}{t.at}={t.value or ''}" for t in entry.turns)
            beside = f"  {entry.group}" if entry.group else ""
            click.echo(printable(f"{entry.id}{beside}  {entry.domain}  {entry.steps[-1].value}  {turns}"))
        return code
    cut_short = tuple(entry for entry in kept.entries() if entry.open)
    entries = kept.named(change or "last") if change or show or not cut_short else cut_short
    anyway = asked.pop("anyway")
    back = None if show else Back(**asked)
    for entry in reversed(entries):
        try:
            click.echo(undone(entry, kept, connect or entry.uri, back, anyway=anyway))
        except VirtuneError as error:
            if len(entries) == 1:
                raise
            code = say(Failure(f"{entry.id} of {entry.domain}: {error.message}", error.hint, error.exit_code))
    return code
