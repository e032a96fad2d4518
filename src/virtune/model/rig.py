# SPDX-License-Identifier: Apache-2.0
"""The rigs (ways to run a Stack), one row each: which knobs apply to it, and which of these cannot be verified.

Arms, plan files, the command line, job fitting, dialects and reports read these rows; nobody else asks for a rig's
name. What a rig does lies in `virtune.bench`, and `virtune.bench.port` says where.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from virtune.model.knob import ROWS

Rig = Literal["metal", "storage-daemon", "qemu", "libvirt", "simulated", "unknown"]

ExportKind = Literal["nbd", "fuse", "vhost-user-blk"]

Front = Literal["file", "export", "device", "none"]
"""The interface through which the load reaches the disk: the host's kernel, an export, a guest's device; `none` if
unknown.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenKnob:
    """A knob that a rig sets but cannot verify, and why; `values` are the values concerned, empty for all."""

    knob: str
    why: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RigKind:
    """One rig.

    `applies` are the knobs that apply to it, and `unseen` those of them that cannot be verified. `where` is the
    argument after a colon (`libvirt:DOMAIN`), empty for a rig without one; `needs_where`: it is required. `programs`
    are needed on this host. `own_guest`: virtune makes the guest; `users_guest`: it is an existing VM. `measures` is
    False where the figures are invented, `made_here` where results came from elsewhere. `hidden` keeps it out of the
    help. `aliases` are further names for it, with the export that each stands for. The seconds are the initial values
    of forecasts, measured on a quiet host: `beside_seconds` is the overhead of an attempt besides warm-up and run
    (fio's own start and end take 0.3 s), `up_seconds` the time to bring a stack up, and `boot_seconds` that of a
    guest's boot (2 s with KVM, 10 s and more under emulation).
    """

    name: Rig
    front: Front
    applies: frozenset[str] = frozenset()
    unseen: tuple[UnseenKnob, ...] = ()
    where: str = ""
    needs_where: bool = False
    programs: tuple[str, ...] = ()
    own_guest: bool = False
    users_guest: bool = False
    measures: bool = True
    made_here: bool = True
    hidden: bool = False
    aliases: Mapping[str, ExportKind] | None = None
    help: tuple[str, ...] = ()
    beside_seconds: float = 0.35
    up_seconds: float = 0.0
    boot_seconds: float = 0.0

    @property
    def has_qemu(self) -> bool:
        """Whether QEMU, or what stands for it, is between the load and the disk."""
        return self.front != "file" and bool(self.applies)

    @property
    def in_guest(self) -> bool:
        return self.front == "device"

    def meaning(self, export: str | None) -> str:
        """Say what an arm on this rig is; an export by which the rig has another name is told apart."""
        exports = tuple((self.aliases or {}).values())
        place = 1 + exports.index(export) if export in exports else 0
        return self.help[place] if self.help else self.name

    def why_unseen(self, knob: str, value: str) -> str | None:
        rows = (row for row in self.unseen if row.knob == knob and (not row.values or value in row.values))
        return next((row.why for row in rows), None)


def _knobs_of(rig: Rig) -> frozenset[str]:
    return frozenset(row["id"] for row in ROWS if rig in row.get("rigs", ()))


PASSED_KNOB = "storage.vfio_pci"
"""The knob that has the guest drive a real disk itself."""

FORMAT_KNOB = "disk.format"
"""The knob that an existing target leaves no choice of."""

OF_PASSED = frozenset(row["id"] for row in ROWS if row.get("passed"))
"""The knobs that mean something where the guest drives a real disk itself."""

_FILLED = UnseenKnob(
    knob="disk.preallocation",
    why="every block of the image is written before it is measured, so it is allocated whatever was asked",
)
_NOWHERE = ("disk.discard", "disk.l2_cache_size", "disk.null_latency_ns")
_SILENT = (*(UnseenKnob(knob=one, why="QEMU takes it and shows it nowhere") for one in _NOWHERE), _FILLED)

METAL = RigKind(
    name="metal",
    front="file",
    applies=_knobs_of("metal"),
    help=("a file on the host's disk, opened without QEMU",),
)
STORAGE_DAEMON = RigKind(
    name="storage-daemon",
    front="export",
    applies=_knobs_of("storage-daemon"),
    unseen=(
        *_SILENT,
        UnseenKnob(
            knob="disk.cache",
            values=("writethrough", "directsync"),
            why="that each write is flushed is an option of the export, which QEMU takes and does not show",
        ),
    ),
    programs=("qemu-storage-daemon",),
    aliases={"vhost-user": "vhost-user-blk"},
    help=(
        "QEMU's block layer without a VM",
        "QEMU's block layer without a VM, loaded through virtio queues as a VM loads it",
    ),
    beside_seconds=0.4,
    up_seconds=0.1,
)
QEMU = RigKind(
    name="qemu",
    front="device",
    applies=_knobs_of("qemu"),
    unseen=_SILENT,
    own_guest=True,
    help=("a VM that virtune starts",),
    beside_seconds=1.5,
    up_seconds=0.7,
    boot_seconds=8.0,
)
LIBVIRT = RigKind(
    name="libvirt",
    front="device",
    applies=_knobs_of("libvirt"),
    unseen=(_FILLED,),
    where="DOMAIN",
    needs_where=True,
    users_guest=True,
    help=("your running VM",),
    beside_seconds=8.0,
    up_seconds=6.0,
)
SIMULATED = RigKind(
    name="simulated",
    front="none",
    applies=_knobs_of("simulated"),
    where="SCENARIO",
    measures=False,
    hidden=True,
    help=("a simulation, whose figures are invented",),
)
UNKNOWN = RigKind(name="unknown", front="none", applies=_knobs_of("unknown"), made_here=False, hidden=True)

RIGS: Mapping[str, RigKind] = {row.name: row for row in (STORAGE_DAEMON, QEMU, METAL, LIBVIRT, SIMULATED, UNKNOWN)}
"""Every rig by its name, in the order in which help lists them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RigWord:
    """A rig as a user writes it: `metal`, `vhost-user`, `libvirt:web1`. `export` is the export that it implies."""

    kind: RigKind
    where: str | None = None
    export: ExportKind | None = None


def read_rig(text: str) -> RigWord | None:
    """Read a rig as a user wrote it; None for an unknown one, or if the argument after the colon is missing."""
    name, colon, where = text.partition(":")
    for row in RIGS.values():
        if row.made_here and name == row.name:
            fits = bool(where) if colon else not row.needs_where
            return RigWord(kind=row, where=where or None) if fits and (not colon or row.where) else None
        if not colon and name in (row.aliases or {}):
            return RigWord(kind=row, export=(row.aliases or {})[name])
    return None


def rig_words(fits: Callable[[RigKind], bool] = lambda _: True) -> tuple[str, ...]:
    """Return the words for rigs that stand alone and are offered to people; those of rows that fit."""
    return tuple(
        word
        for row in RIGS.values()
        if not row.hidden and not row.needs_where and fits(row)
        for word in (row.name, *(row.aliases or ()))
    )


def rig_words_with_where() -> tuple[str, ...]:
    """Return the others that are offered, with a word for what stands behind the colon: `libvirt:DOMAIN`."""
    return tuple(f"{row.name}:{row.where}" for row in RIGS.values() if row.needs_where and not row.hidden)


def rig_help(words: tuple[str, ...]) -> str:
    said = {
        word: text
        for row in RIGS.values()
        for word, text in zip((row.name, *(row.aliases or ())), row.help, strict=False)
    }
    return "; ".join(f"{word}: {said[word.partition(':')[0]]}" for word in words)
