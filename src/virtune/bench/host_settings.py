# SPDX-License-Identifier: Apache-2.0
"""How this host's kernel runs the disks below an image, how much it lets be dirty, how it runs guests: changed for a
trial, and put back after it.

What is about to be changed is recorded in the run's directory before it is, so the guard puts it back where virtune
is killed, and otherwise the next run or `virtune host clean` (`virtune.warden`). Another scheduler changes further
settings of its disk by itself, so these are recorded too. How fast CPUs must wake up holds only while a file of it is
open, so the kernel itself puts that back.
"""

import contextlib
import fcntl
import os
import re
import struct
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from virtune import warden
from virtune.bench.live.emulators import emulators_here
from virtune.bounded import opened
from virtune.model.errors import PreconditionError, RefusedTargetError, RigError, words_of
from virtune.model.event import Noticed, Say
from virtune.model.evidence import Check
from virtune.model.facts import Backing
from virtune.model.knobs import BY_ID
from virtune.model.stack import Stack
from virtune.probe import tree
from virtune.probe.devices import backing_of
from virtune.probe.process import PROC, Process

_LOCK = Path("/run/virtune-host-settings.lock")
"""Held by the run that changes settings of this host. As locks in /run do, it stays, empty, until a restart."""

_WAKE_UP = "/dev/cpu_dma_latency"
_MICROSECONDS = struct.Struct("=i")


def files_of(stack: Stack, images: Sequence[Path]) -> dict[str, dict[str, str]]:
    """Return the files that a stack's settings of this host are written to, with the value, by setting: one for each
    disk at the bottom of the images. Raises PreconditionError where there is none.
    """
    asked = stack.of_this_host if stack.kind.measures else {}
    return {knob: dict.fromkeys(_files(knob, images), value) for knob, value in asked.items()}


def _files(knob: str, images: Sequence[Path]) -> list[str]:
    where = BY_ID[knob].spelled["linux"].partition(",")[0]
    places = [f"/proc/sys/{where.replace('.', '/')}"] if where.startswith("vm.") else [where]
    if where.startswith("/sys/block/"):
        disks = {disk for image in images for disk in _disks_of(image, knob)}
        places = [where.replace("DEV", disk) for disk in sorted(disks)]
    if missing := [place for place in places if _held(place) is None] or ([] if places else [where]):
        raise PreconditionError(f"{knob} cannot be set: the kernel tells nothing in {missing[0]}")
    return places


def _disks_of(image: Path, knob: str) -> Iterator[str]:
    """Yield the disks at the bottom of an image whose requests the kernel queues, so that a setting has an effect."""
    found = backing_of(image)
    if knob == "host.read_ahead_kb":
        yield from _read_ahead(found)
        return
    home = Path("/sys/block")
    several = [
        disk.name
        for disk in found.devices
        if str(tree.text(f"/sys/block/{disk.name}/dm/uuid")).startswith("mpath-")
        or (not disk.on and not any(home.glob(f"{disk.name}/mq/*")))
    ]
    if several or not found.disks:
        why = f"{several[0]} has no queue of its own for it" if several else f"{image} lies on no disk of this host"
        raise PreconditionError(f"{knob} cannot be set: {why}", hint="`virtune host probe` shows the disks")
    yield from (disk.name for disk in found.disks)


_ONE_DEVICE = (None, "ext2", "ext3", "ext4", "xfs", "f2fs")
"""Filesystems that read as far ahead as their device says, and the device itself; others decide for themselves."""


def _read_ahead(found: Backing) -> Iterator[str]:
    """Yield the device that says how far ahead is read: the one that holds the filesystem."""
    if found.filesystem not in _ONE_DEVICE or not found.devices:
        holds = f"{found.filesystem} on {found.source} does not read as far ahead as a device of it says"
        raise PreconditionError(f"host.read_ahead_kb cannot be set: {holds}", hint="an image on ext4 or xfs has it")
    yield found.devices[0].name


@contextlib.contextmanager
def settable(stacks: Mapping[Stack, Sequence[Path]], say: Say, *, allow_in_use: bool) -> Iterator[None]:
    """Keep other runs from changing this host's settings while the block runs, where one of these stacks asks for
    some, and say which are about to change; each stack comes with what its images lie on.

    Raises PreconditionError where this user cannot change one of them, the kernel does not offer it, or another run
    is at it; RefusedTargetError where VMs run here that it would be changed for too, unless that is allowed.
    """
    asked = dict[str, str]()
    for stack, images in stacks.items():
        for knob, files in files_of(stack, images).items():
            asked |= dict.fromkeys(files, knob)
            _require_offered(stack, files if knob == "host.scheduler" else {})
    if not asked:
        yield
        return
    for path in asked:
        _require_writable(path)
    changing = ", ".join(f"{path} (now {_held(path)})" for path in asked)
    if not allow_in_use and (running := [*_vms()]):
        what, several = ", ".join(dict.fromkeys(asked.values())), len(running) > 1
        raise RefusedTargetError(
            f"{what} would change for the {'VMs' if several else 'VM'} {', '.join(running)} too, which"
            f" {'run' if several else 'runs'} here",
            hint=f"`--allow-in-use` permits it; each is put back after its trials: {changing}",
        )
    with _alone():
        say(Noticed(text=f"will be changed for the trials that ask for it, and put back after each: {changing}"))
        yield


def _require_writable(path: str) -> None:
    """Open it, as the kernel may refuse root what the permissions of a file grant."""
    try:
        with opened(path, os.O_WRONLY):
            return
    except OSError:
        root = os.geteuid() == 0
    why = "is read-only here" if root else "cannot be written to by this user"
    hint = "a container, or a kernel made so, only shows it" if root else "settings of this host need root"
    raise PreconditionError(f"{path} {why}", hint=hint)


def _require_offered(stack: Stack, files: Iterable[str]) -> None:
    for path in files:
        offered = re.findall(r"[\w-]+", Path(path).read_text())
        if stack.host.scheduler not in offered:
            raise PreconditionError(
                f"host.scheduler={stack.host.scheduler}: {path} offers {', '.join(offered)}",
                hint="bfq and kyber are modules: `modprobe bfq`, `modprobe kyber-iosched`",
            )


def _vms() -> Iterator[str]:
    """Yield what the VMs of this host are called, also those of no QEMU that KVM runs."""
    seen = emulators_here()
    yield from (one.called for one in seen)
    others = {int(name) for name in os.listdir(PROC) if name.isdecimal()} - {one.pid for one in seen}
    for pid in sorted(others):
        if "anon_inode:kvm-vm" in (Process(pid).descriptors() or {}).values():
            yield f"of process {pid}"


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Lock this host's settings: two runs would take each other's values for the former ones."""
    with contextlib.ExitStack() as ends:
        try:
            lock = ends.enter_context(opened(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            hint = "its trials and these would disturb each other: wait until it is over"
            raise PreconditionError("another virtune changes settings of this host", hint=hint) from None
        except OSError as error:
            raise PreconditionError(f"cannot lock {_LOCK}: {words_of(error)}") from None
        yield


@dataclass(slots=True)
class FoundHost:
    """The settings of this host that arms of a study ask for, and how arms that do not ask for them found
    them first: what somebody changes in between would be taken for the arm's.
    """

    knobs: frozenset[str]
    first: dict[tuple[str, str], str] = field(default_factory=dict)

    def files(self, images: Sequence[Path], *, beside: Container[str]) -> dict[str, list[str]]:
        """Return the files of what is not asked for; nothing for a setting that these images have not."""
        files = dict[str, list[str]]()
        for knob in sorted(self.knobs):
            with contextlib.suppress(PreconditionError):
                files |= {} if knob in beside else {knob: _files(knob, images)}
        return files

    def checks(self, files: Mapping[str, Sequence[str]]) -> Iterator[Check]:
        """Check that they are as they were found first."""
        for knob, one in files.items():
            now, proof = ", ".join(sorted({_held(path) or "gone" for path in one})), f"as found in {', '.join(one)}"
            yield Check(knob, self.first.setdefault((knob, proof), now), now, proof)

    def resumed(self, checks: Iterable[Check]) -> None:
        """Take what earlier trials of the study found."""
        for check in checks:
            if check.proof.startswith("as found in "):
                self.first.setdefault((check.setting, check.proof), check.asked)


@contextlib.contextmanager
def host_set(
    stack: Stack, images: Sequence[Path], directory: Path, found: FoundHost | None = None
) -> Iterator[Callable[[], tuple[Check, ...]]]:
    """Change this host's kernel as a stack asks while the block runs; yields what checks it, and that what only other
    arms ask for is as it was `found` at first. `directory` is the run's, which is `settable`.

    Raises RigError where the kernel does not take a value; PreconditionError where it does not take a former one
    back, with which nothing more may be measured, and where there is no such setting.
    """
    warden.put_back(directory)
    _require_back(directory)
    files = files_of(stack, images)
    others = {} if found is None or not stack.kind.measures else found.files(images, beside=stack.of_this_host)

    def checks() -> tuple[Check, ...]:
        as_it_was = () if found is None else found.checks(others)
        return (*_checks(files), *as_it_was)

    if not files:
        yield checks
        return
    values = {path: value for one in files.values() for path, value in one.items()}
    wake_up = values.pop(_WAKE_UP, None)
    held = {path: warden.setting_at(path) for path in (*values, *(two for one in values for two in _beside(one)))}
    noted = {path: (before, None) for path, before in held.items() if before is not None}
    with contextlib.ExitStack() as ends:
        ends.callback(warden.put_back, directory)
        _note(directory, noted)
        for path, value in values.items():
            _write(path, value)
        if wake_up is not None:
            _limit_wake_up(int(wake_up), ends)
        _note(directory, {path: (before, warden.setting_at(path)) for path, (before, _) in noted.items()})
        yield checks
    _require_back(directory)


def _note(directory: Path, files: Mapping[str, tuple[str, str | None]]) -> None:
    try:
        warden.note_settings(directory, files)
    except OSError as error:
        raise RigError(f"cannot note in {directory} what the host's settings are: {words_of(error)}") from None


def _require_back(directory: Path) -> None:
    for path, (before, _) in warden.noted_settings(directory).items():
        if (now := warden.setting_at(path)) not in (None, before):
            raise PreconditionError(
                f"{path} is {now}, and the kernel does not take back what was there before: {before}",
                hint=f"`echo {before} > {path}`",
            )


def _beside(path: str) -> Iterator[str]:
    """Yield what the kernel changes beside a file, in the order in which it is put back."""
    home = Path(path).parent
    near = (*(home / name for name in warden.OF_SCHEDULER), *sorted(home.glob("iosched/*")), *home.glob("dirty_*"))
    yield from (str(one) for one in near if path in warden.led_by(str(one)))


def _write(path: str, value: str) -> None:
    try:
        if warden.setting_at(path) != value:
            Path(path).write_text(value)
    except OSError as error:
        raise RigError(f"the kernel does not take {value} in {path}: {words_of(error)}") from None


def _limit_wake_up(microseconds: int, ends: contextlib.ExitStack) -> None:
    """Have every CPU of this host wake up in that time until the end, or in what others ask for if it is less."""
    try:
        os.write(ends.enter_context(opened(_WAKE_UP, os.O_WRONLY)), _MICROSECONDS.pack(microseconds))
    except OSError as error:
        raise RigError(f"the kernel does not take {microseconds} in {_WAKE_UP}: {words_of(error)}") from None


def _held(path: str) -> str | None:
    if path != _WAKE_UP:
        return warden.setting_at(path)
    with contextlib.suppress(OSError, struct.error), opened(path) as held:
        return str(_MICROSECONDS.unpack(os.read(held, _MICROSECONDS.size))[0])
    return None


def _checks(files: Mapping[str, Mapping[str, str]]) -> Iterator[Check]:
    for knob, one in files.items():
        found = sorted({_held(path) or "gone" for path in one})
        yield Check(knob, next(iter(one.values())), ", ".join(found), ", ".join(one))
