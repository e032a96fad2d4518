# SPDX-License-Identifier: Apache-2.0
"""Whether what was flushed is there after a power cut: every arm is loaded with stamped writes, cut off in the
middle, started again, and read back by virtune-load's journal of what was acknowledged and flushed.

What stands for the power cut is that QEMU is killed, whose own caches go with it, and that the ext4 below its image
is cut off (`bench.cut`), so that this host's page cache goes too. Of a guest its disk alone is looked at, in a
qemu-storage-daemon, which has the same block layer: a journal in the guest would be lost with it.
"""

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from virtune import shell
from virtune.bench.cut import CutDisk, cut_disk
from virtune.bench.layouts import luks_words, write_key
from virtune.bench.port import Bench, DiskImageSpec, Session, Surroundings, session
from virtune.bench.verify import require_verified
from virtune.bounded import opened, read_bounded
from virtune.dialects.qemu.images import create_commands, image_node, key_of, secret_words
from virtune.fio.job import data_workload, regions_of
from virtune.flows.run.trial import Tools, ground_for
from virtune.model import errors
from virtune.model.durability import Promise, Survives, durability_of
from virtune.model.event import Noticed, Say, step
from virtune.model.evidence import DURABILITY, Check
from virtune.model.facts import Unknown
from virtune.model.stack import LIMITS, FileTarget, Stack, VhostUserTarget
from virtune.model.study import Arm, Study
from virtune.model.text import format_count
from virtune.report.words import count_text

_IMAGE_BYTES = 64 * 1024**2
_BLOCK_BYTES = 4096
_ENOUGH_BLOCKS = 512
"""So many blocks, or a quarter of the disk, are acknowledged, and flushed if that matters, before it is cut off."""

_LIFE_SECONDS = 0.1, 0.4
"""How long the load goes on after that, drawn anew for each cut, so that it finds the stack in different states."""

_CUTS = (False, True, True)
"""Whether the ext4 is cut off as well, each time; without it nothing but the process is killed."""

_PATIENCE_SECONDS, _TICK_SECONDS = 60.0, 0.02
_REPORT_BYTES, _JOURNAL_BYTES = 64 * 1024, 1024**2
_HEADER_BYTES, _RECORD_WORDS = 4096, 4
_ACKNOWLEDGED, _FLUSHED = 1, 2
"""The journal has a record of each block after its header: numbers of 4 bytes, of which these are looked at."""

_SOUND = (0, 3, 63)
"""What qemu-img ends with where nothing is wrong: all well, space that is lost, a format that it cannot check."""

_KEPT, _KEPT_WHEN_KILLED, _NOT_PROMISED = "kept", "kept when killed", "not promised"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What was there after one cut: blocks that had to be, those of them that were not, those that held what belongs
    elsewhere, and those that were lost as they might be. `whole`: the ext4 was cut off as well. `broken` says why
    nothing could be read.
    """

    whole: bool
    due: int
    lost: int = 0
    misplaced: int = 0
    allowed: int = 0
    broken: str = ""

    def fault(self, what: str) -> str:
        """Say in words what is not there; empty where all is."""
        count, due = format_count(self.lost or self.misplaced), format_count(self.due)
        gone = f"{count} of {due} {what} blocks were gone" if self.lost else ""
        wrong = f"{count} blocks held what belongs elsewhere" if self.misplaced else ""
        said = self.broken or gone or wrong
        return said and f"{said} after {'a power cut' if self.whole else 'the end of its process'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """A stack that is cut off. `disk` is what its image lies on, unknown where that cannot be cut off. `through`:
    every write that is acknowledged must be there, flushed or not.
    """

    arm: Arm
    stack: Stack
    study: Study
    tools: Tools
    rigs: Session
    disk: CutDisk | Unknown
    through: bool

    @property
    def journal(self) -> Path:
        return self.tools.warden.directory / "durability.journal"

    @contextlib.contextmanager
    def up(self) -> Iterator[Bench]:
        if isinstance(self.disk, CutDisk):
            ground = DiskImageSpec(image=self.disk.image, size_bytes=_IMAGE_BYTES, writes=True)
        else:
            writes = data_workload("write", regions_of(_IMAGE_BYTES, self.study.seed))
            ground = ground_for(self.stack, writes, self.study, self.tools)
        with self.rigs.up(self.stack, ground, restart=True) as bench:
            require_verified(self.arm.name, bench.in_force.checks)
            yield bench

    def running(self, bench: Bench, *words: str, name: str = "durability") -> AbstractContextManager[shell.Child]:
        """Run virtune-load on the stack; `name` is that of its log."""
        target, engine = bench.target, "io_uring"
        if isinstance(target, VhostUserTarget):
            engine, place = "virtio-blk-vhost-user", target.socket
        else:
            assert isinstance(target, FileTarget)  # noqa: S101 - no other is made here
            place = target.path
        size = min(_IMAGE_BYTES, target.size_bytes // _BLOCK_BYTES * _BLOCK_BYTES)
        where = (f"ioengine={engine}", f"filename={place}", f"size={size}", "iodepth=16")
        command = [shell.find_generator(), *words, *where]
        return self.tools.warden.running(command, name=name)

    def noted(self) -> int:
        """Return of how many blocks the journal notes a write that must be there."""
        with contextlib.suppress(OSError):
            records = memoryview(read_bounded(self.journal, _JOURNAL_BYTES)[_HEADER_BYTES:]).cast("I")
            return sum(map(bool, records[_ACKNOWLEDGED if self.through else _FLUSHED :: _RECORD_WORDS]))
        return 0

    def cut(self, chance: Random, *, whole: bool) -> _Found:
        """Load the stack, cut it off in the middle, start it again and read it back."""
        self.journal.unlink(missing_ok=True)
        words = [f"--journal={self.journal}", "--allow-write", "rw=randwrite", "runtime=1h", "time_based"]
        words += [f"randseed={chance.randrange(2**31)}", f"fsync={0 if self.through else 32}"]
        with self.up() as bench, self.running(bench, *words) as load:
            enough = min(_ENOUGH_BLOCKS, bench.target.size_bytes // _BLOCK_BYTES // 4)
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while self.noted() < enough:
                if load.poll() is not None:
                    raise errors.RigError("the load did not go on", hint=load.last_words())
                if time.monotonic() > deadline:
                    count = f"{self.noted()} of {enough} blocks"
                    raise errors.RigError(f"only {count} were written and flushed in {_PATIENCE_SECONDS:.0f} s")
                time.sleep(_TICK_SECONDS)
            time.sleep(chance.uniform(*_LIFE_SECONDS))
            if whole and isinstance(self.disk, CutDisk):
                self.disk.cut()
            for pid in bench.processes.values():
                os.kill(pid, signal.SIGKILL)
            if load.wait(_PATIENCE_SECONDS) is None:
                raise errors.RigError("the load did not end when its disk was gone")
        due = self.noted()
        if whole and isinstance(self.disk, CutDisk):
            self.disk.start_again()
        try:
            return self._read_back(due, whole=whole)
        except errors.RigError:
            if not (damaged := self._damage()):
                raise
            return _Found(whole=whole, due=due, broken=damaged)

    def _damage(self) -> str:
        """Say what qemu-img finds wrong with an image that was not read back; empty where it finds nothing, as of a
        raw one: then something else kept it from being read, and what was lost is not known.
        """
        if not isinstance(self.disk, CutDisk) or self.stack.disk.format == "raw":
            return ""
        node = json.dumps(image_node(self.stack.disk, self.disk.image))
        command = [
            shell.find("qemu-img"),
            "check",
            "-q",
            *secret_words(self.stack.disk, self.disk.image),
            f"json:{node}",
        ]
        done = shell.run(command, timeout_seconds=_PATIENCE_SECONDS, ok=tuple(range(256)))
        said = shell.last_line(done.stderr) or f"qemu-img check ended with {done.status}"
        return "" if done.status in _SOUND else f"its image was damaged: {said}"

    def _read_back(self, due: int, *, whole: bool) -> _Found:
        output = self.journal.with_suffix(".json")
        words = ["verify", f"--journal={self.journal}", f"--output={output}"]
        with self.up() as bench, self.running(bench, *words, name="durability.verify") as reading:
            status = reading.wait(_PATIENCE_SECONDS)
            if status is None:
                raise errors.RigError(f"reading it back took more than {_PATIENCE_SECONDS:.0f} s")
            if status not in (0, 4):  # 4: it found something
                raise errors.RigError("it cannot be read back", hint=reading.last_words())
        report = json.loads(read_bounded(output, _REPORT_BYTES))
        lost, gone = report["lost_flushed"] + report["torn"], report["unflushed_lost"]
        lost, gone = (lost + gone, 0) if self.through else (lost, gone)
        # of a write in flight over one that was acknowledged a part may be there
        allowed = gone + report["unflushed_torn"]
        return _Found(whole=whole, due=due, lost=lost, misplaced=report["misplaced"], allowed=allowed)

    def refill(self) -> None:
        """Write random data in place of the stamps: a disk that compresses would serve these faster."""
        words = ("--allow-write", "rw=write", "refill_buffers=1", "end_fsync=1")
        with self.up() as bench, self.running(bench, *words) as load:
            if load.wait(_PATIENCE_SECONDS) != 0:
                raise errors.RigError("the disk cannot be filled anew", hint=load.last_words())


def all_survive(study: Study, tools: Tools, say: Say) -> dict[str, Check]:
    """Cut off every arm in mid-load, where the study asks for that; returns by arm the check of what was there after.

    Raises CorruptDataError for an arm that lost what it promises to keep, PreconditionError for one that cannot be
    tried.
    """
    checks: dict[str, Check] = {}
    if not study.check_durability:
        return checks
    what = "cutting off each arm in mid-load, and reading back what was flushed"
    with step(what, say) as come:
        for number, arm in enumerate(study.arms, 1):
            try:
                check = checks[arm.name] = _survives(arm, study, tools)
            except (errors.RigError, OSError) as error:
                why = errors.words_of(error) if isinstance(error, OSError) else error.message
                said = f"the durability of arm {arm.name!r} cannot be checked: {why}"
                raise errors.PreconditionError(said, hint=getattr(error, "hint", None)) from None
            come(number, len(study.arms))
            say(Noticed(text=f"durability of {arm.name}: {check.proof}"))
    return checks


def _survives(arm: Arm, study: Study, tools: Tools) -> Check:
    stack = _alone(arm.stack)
    if isinstance(stack, Unknown):
        return _not_looked_at(stack.because)
    through = durability_of(stack).promise is Promise.EVERY_WRITE
    if durability_of(arm.stack).promise is Promise.EVERY_WRITE and not through:
        return _not_looked_at("what its guest's disk promises of each write is not tried without the guest")
    place = Surroundings(warden=tools.warden, scratch=tools.scratch_of(stack).directory)
    with ExitStack() as ends, session(place) as rigs:
        disk = _disk_of(arm.stack, tools, ends)
        if isinstance(disk, Unknown) and stack.kind.front == "file":
            return _not_looked_at(f"no process is there to be killed, and {disk.because}")
        one = _Subject(arm=arm, stack=stack, study=study, tools=tools, rigs=rigs, disk=disk, through=through)
        chance = Random(f"cuts {study.seed}")  # noqa: S311 - moments, no secrets
        able, processes = isinstance(disk, CutDisk), stack.kind.front != "file"
        found = [one.cut(chance, whole=able and (whole or not processes)) for whole in _CUTS]
        if not able:
            one.refill()
    return _judged(one, found)


def _not_looked_at(why: str) -> Check:
    return Check(DURABILITY, _KEPT, None, f"not looked at: {why}", hidden=True)


_LIMITED = tuple(limit.knob.removeprefix("disk.") for limit in LIMITS)
"""Limits of I/O are left out: they lose nothing, and reading back would take as long as they want."""


def _alone(stack: Stack) -> Stack | Unknown:
    """Return the stack of one disk that is cut off in place of an arm's, so that virtune-load can load it."""
    free: Any = dict.fromkeys(_LIMITED)
    disk = replace(stack.disk, filesystem="none", **free)
    if durability_of(stack).promise is Promise.NOTHING:
        return Unknown(because="backend=null-co keeps no data")
    if stack.device.vfio_pci is not None or stack.kind.users_guest:
        return Unknown(because="the disk is not in a process that may be killed")
    if stack.kind.own_guest:
        return Stack(disk=disk, export="vhost-user-blk", place=stack.place)
    export = "vhost-user-blk" if stack.export == "nbd" else stack.export
    return replace(stack, disk=disk, disks=1, second=None, spread=None, export=export)


def _disk_of(stack: Stack, tools: Tools, ends: ExitStack) -> CutDisk | Unknown:
    """Make an image on an ext4 that can be cut off, until the end; unknown where that cannot be."""
    if stack.disk.rbd is not None:
        return Unknown(because="its image is on Ceph")
    if tools.held_of(stack) is not None:
        return Unknown(because="its disk is a target or a volume, and not a file of virtune's")
    try:
        disk = ends.enter_context(cut_disk(tools.scratch_of(stack).directory))
    except OSError as error:
        return Unknown(because=f"a loop device and an ext4 on it cannot be had here: {errors.words_of(error)}")
    except errors.VirtuneError as error:
        return Unknown(because=f"an ext4 cannot be made: {error.message.partition(': /')[0]}")
    if stack.disk.format == "raw":
        with opened(disk.image, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644) as file:
            os.ftruncate(file, _IMAGE_BYTES)
    else:
        if (key := key_of(stack.disk, disk.image)) is not None:
            with opened(key, os.O_CREAT | os.O_EXCL | os.O_RDWR) as file:
                write_key(key, file)
        for program, *words in create_commands(stack.disk, disk.image, _IMAGE_BYTES, luks_words(stack.disk)):
            shell.run([shell.find(program), *words], timeout_seconds=_PATIENCE_SECONDS)
    for path in (*disk.image.parent.iterdir(), disk.image.parent):
        with opened(path, os.O_RDONLY) as file:
            os.fsync(file)
    return disk


def _judged(one: _Subject, found: list[_Found]) -> Check:
    """Say what was there. Raises CorruptDataError where the arm promised more."""
    meant, what = durability_of(one.stack), "acknowledged" if one.through else "flushed"
    stood = _stood(one, found)
    for cut in found:
        if fault := cut.fault(what):
            if meant.flushed < (Survives.POWER_CUT if cut.whole else Survives.PROCESS_KILL):
                proof = f"{fault}, and {meant.why} promises no more: {meant.promise.words}. {stood}"
                return Check(DURABILITY, _NOT_PROMISED, _NOT_PROMISED, proof)
            hint = "nothing was measured; `--check-data` tells whether it keeps its data without a cut"
            words = meant.promise.words if cut.whole else f"what was {what} survives the end of its process"
            broken = f"arm {one.arm.name!r} promises that {words}, and {fault}"
            raise errors.CorruptDataError(broken, hint=hint)
    proof = f"all {format_count(sum(cut.due for cut in found))} {what} blocks were there after {len(found)} cuts"
    if allowed := sum(cut.allowed for cut in found):
        proof += f"; {format_count(allowed)} not flushed were gone, as they may be"
    kept = _KEPT if any(cut.whole for cut in found) else _KEPT_WHEN_KILLED
    if meant.promise is Promise.VOLATILE:
        proof += f"; {meant.why} does not promise that: {meant.promise.words}"
        kept = _NOT_PROMISED
    return Check(DURABILITY, kept, kept, f"{proof}. {stood}")


def _stood(one: _Subject, found: list[_Found]) -> str:
    """Say what stood for a power cut, and what was not shown by that."""
    whole, process = sum(cut.whole for cut in found), one.stack.kind.front != "file"
    done = [f"its process was killed {count_text(len(found), 'time')}"] if process else []
    done += [f"the ext4 below its image was cut off {count_text(whole, 'time')}"] if whole else []
    lacks = ["the drive's own cache"]
    if isinstance(one.disk, Unknown):
        lacks.insert(0, f"this host's page cache ({one.disk.because})")
    else:
        lacks.append(f"the filesystem of {one.tools.scratch_of(one.arm.stack).directory}")
    if any(getattr(one.arm.stack.disk, name) is not None for name in _LIMITED):
        lacks.append("its I/O limits, which were left out")
    if one.arm.stack.kind.own_guest:
        lacks.append("the guest, whose disk was tried in a qemu-storage-daemon")
    elif process and one.arm.stack.export != one.stack.export:
        lacks.append("its NBD export, which a vhost-user-blk one stood for")
    return f"In place of a power cut {' and '.join(done)}; not shown: {', '.join(lacks)}"
