# SPDX-License-Identifier: Apache-2.0
"""A Finding: what a rule says about one place of a domain, and the facts around a domain that rules may ask.

A fact that nobody knows is None, and a rule that needs it is silent: nothing is ever found from a guess.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from virtune.model.domain import Controller, Domain, DomainDisk, SettingChange
from virtune.model.knob import Change, Risk

Version = tuple[int, ...]


class Severity(StrEnum):
    """How much a finding matters. A `try` is a thing worth measuring and never advice."""

    TRY = "try"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """Return its place, the least first."""
        return list(Severity).index(self)


class Confidence(StrEnum):
    """How sure the condition and the direction are; the size of an effect is only ever known by measuring."""

    DOCUMENTED = "documented or tested"
    PUBLISHED = "published by its author, on other hardware"
    PLAUSIBLE = "plausible only"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageView:
    """What the host says of the file or device behind a disk.

    `free_share` is what of its filesystem is left; `rotational` and `scheduler` are of the disk at the bottom.
    """

    size_bytes: int | None = None
    allocated_bytes: int | None = None
    filesystem: str | None = None
    copy_on_write: bool | None = None
    free_share: float | None = None
    rotational: bool | None = None
    scheduler: str | None = None
    cluster_bytes: int | None = None
    extended_l2: bool | None = None
    backing: bool | None = None

    @property
    def sparse(self) -> bool | None:
        """Whether blocks are still to be allocated: less than 99 % of its size is there."""
        if self.size_bytes is None or self.allocated_bytes is None:
            return None
        return self.allocated_bytes < 0.99 * self.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """What is known of the host that a domain runs on; everything is None for a file from elsewhere.

    `cpus` is how many are online, `online` which by their ids; `images` is by the name of a disk's source.
    """

    kernel: Version | None = None
    qemu: Version | None = None
    libvirt: Version | None = None
    io_uring_disabled: int | None = None
    io_uring_usable: bool | None = None
    aio_used: int | None = None
    aio_limit: int | None = None
    cpus: int | None = None
    online: tuple[int, ...] | None = None
    memory_bytes: int | None = None
    dirty_percent: int | None = None
    dirty_bytes: int | None = None
    governors: tuple[str, ...] | None = None
    images: Mapping[str, ImageView] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessDisk:
    """What the process of a running domain shows of one disk.

    `direct` is by the descriptor's flags, `aio` and `no_flush` by its command line.
    """

    target: str
    direct: bool | None = None
    aio: str | None = None
    no_flush: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A running domain: its state and reason, its live XML, and what its process shows."""

    state: str
    reason: str
    live: Domain
    pid: int | None = None
    rings: int | None = None
    contexts: int | None = None
    disks: tuple[ProcessDisk, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a rule looks at: a domain as it will start next, its host, the domain as it runs, its libvirt."""

    domain: Domain
    host: HostView = field(default_factory=HostView)
    running: Running | None = None
    connect: str | None = None

    def image(self, disk: DomainDisk) -> ImageView:
        """Return what is known of a disk's image."""
        return self.host.images.get(disk.source.name, ImageView())

    @property
    def disks(self) -> tuple[DomainDisk, ...]:
        """Return the disks that hold the guest's data, where it is QEMU that serves them."""
        return tuple(disk for disk in self.domain.disks if disk.holds_data) if self.domain.runs_qemu else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a rule saw in one place, what it advises, and the knobs to turn for that.

    `measure` is the command that would settle a thing worth trying.
    """

    at: DomainDisk | Controller | None = None
    seen: str
    advice: str
    turns: tuple[SettingChange, ...] = ()
    measure: str | None = None


Check = Callable[[Subject], Iterator[Seen]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A guideline as a function. `takes` is what acting on it takes, `risk` the worst that acting can do."""

    id: str
    name: str
    severity: Severity
    confidence: Confidence
    takes: Change | None
    risk: Risk
    why: str
    source: str
    check: Check


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one rule says about one place. `at` is a disk, a controller (`scsi:0`), or empty for the domain.

    `takes` and `risk` are what its changes take and risk here, the rule's own where it changes nothing. `diff` is
    what its turns would change in the configuration's text, where that was asked for; `measured` what kept studies of
    this host say of that change, a sentence each.
    """

    rule: Rule
    domain: str
    uuid: str | None
    at: str
    line: int
    seen: Seen
    takes: Change | None
    risk: Risk
    diff: str = ""
    measured: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """One domain that was audited: where its configuration is from, and what was found.

    `diff` is what all errors and warnings together would change in it, where that was asked for, and `commands` the
    same as command lines for systems that take it so.
    """

    origin: str
    domain: str
    uuid: str | None
    findings: tuple[Finding, ...]
    diff: str = ""
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Something that could not be audited, and why not."""

    origin: str
    because: str
