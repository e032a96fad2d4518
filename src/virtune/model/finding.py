# SPDX-License-Identifier: Apache-2.0
"""A Finding: what an audit rule found at one place of a domain, and the facts that rules use.

An unknown fact is None, and a rule that needs it reports nothing: no finding rests on a guess. Which rules could
not look for want of a fact is reported beside the findings (`NotLookedAt`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from virtune.model.domain import Controller, Domain, DomainDisk, SettingChange
from virtune.model.knob import Change, Risk
from virtune.model.reason import OF_ADVICE, Reason, Why
from virtune.model.remark import Criterion
from virtune.model.text import LEFT_OUT, At

Version = tuple[int, ...]


class Severity(StrEnum):
    """How much a finding matters. A `try` is worth measuring, but is not advice."""

    TRY = "try"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """Return its rank, the least severe first."""
        return list(Severity).index(self)


class Confidence(StrEnum):
    """How certain the condition and the direction of the effect are; the size of an effect has to be measured."""

    DOCUMENTED = "documented or tested"
    PUBLISHED = "published by its author, on other hardware"
    PLAUSIBLE = "plausible only"


class Need(StrEnum):
    """A fact that a rule reads and that may be unknown, in the words that name it where it is."""

    KERNEL = "the host's kernel"
    QEMU = "the host's QEMU"
    LIBVIRT = "the host's libvirt"
    IO_URING = "whether the host allows io_uring"
    AIO_EVENTS = "how many AIO events the host has left"
    CPUS = "the host's CPUs"
    MEMORY = "the host's memory and its dirty pages"
    GOVERNOR = "the host's CPU governor"
    IMAGE = "size and place of the images"
    FORMAT = "the format of the images"
    HEADER = "the headers of qcow2 images"
    MEDIUM = "the medium below the images"
    SCHEDULER = "the I/O scheduler below the images"
    CHAIN = "how many images are below"
    STATE = "whether the VM runs, and how"
    ENGINE = "what the VM's process uses"
    OPENED = "how the VM's process opened its images"
    MACHINE = "age of this machine type"
    CONTROLLER = "model of the SCSI controller"
    BUS = "bus of the disk"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageView:
    """The host's facts of the file or device behind a disk.

    `free_share` is what of its filesystem is left, `below` how many images are below it; `rotational` and `scheduler`
    are of the disk at the bottom.
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
    below: int | None = None

    @property
    def sparse(self) -> bool | None:
        """Whether some blocks are not yet allocated: less than 99 % of its size is allocated."""
        if self.size_bytes is None or self.allocated_bytes is None:
            return None
        return self.allocated_bytes < 0.99 * self.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """The known facts of the host that a domain runs on; all are None for a configuration file from another host.

    `cpus` is how many are online, `online` which by their ids, `nodes` which by the NUMA node;
    `images` is by the name of a disk's source.
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
    nodes: Mapping[int, str] | None = None
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

    target: Annotated[str, "The disk's target."]
    direct: Annotated[bool | None, "Whether the image is open with O_DIRECT; null where that cannot be seen."] = None
    aio: Annotated[str | None, "The engine on QEMU's command line; null for a disk that was plugged in later."] = None
    no_flush: Annotated[bool | None, "Whether flushes are ignored, on QEMU's command line."] = None


UNKNOWN_STATE = "unknown"
"""The state of a VM that was not asked, or gave no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A running domain: its state and reason, how it is now, and what its process shows."""

    state: str
    reason: str
    live: Domain
    pid: int | None = None
    rings: int | None = None
    contexts: int | None = None
    disks: tuple[ProcessDisk, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The input of a rule: the domain as it will start next, its host, the running domain, its libvirt. `like`
    is what `--like` calls it on this host; empty where it cannot.
    """

    domain: Domain
    host: HostView = field(default_factory=HostView)
    running: Running | None = None
    connect: str | None = None
    like: str = ""
    disks: tuple[DomainDisk, ...] = field(init=False, repr=False, compare=False)
    """The disks that hold the guest's data and are served by QEMU."""

    def __post_init__(self) -> None:
        """Choose the disks once, since nearly every rule asks for them."""
        theirs = self.domain.disks if self.domain.runs_qemu else ()
        object.__setattr__(self, "disks", tuple(disk for disk in theirs if disk.holds_data))

    def image(self, disk: DomainDisk) -> ImageView:
        return self.host.images.get(disk.source.name, ImageView())


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One match of a rule: the place, the advice, and the settings that follow it.

    `measure` is the command that would decide whether a `try` helps. `meant`: what the settings undo may be meant, so
    they are made only where this rule is named.
    """

    at: DomainDisk | Controller | None = None
    seen: str
    advice: str
    turns: tuple[SettingChange, ...] = ()
    measure: str | None = None
    meant: bool = False


Check = Callable[[Subject], Iterator[Seen]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Criterion):
    """A guideline as a function. `takes` is what following it takes (a restart, say), `risk` the worst that can
    happen, `needs` the facts that it reads and that may be unknown.
    """

    name: str
    severity: Severity
    confidence: Confidence
    takes: Change | None
    risk: Risk
    check: Check
    needs: tuple[Need, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The finding of one rule at one place. `at` is a disk, a controller (`scsi:0`), or empty for the domain.

    `takes` and `risk` are those of its changes here, or the rule's own where it changes nothing. `diff` shows its
    changes to the configuration's text, if requested; `measured` quotes stored studies of this host on that change, a
    sentence each.
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
class LeftAlone:
    """What advice leaves as it is."""

    at: Annotated[str, "The disk (`vda`); empty for the domain."] = ""
    rule: Annotated[
        str, str | None, "The rule whose finding it was; null where none was asked.", At(or_null=True)
    ] = ""
    why: Annotated[
        Why, Reason, "The reason as a code, which is stable.", {"enum": [*OF_ADVICE]}, At("why.reason", key="reason")
    ]

    @property
    def text(self) -> str:
        place = f"{self.rule} {self.at or 'domain'}" if self.rule else self.at
        return f"{place}: {self.why.text}" if place else self.why.text


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFinding:
    """A finding that a configuration has with the advised changes, and had not before."""

    at: Annotated[str, "The disk (`vda`) or controller (`scsi:0`); empty for the domain."]
    rule: Annotated[str, "The rule's id; docs/reference/rules.md lists them."]
    text: Annotated[str, LEFT_OUT]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The setting changes for one domain, its text with them, the diff, and what was left unchanged and why.

    `effects` are what each change takes on a running VM, and what it risks; `commands` are the same change as command
    lines, for systems that take it so. `warnings` are the audit's new findings in the changed configuration.
    """

    turns: tuple[SettingChange, ...]
    effects: tuple[tuple[Change, Risk], ...]
    after: bytes
    diff: str
    left: tuple[LeftAlone, ...] = ()
    commands: tuple[str, ...] = ()
    warnings: tuple[NewFinding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NotLookedAt:
    """Rules, by their ids, that could not look at a domain, or not at all of it, since a fact is unknown."""

    unknown: Annotated[str, "What is not known."]
    rules: Annotated[tuple[Annotated[str, {"pattern": "^R[0-9]+$"}], ...], "The rules that need it, by their ids."]


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """One audited domain: the source of its configuration, and the findings.

    `not_audited` says why the rules cannot judge its disks, empty where they can: then no finding is no clean bill.
    `not_looked_at` are the rules that lacked a fact. `disks` is how many disks with data it has.

    `diff` shows the changes of all errors and warnings together, if requested, and `commands` are the same changes as
    command lines, for systems that are configured so. `written` is False where virtune only reads its language.
    """

    origin: str
    domain: str
    uuid: str | None
    findings: tuple[Finding, ...]
    not_audited: str = ""
    not_looked_at: tuple[NotLookedAt, ...] = ()
    disks: int = 0
    diff: str = ""
    commands: tuple[str, ...] = ()
    written: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Something that could not be audited, and why not."""

    origin: Annotated[str, "Which one: a file, a domain, or a host and its file."]
    because: Annotated[str, "Why not."]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """Files of a folder that hold no VM in a language that virtune knows: how many of how many, and some names."""

    origin: Annotated[str, "The folder."]
    count: Annotated[int, "How many of its files hold none.", {"minimum": 1}]
    files: Annotated[int, "How many files it has.", {"minimum": 1}]
    names: Annotated[tuple[str, ...], "Some of those that hold none."]
