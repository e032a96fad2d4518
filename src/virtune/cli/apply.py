# SPDX-License-Identifier: Apache-2.0
"""`virtune apply`: change the disks of a VM, reversibly."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from virtune.cli.common.change_options import advice_lines, journal_option, wish_of, wish_options
from virtune.flows.domains.advise import Wish
from virtune.model.errors import UsageError

if TYPE_CHECKING:
    from virtune.flows.domains.apply import Applied, Means
    from virtune.virsh import Virsh


@click.command("apply")
@click.argument("domains", metavar="DOMAIN...", nargs=-1, required=True)
@click.option(
    "--connect", metavar="URI", default=None,
    help="libvirt URI of the domains, e.g. qemu:///system.  [default: virsh's]",
)  # fmt: skip
@wish_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--restart", is_flag=True, help="Power a running VM off and on, so that every change takes effect now.")
@click.option(
    "--healthy",
    "signs",
    metavar="SIGN",
    multiple=True,
    help="Sign that the guest is back: guest-agent, ping, ping:HOST, console:REGEX. Repeatable; all must hold.",
)
@click.option(
    "--replug",
    metavar="DISK",
    multiple=True,
    help="Detach and attach this disk of a running VM; the guest must not be using it.",
)
@click.option(
    "--timeout",
    "timeout_seconds",
    metavar="SECONDS",
    type=click.FloatRange(1, 86400),
    default=120.0,
    show_default=True,
    help="Time limit for the guest to shut down, to come back, or to release a disk.",
)
@click.option(
    "--force-off", is_flag=True, help="Power off a guest that does not shut down in time, without asking it again."
)
@journal_option
def command(
    domains: tuple[str, ...],
    *,
    connect: str | None,
    template: str | None,
    rules: tuple[str, ...],
    turns: tuple[str, ...],
    yes: bool,
    restart: bool,
    signs: tuple[str, ...],
    replug: tuple[str, ...],
    timeout_seconds: float,
    force_off: bool,
    journal: Path,
) -> None:
    """Apply changes to libvirt VMs (journaled, reversible).

    The changes are those that `virtune advise` shows. They are shown first, and virtune asks before it makes them.
    They are journaled before they are made, and what libvirt made of them is checked. On any failure the VM is put
    back; `virtune undo` does so later. Pins, polling, limits and new IOThreads take effect at once, everything else
    after a full power-off and start. --restart does that: the guest is shut down and started, and must come back with
    every change verified, or it gets its old configuration and is started as it was. --replug detaches and attaches
    one disk that the guest does not use, never the one it boots from.

    \b
    virtune apply web1
    virtune apply web1 --connect qemu:///system --template flash
    virtune apply web1 --set disk.cache@vda=none --yes
    virtune apply web1 --template flash --restart --healthy guest-agent
    virtune apply web1 --template flash --restart --healthy 'console:login:' --timeout 60
    virtune apply web1 --set disk.aio@vdb=io_uring --replug vdb
    """  # noqa: D301 - \b is click's mark for lines to keep
    from virtune.virsh import Virsh, default_uri

    wish = wish_of(template, rules, turns)
    means = _means(signs, replug, timeout_seconds, restart=restart, force_off=force_off)
    virsh = Virsh(connect or default_uri(), write=True)
    for name in domains:
        _change(virsh, name, wish, means, journal, yes=yes)


def _change(virsh: "Virsh", name: str, wish: Wish, means: "Means", place: Path, *, yes: bool) -> None:
    """Show the requested change of one domain, ask for confirmation, and make it."""
    from virtune.apply.journal import Journal
    from virtune.apply.libvirt import LibvirtDomain
    from virtune.flows.domains.advise import advise
    from virtune.flows.domains.apply import apply, ways_of
    from virtune.flows.domains.domains import surroundings

    uuid = virsh.uuid(name)
    domain = LibvirtDomain(virsh, uuid)
    domain.require_persistent(name)
    found = surroundings(virsh, domain.dump())
    advice = advise(found, wish)
    ways = ways_of(advice, means, running=found.subject.running is not None)
    click.echo("\n".join(advice_lines(found.subject.domain.name, advice, ways)))
    if not advice.turns:
        return
    if not yes and not sys.stdin.isatty():
        raise UsageError(
            "cannot ask for confirmation: stdin is not a terminal",
            hint="add --yes; `virtune advise` shows what would be changed",
        )
    if not yes and not click.confirm(f"Change {found.subject.domain.name}?"):
        return
    done = apply(virsh, uuid, advice, found.text, journal=Journal(place), when=datetime.now(UTC), means=means)
    click.echo("\n".join(_told(done, restart=means.restart is not None, saved=domain.is_saved())))


def _told(done: "Applied", *, restart: bool, saved: bool) -> Iterator[str]:
    """Yield the report on a change that was made."""
    yield f"changed; `virtune undo {done.entry}` puts it back"
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


def _means(
    signs: tuple[str, ...], replug: tuple[str, ...], timeout_seconds: float, *, restart: bool, force_off: bool
) -> "Means":
    """Read the disruptions allowed for a running domain; raises UsageError for options that exclude each other, or
    that lack one they need.
    """
    from virtune.apply.health import read_sign
    from virtune.apply.journal import Restart
    from virtune.flows.domains.apply import Means

    if restart and not signs:
        raise UsageError(
            "--restart needs --healthy: what tells that the guest is back?",
            hint="--healthy guest-agent, ping, ping:HOST or console:REGEX (console:login:)",
        )
    if restart and replug:
        raise UsageError("--restart and --replug cannot be together", hint="with --restart every change takes effect")
    if not restart and (signs or force_off):
        raise UsageError("--healthy and --force-off belong to --restart", hint="add --restart, or leave them out")
    for sign in signs:
        read_sign(sign)
    power = Restart(healthy=signs, timeout_seconds=timeout_seconds, force_off=force_off) if restart else None
    return Means(restart=power, replug=replug, replug_seconds=timeout_seconds)
