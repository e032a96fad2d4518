# SPDX-License-Identifier: Apache-2.0
"""`virtune host`: `probe`, `knobs`, `check`, `doctor`, `clean`, `guest`."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virtune.cli.common import options
from virtune.cli.common.verb import Verb, VerbFamily
from virtune.model.errors import StorePlace, UsageError
from virtune.model.knob import Layer
from virtune.model.text import format_bytes

if TYPE_CHECKING:
    from rich.console import RenderableType

    from virtune.model.result import Fitness, Neighbour


@click.group(name="host", cls=VerbFamily)
def host() -> None:
    """This host: its facts, whether it is fit to measure, the settings of its I/O path, leftovers, the test guest."""


@host.command("probe")
@click.argument("paths", metavar="[FILE|FOLDER]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--connect", metavar="URI", default=None, help="libvirt URI: show its domains instead of the host.")
@click.option("--domain", "domains", metavar="NAME", multiple=True, help="Only this domain; repeatable.")
@options.scratch_option(
    "Directory for scratch images: virtune looks at its filesystem and disks, and leaves nothing in it."
)
@options.json_option
def probe(
    paths: tuple[Path, ...], connect: str | None, domains: tuple[str, ...], scratch: Path, *, as_json: bool
) -> int:
    """Show the facts of this host that decide about disk I/O, with warnings.

    Nothing is changed. io_uring, O_DIRECT and KVM are tried, as far as that leaves nothing behind; that /dev/kvm
    opens does not yet mean that a guest boots.

    With --connect, or files of domain XML, the domains are shown: their disks as they start next, as they run, and
    the settings that the running QEMU shows. A libvirt is only read from.

    \b
    virtune host probe
    virtune host probe --scratch /var/lib/libvirt/images
    virtune host probe --json | jq .findings
    virtune host probe --connect qemu:///system
    """  # noqa: D301 - \b is click's mark for lines to keep
    if domains and not connect:
        raise UsageError("--domain names a libvirt domain", hint="add --connect qemu:///system")
    if paths or connect:
        return _domains(paths, connect, domains, as_json=as_json)
    from virtune.cli.common.output import show
    from virtune.flows.probe import probe
    from virtune.report.json.host import probe_document
    from virtune.report.pages.probe import render

    facts, remarks = probe(scratch)
    show(lambda: probe_document(facts, remarks), lambda: render(facts, remarks), as_json=as_json)
    return 0


def _domains(paths: tuple[Path, ...], connect: str | None, domains: tuple[str, ...], *, as_json: bool) -> int:
    from virtune.flows.domains.domains import everywhere, probe_domains
    from virtune.report.json.audit import domains_document
    from virtune.report.pages.audit import domains_page

    found, unread = probe_domains(everywhere(paths, connect, domains, here=False))
    click.echo(
        json.dumps(domains_document(found, unread), indent=2) if as_json else "\n".join(domains_page(found, unread))
    )
    return 2 if unread else 0


LAYERS: dict[str, Layer] = {layer.name.lower().replace("_", "-"): layer for layer in Layer}
"""The layers by words without spaces."""


@host.command(name="knobs")
@click.argument("name", required=False)
@click.option("--layer", type=click.Choice(list(LAYERS)), help="Only the knobs of this layer.")
@click.option("--no-ask", is_flag=True, help="Do not ask the installed QEMU what it has.")
@click.option("--emulator", metavar="PATH", help="Ask this qemu-system program in the place of the installed one.")
@options.json_option
def knobs(name: str | None, layer: str | None, *, no_ask: bool, emulator: str | None, as_json: bool) -> None:
    """List the settings of the I/O path: values, cost of a change, risk.

    NAME is a knob (disk.aio), a number of the reference page (K45), or a family (iothread). A single knob is shown
    with all that is known about it, and with what the installed QEMU says.
    """
    from virtune.cli.common.output import show
    from virtune.flows.probe import look
    from virtune.report.json.knobs import knobs_document
    from virtune.report.pages.knobs import knob_card, knob_table

    shown = look(name, layer=LAYERS[layer] if layer else None, ask=not no_ask, emulator=emulator)
    found, answers, asked = shown.knobs, shown.answers, shown.asked

    def page() -> "RenderableType":
        if name is None or len(found) > 1:
            return knob_table(found, answers)
        return knob_card(found[0], answers.get(found[0].id, ()), asked=asked)

    show(lambda: knobs_document(found, answers, asked=asked), page, as_json=as_json)


@host.command(name="check", cls=Verb)
@options.study_options("check")
@click.option("--fail-if-noisier", type=options.ShareType(0.001, 10), default=None, metavar="SHARE",
              help="Exit 4 if a 5-minute comparison could not detect a difference of this size (0.03 is 3 %), or"
                   " this host is NOT FIT for another reason; 5 if so few trials do not exclude that it could"
                   " not.")  # fmt: skip
@options.begin_options
@click.option("--quiet", "-q", is_flag=True, help="Print the result only: no progress and no notes.")
@options.verbose_option
@options.json_option
@options.store_option
def check(
    *, fail_if_noisier: float | None, quiet: bool, verbose: bool, as_json: bool, store: StorePlace, **asked: Any
) -> int:
    """Say whether this host is fit to measure: an A/A test of about a minute.

    Says how noisy the host is, whether it drifts, the smallest difference that a comparison could find here in 1, 5
    and 15 minutes, who else works here, and what to do about it. The trials are kept like those of any study.

    \b
    Examples:
      virtune host check
      virtune host check --seconds 3m --rig storage-daemon --set disk.aio=native
      virtune host check --json --fail-if-noisier 0.03
    """  # noqa: D301 - click's own mark for lines that are not to be rewrapped
    from virtune.cli.common.progress import Face, under_face
    from virtune.cli.common.result_output import exit_code
    from virtune.cli.common.results import show_check
    from virtune.cli.common.run_study import show_plan, when_quiet
    from virtune.flows.run.check import check_study, fitness, found_before, run_check
    from virtune.flows.run.preconditions import Leave
    from virtune.store.store import Store

    chosen = options.read_options("check", asked)
    study, facts = check_study(chosen)
    leave = Leave(write_to=chosen.allow_write_to, in_use=chosen.allow_in_use)
    if asked["dry_run"]:
        return show_plan(study, leave)
    facts = when_quiet(study, facts, asked["wait_quiet"], quiet=quiet)
    if verbose:
        options.say_options(study)
    with Store(store) as kept:

        def show(around: "tuple[Neighbour, ...]") -> "Fitness":
            found = fitness(kept.get(study.id), around=around, earlier=found_before(kept, study))
            show_check(found, as_json=as_json, limit=fail_if_noisier, brief=not verbose)
            return found

        found = under_face(
            Face(quiet=quiet, verbose=verbose),
            lambda say: run_check(study, store=kept, say=say, leave=leave, facts=facts),
            lambda: None,  # a part of an A/A test says nothing of the host
            show,
            store=kept,
            study=study,
        )
    return 0 if fail_if_noisier is None else exit_code([found.noisier(fail_if_noisier)])


@host.command(name="doctor")
@click.option("--install", is_flag=True, help="Install the missing programs by this host's package manager.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def doctor(*, install: bool, yes: bool) -> int:
    """Say what virtune can do here, and what is missing for the rest.

    Nothing is changed without --install, which shows its command and asks. What would remove another package is not
    installed. Exit code 3: what every measurement needs is missing.

    \b
    virtune host doctor
    virtune host doctor --install
    """  # noqa: D301 - \b is click's mark for lines to keep
    from virtune.flows.doctor import command_for, looked
    from virtune.shell import become

    found = looked()
    for one in found:
        lacks = ", ".join(one.programs) or "Python packages"
        click.echo(
            f"ok       {one.ability.what}" if one.works else f"missing  {one.ability.what}: {lacks}; {one.how}"
        )
    command = command_for(found)
    if install and command:
        click.echo(f"runs: {shlex.join(command)}")
        if yes or click.confirm("Go on?"):
            become(command)
    elif command:
        click.echo(f"`virtune host doctor --install` runs `{shlex.join(command)}`")
    elif install:
        click.echo("nothing is missing that a package of this host brings")
    return 3 if any(one.ability.needed and not one.works for one in found) else 0


@host.command(name="clean")
@options.scratch_option("The scratch directory.")
@click.option("--images", is_flag=True, help="Remove complete scratch images too, not only partial ones.")
def clean(scratch: Path, images: bool) -> int:  # noqa: FBT001
    """Remove what a killed run left: processes, mounts, sockets, half-made images, disks in domains,
    images in Ceph, drives handed to guests.

    Nothing that virtune did not make is touched, and nothing of a run that still lives. What has the name of
    something of virtune's without a record that virtune made it is named, and left.
    """
    from virtune.flows.clean import clean

    removed, kept, strange = clean(scratch, images=images)
    for line in removed:
        click.echo(f"removed {line}")
    for line in kept:
        click.echo(f"kept: {line}", err=True)
    for line in strange:
        click.echo(f"left alone: {line}", err=True)
    if not removed and not kept:
        click.echo("nothing was left behind")
    return 1 if kept else 0


@host.group(name="guest")
def guest() -> None:
    """The guest that `--rig qemu` boots: a kernel, busybox and fio, without a disk and without a network.

    It is made when it is first needed, and anew when anything in it has changed.
    """


@guest.command(name="build")
@click.option(
    "--kernel", type=click.Path(path_type=Path, dir_okay=False), default=None, metavar="VMLINUZ",
    help="Your own kernel.  [default: the distribution's cloud kernel, downloaded as a package]",
)  # fmt: skip
@click.option(
    "--modules", type=click.Path(path_type=Path, file_okay=False), default=None, metavar="DIR",
    help="Its modules.  [default: /lib/modules/RELEASE, by the kernel's name]",
)  # fmt: skip
@click.option("--agent", is_flag=True, help="Include the QEMU guest agent and test it.")  # fmt: skip
def build(kernel: Path | None, modules: Path | None, agent: bool) -> None:  # noqa: FBT001
    """Make what `--rig qemu` boots from now on, and try it on KVM.

    What is there already is not made again. Without --kernel it is the distribution's kernel again.
    """
    from virtune.flows.run.preconditions import build as make

    built = make(kernel=kernel, modules=modules, agent=agent)
    one = built.appliance
    click.echo(f"{'made' if built.made else 'there already'}: {one.key}  kernel {one.release}, "
               f"initramfs {format_bytes(one.size_bytes)}")  # fmt: skip
    if agent:
        click.echo("its guest agent answers")
    back = "" if kernel is None else "; `virtune host guest build` without --kernel goes back to the distribution's"
    click.echo(f"`--rig qemu` boots it from now on{back}")
    click.echo(f"guests run on {built.accelerator.name}: {built.accelerator.why}")
    if not built.accelerator.kvm:
        click.echo("without KVM a guest's figures are functional only: they describe QEMU's emulation")


@guest.command(name="list")
def show() -> None:
    """List the appliances that are kept, and say which one `--rig qemu` boots."""
    from virtune.flows.run.preconditions import booted, kept

    found, ours = kept(), booted()
    for one in found:
        also = (", guest agent" if one.agent else "") + (", what `--rig qemu` boots" if one.key == ours else "")
        click.echo(f"{one.key}  {one.made}  kernel {one.release}, initramfs {format_bytes(one.size_bytes)}{also}")
    if not found:
        click.echo("none yet: `virtune host guest build` makes one")


@guest.command(name="remove")
@click.argument("keys", nargs=-1, metavar="[KEY]...")
def take_away(keys: tuple[str, ...]) -> None:
    """Remove appliances by key, all of them without any."""
    from virtune.flows.run.preconditions import remove_kept

    for key in remove_kept(frozenset(keys)):
        click.echo(f"removed {key}")
