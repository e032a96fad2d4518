# SPDX-License-Identifier: Apache-2.0
"""What virtune can do on this host, what is missing for the rest, and its installation by the host's own packages."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from virtune import shell
from virtune.model.errors import MissingToolError
from virtune.packages import UNASKED, installing

ANSIBLE = ("ansible-playbook", "ansible-inventory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """A part of virtune: what it is for, the programs and the extra that it needs, whether all else needs it."""

    what: str
    programs: tuple[str, ...] = ()
    extra: str = ""
    needed: bool = False


ABILITIES: tuple[Ability, ...] = (
    Ability(what="measure this host's disks", programs=("fio",), needed=True),
    Ability(what="intervals, verdicts and searches", extra="measure", needed=True),
    Ability(what="QEMU's block layer without a guest", programs=("qemu-storage-daemon",)),
    Ability(what="qcow2, and file systems in images", programs=("qemu-img", "mke2fs", "debugfs", "mkfs.xfs")),
    Ability(what="vhost-user exports", programs=(shell.GENERATOR,)),
    Ability(what="test guests (--rig qemu)", programs=("qemu-system-x86_64",)),
    Ability(what="libvirt's VMs", programs=("virsh",)),
    Ability(what="disks in Ceph (--target rbd:)", programs=("rbd",)),
    Ability(what="a fleet over SSH", programs=("ssh",)),
    Ability(what="install on a fleet, Ansible's inventories", programs=ANSIBLE),
    Ability(what="reports with pictures", extra="report"),
    Ability(what="virtune serve, metrics for Prometheus", extra="serve"),
    Ability(what="studies in PostgreSQL", extra="postgres"),
    Ability(what="export as Parquet", extra="parquet"),
    Ability(what="deriving by a Dask cluster", extra="dask"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AbilityHere:
    """A part with the programs that it lacks, and how its Python packages get here; empty where none is missing."""

    ability: Ability
    programs: tuple[str, ...] = ()
    packages: str = ""

    @property
    def works(self) -> bool:
        """Whether it lacks nothing."""
        return not (self.programs or self.packages)

    @property
    def how(self) -> str:
        words = installing(self.programs)
        if self.programs == (shell.GENERATOR,):
            return "`pip install ./loadgen` in a checkout of virtune builds it"
        return f"`{' '.join(words)}`" if words else self.packages or "no package manager of this host is known"


def looked() -> tuple[AbilityHere, ...]:
    """Return what each part lacks here."""
    return tuple(
        AbilityHere(
            ability=one,
            programs=tuple(program for program in one.programs if not _there(program)),
            packages=_lacking(one.extra),
        )
        for one in ABILITIES
    )


def _there(program: str) -> bool:
    if program != shell.GENERATOR and program not in ANSIBLE:
        return bool(shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin"))
    try:
        return bool(shell.find_generator() if program == shell.GENERATOR else shell.find_ansible(program))
    except MissingToolError:
        return False


def _lacking(extra: str) -> str:
    modules = [name for name, its in shell.EXTRAS.items() if its == extra]
    try:
        shell.require_modules(*modules)
    except ModuleNotFoundError:
        return shell.extra(extra)  # noqa: S610 - it is not Django's
    return ""


def command_for(found: Sequence[AbilityHere]) -> tuple[str, ...]:
    """Return the command that installs all missing programs, without a question; empty where there is nothing to
    install, or no package manager that is known.
    """
    manager, *words = installing(program for one in found for program in one.programs) or [""]
    if not words:
        return ()
    sudo = ("sudo",) if os.geteuid() and shutil.which("sudo") else ()
    return (*sudo, manager, words[0], *UNASKED[manager], *words[1:])
