# SPDX-License-Identifier: Apache-2.0
"""`virtune appliance`: the guest that `--rig qemu` boots."""

from pathlib import Path

import click

from virtune.model.text import format_bytes


@click.group(name="appliance")
def command() -> None:
    """The guest that `--rig qemu` boots: a kernel, busybox and fio, without a disk and without a network.

    It is made when it is first needed, and anew when anything in it has changed.
    """


@command.command(name="build")
@click.option(
    "--kernel",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    metavar="VMLINUZ",
    help="Your own kernel.  [default: the distribution's cloud kernel, downloaded as a package]",
)
@click.option(
    "--modules",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    metavar="DIR",
    help="Its modules.  [default: /lib/modules/RELEASE, by the kernel's name]",
)
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
    back = "" if kernel is None else "; `virtune appliance build` without --kernel goes back to the distribution's"
    click.echo(f"`--rig qemu` boots it from now on{back}")
    click.echo(f"guests run on {built.accelerator.name}: {built.accelerator.why}")
    if not built.accelerator.kvm:
        click.echo("without KVM a guest's figures are functional only: they describe QEMU's emulation")


@command.command(name="list")
def show() -> None:
    """List the appliances that are kept, and say which one `--rig qemu` boots."""
    from virtune.flows.run.preconditions import booted, kept

    found, ours = kept(), booted()
    for one in found:
        also = (", guest agent" if one.agent else "") + (", what `--rig qemu` boots" if one.key == ours else "")
        click.echo(f"{one.key}  {one.made}  kernel {one.release}, initramfs {format_bytes(one.size_bytes)}{also}")
    if not found:
        click.echo("none yet: `virtune appliance build` makes one")


@command.command(name="remove")
@click.argument("keys", nargs=-1, metavar="[KEY]...")
def take_away(keys: tuple[str, ...]) -> None:
    """Remove appliances by key, all of them without any."""
    from virtune.flows.run.preconditions import remove_kept

    for key in remove_kept(frozenset(keys)):
        click.echo(f"removed {key}")
