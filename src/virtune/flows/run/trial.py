# SPDX-License-Identifier: Apache-2.0
"""Run one trial: bring a stack up, verify it, load and watch it, take it down, and return the evidence.

A failed or invalid attempt is repeated at once, and a ramp that was too short is lengthened. All decisions depend on
the stored attempts only, so an interrupted study resumes without a difference.
"""

import contextlib
import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

from virtune import shell
from virtune.analyse.trial.derive import derive
from virtune.analyse.trial.rejection import Ramp, ramp_of, unsettled, why_again
from virtune.bench import during
from virtune.bench.counters import DiskQueue, Sampler
from virtune.bench.host_settings import FoundHost, host_set
from virtune.bench.permission import Held
from virtune.bench.port import PATIENCE_SECONDS, Bench, DiskImageSpec, HostCounters, LoadJob, Session, Window
from virtune.bench.scratch import Scratch, bytes_to_fill, image_bytes
from virtune.bench.surroundings import IMAGE, cache_state_checks, idle_cost, neighbour, read_once, set_cache
from virtune.bench.verify import require_verified
from virtune.dialects.qemu.images import files_of
from virtune.fio.as_asked import Ran, depth_check, identity_of, load_checks
from virtune.fio.generator import Clients
from virtune.fio.job import COUNTED_SECONDS, FioJob, fio_job
from virtune.fio.workloads import own_times
from virtune.flows.stored.show import by_todays_method
from virtune.model import evidence
from virtune.model.contradictions import images_of
from virtune.model.errors import LoadError, RigError, StoreError
from virtune.model.event import Noticed, Say, StepEnded, StepProgressed, StepStarted, TrialPlace
from virtune.model.facts import Unknown
from virtune.model.measurement import Measurement
from virtune.model.remark import COPY, SIMULATED, Weight, label_of
from virtune.model.stack import Disk, Stack
from virtune.model.study import FirstRead, Study, StudyKind, Trial
from virtune.model.text import format_bytes, format_count, format_ns, format_seconds
from virtune.model.workload import Workload
from virtune.plan import trials as planned
from virtune.plan.guests import guest_seed, share_of
from virtune.probe.devices import backing_of, loop_file
from virtune.probe.host import busy_facts
from virtune.shell import Warden
from virtune.store.store import Store
from virtune.warden import at_work


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What trials share: the load generators by name and their use, the rigs, the scratch images, the warden.
    `targets` has what is loaded that is no scratch image, by `disk.place`, the scratch volume too;
    `spread` has the scratch images of guests in other directories, by directory; `data` the checks of the arms' data
    that were made before the first trial, by arm, `survived` those of what was there after a power cut; `host` how
    settings of this host were found; `rbd` the images on Ceph by the pools that arms name. `first_read` is what was
    read of the images; None where nothing was to be read.
    """

    programs: Mapping[str, str]
    clients: Clients
    rigs: Session
    scratch: Scratch
    warden: Warden
    targets: Mapping[str, Held] = field(default_factory=dict)
    directories: Mapping[str, Scratch] = field(default_factory=dict)
    data: Mapping[str, evidence.Check] = field(default_factory=dict)
    survived: Mapping[str, evidence.Check] = field(default_factory=dict)
    rbd: Mapping[str, str] = field(default_factory=dict)
    first_read: FirstRead | None = None
    host: FoundHost = field(default_factory=lambda: FoundHost(frozenset()))

    def scratch_of(self, stack: Stack) -> Scratch:
        """Return the directory of a stack's images."""
        return self.scratch if stack.directory is None else self.directories[stack.directory]

    def held_of(self, stack: Stack) -> Held | None:
        """Return the target, or the volume, that a stack loads; None for scratch images."""
        return self.targets.get(stack.place)

    @contextlib.contextmanager
    def up(
        self, stack: Stack, ground: DiskImageSpec, *, restart: bool = False
    ) -> Iterator[tuple[Bench, Callable[[], tuple[evidence.Check, ...]]]]:
        """Bring a stack up on this host set as it asks; yields what checks the latter too."""
        images = [image for image in (ground.image, ground.second, *ground.further) if image is not None]
        with (
            host_set(stack, images, self.warden.directory, self.host) as checks,
            self.rigs.up(stack, ground, restart=restart) as bench,
        ):
            yield bench, checks


def run_trial(
    study: Study, trial: Trial, tools: Tools, *, attempt: int = 1
) -> tuple[evidence.TrialRecord, tuple[evidence.Capture, ...]]:
    """Run one attempt at a trial and return its record with its raw evidence.

    A failed load or rig gives a record with its reason. Raises NotInForceError when another setting runs than
    requested, since figures must not be reported under its name.
    """
    arm = study.arm(trial.arm)
    workload = arm.load_of(study.workload(trial.workload))
    ground = ground_for(arm.stack, workload, study, tools)
    captures: list[evidence.Capture] = []
    seen: list[evidence.Check] = []
    changeover: evidence.Changeover | None = None
    guest: tuple[tuple[str, str], ...] = ()
    try:
        with tools.up(arm.stack, ground, restart=trial.restart) as (bench, host_checks):
            changeover = bench.changeover
            guest = tuple((name, at_work(bench.seen[name])) for name in evidence.GUEST_FACTS if name in bench.seen)
            captures += [] if changeover is None else [_capture("changeover.txt", changeover.text + "\n")]
            seen += (*bench.in_force.checks, *evidence.not_shown_checks(arm.stack, bench.in_force.checks))
            seen += (*host_checks(), *surroundings_checks(arm.stack, ground, tools))
            seen += [made[arm.name] for made in (tools.data, tools.survived) if arm.name in made]
            captures += [_capture("rig.txt", bench.command), *disks_below(arm.stack, ground)]
            require_verified(arm.name, seen)
            jobs = jobs_of(study, trial, attempt, workload, bench, tools)
            load_on(study, trial, jobs, bench, tools, captures, seen)
            seen += (check for check in host_checks() if not check.agrees)  # somebody changed it meanwhile
            if arm.stack.poll_max_ns is not None and bench.processes:
                captures.append(_capture(evidence.IDLE, idle_cost(bench.processes.values())))
        require_verified(arm.name, seen)
        measurement = derive({c.name: c.content for c in captures}, stack=arm.stack, workload=workload, checks=seen)
        failure = None
    except (LoadError, RigError) as error:
        measurement, failure = None, error.message + (f": {error.hint}" if error.hint else "")
    record = evidence.TrialRecord(
        trial=trial,
        ended=datetime.now(UTC).isoformat(timespec="seconds"),
        in_force=evidence.InForce(checks=tuple(seen), changeover=changeover, guest=guest),
        measurement=measurement,
        failure=failure,
    )
    return record, tuple(captures)


def ground_for(stack: Stack, workload: Workload, study: Study, tools: Tools) -> DiskImageSpec:
    """Return the stack's images or its device, dropped from the page cache or read into it. Several disks share a
    target.
    """
    several = images_of(stack)
    if stack.device.vfio_pci is not None:
        size = study.span_bytes if (drive := tools.held_of(stack)) is None else drive.size_bytes
        return DiskImageSpec(image=None, size_bytes=size, writes=workload.writes)
    if stack.disk.rbd is not None:
        name = tools.rbd[stack.disk.rbd]
        return DiskImageSpec(image=None, size_bytes=study.span_bytes, writes=workload.writes, rbd=name)
    if stack.disk.backend == "null-co" or not stack.kind.measures:
        none = (None,) * (several - 1)
        return DiskImageSpec(image=None, size_bytes=study.span_bytes, writes=workload.writes, further=none)
    if (held := tools.held_of(stack)) is not None:
        set_cache({held.path, _file_of(held.path) or held.path}, stack.cache_state)
        same = (held.path,) * (several - 1)
        return DiskImageSpec(image=held.path, size_bytes=held.size_bytes, writes=workload.writes, further=same)
    image, *further = images_for(stack, tools)
    second = further.pop() if stack.spread is not None and several == 1 else None
    images = (image, *further, *([second] if second is not None else []))
    set_cache([file for one in images for file in files_of(stack.disk, one)], stack.cache_state)
    size = image_bytes(stack.disk, study.span_bytes)
    spec = DiskImageSpec(image=image, size_bytes=size, writes=workload.writes, second=second, further=tuple(further))
    return replace(spec, copy=copy_for(stack, tools))


def copied_to(stack: Stack) -> tuple[tuple[Disk, int], ...]:
    """Return the scratch image, as large as the disk, that a block job of the stack copies it to: disk and number."""
    return ((Disk(filesystem=stack.disk.filesystem), during.IMAGE),) if stack.during in ("backup", "mirror") else ()


def copy_for(stack: Stack, tools: Tools) -> Path | None:
    """Return that image, or the file for snapshots, made if needed; None for a stack without such a job."""
    scratch = tools.scratch_of(stack)
    if stack.during == "snapshot":
        return scratch.overlay_for(stack.disk, during.IMAGE)
    return next((scratch.image_for(disk, tools.warden, number) for disk, number in copied_to(stack)), None)


def images_for(stack: Stack, tools: Tools) -> list[Path]:
    """Return the scratch images of a stack: of each disk, or of each guest; every second one in the directory that
    they are spread over.
    """
    several = max(images_of(stack), 1 if stack.spread is None else 2)
    apart = None if stack.spread is None else tools.directories[stack.spread]
    places = [(tools.scratch_of(stack), number) for number in range(several)]
    if apart is not None:
        places[1::2] = [(apart, number - 1) for _, number in places[1::2]]
    return [scratch.image_for(stack.disk, tools.warden, number) for scratch, number in places]


def surroundings_checks(stack: Stack, ground: DiskImageSpec, tools: Tools) -> Iterator[evidence.Check]:
    """Yield what is found of the images' place, and of how much of them is cached."""
    images = [image for image in (ground.image, ground.second, *ground.further) if image is not None]
    files = [file for image in images for file in files_of(stack.disk, _file_of(image) or image)]
    yield from cache_state_checks(files, stack.cache_state)
    if stack.place != "target" and ground.image is not None:
        found = stack.place if _is_there(ground.image, stack, tools) else "target"
        yield evidence.Check("disk.place", stack.place, found, f"the load is on {ground.image}")


def _is_there(image: Path, stack: Stack, tools: Tools) -> bool:
    """Whether an image lies where the stack says, or is the device that has the name now."""
    if stack.own_target is None:
        return image.resolve().parent == tools.scratch_of(stack).directory.resolve()
    with contextlib.suppress(OSError):
        return image.samefile(stack.own_target)
    return False


def load_on(
    study: Study,
    trial: Trial,
    jobs: list[FioJob],
    bench: Bench,
    tools: Tools,
    captures: list[evidence.Capture],
    seen: list[evidence.Check],
    window: Window | None = None,
) -> None:
    """Run a trial's jobs on a stack that is up, in the study's window or this one; adds to captures and checks."""
    job, stack = jobs[0], study.arm(trial.arm).stack
    workload = study.arm(trial.arm).load_of(study.workload(trial.workload))
    captures += [_capture(evidence.of_guest("job.fio", guest), one.text) for guest, one in enumerate(jobs)]
    chosen = [*job.chosen]
    if (held := tools.held_of(stack)) is not None and stack.device.vfio_pci is None:
        named = study.targets.get(stack.place, f"a volume in {study.scratch}")
        chosen.append((str(held.path), f"{named}, held open so that its name cannot come to mean another"))
    captures.append(_capture("choices.txt", "".join(f"{what}: {why}\n" for what, why in chosen)))
    window = window or Window(
        seconds=study.seconds,
        ramp_seconds=study.ramp_seconds,
        round=trial.round,
        seed=study.seed,
        patience_seconds=COUNTED_SECONDS if workload.counted else PATIENCE_SECONDS,
    )
    share = share_of(workload, stack)
    loads = [LoadJob(job=one, workload=share, program=tools.programs.get(one.program, one.program)) for one in jobs]
    with neighbour(
        stack.neighbour, tools.warden, lambda: tools.scratch_of(stack).image_for(Disk(), tools.warden, IMAGE)
    ) as loud:
        begun, since = time.time(), time.monotonic()
        loaded = bench.run(loads, window, KeptCaptures(captures, {} if loud.pid is None else {"neighbour": loud.pid}))
        ran = Ran(begun=begun, ended=time.time(), seconds=time.monotonic() - since)
        seen += loud.check()
    for guest, output in enumerate((loaded.output, *loaded.beside)):
        captures.append(_capture(evidence.of_guest("fio.json", guest), output))
        if stack.kind.measures:
            # the clock of a guest is its own
            at, log = None if stack.kind.in_guest else ran, loaded.log if len(jobs) == 1 else b""
            seen += load_checks(jobs[guest], output, ran=at, log=log, guest=guest)
    for guest, log in enumerate(loaded.operations):
        captures.append(_capture(evidence.of_guest(evidence.EACH_OPERATION, guest), log))
    captures.append(_capture("command.txt", loaded.command))
    captures.append(_capture("iops.log", loaded.log))
    seen += loaded.checks
    if stack.load_depth is not None:
        seen.append(depth_check(loaded.output, stack.load_depth))


class KeptCaptures:
    """Collects a rig's evidence as captures of the trial. `beside` are its processes besides the rig's."""

    def __init__(self, captures: list[evidence.Capture], beside: Mapping[str, int]) -> None:
        self._captures, self._beside = captures, beside

    def capture(self, name: str, content: bytes | str) -> None:
        self._captures.append(_capture(name, content))

    @contextlib.contextmanager
    def host(self, *, processes: Mapping[str, int], image: Path | None) -> Iterator[HostCounters]:
        """Sample this host while the block runs, and keep the samples even if it fails."""
        devices = backing_of(image).names if image is not None else ()
        file = None if image is None else _file_of(image)
        every = {**processes, **self._beside}
        sampler = Sampler(devices=devices, processes=every, files={} if file is None else {"image": file})
        queue = DiskQueue(devices[0]) if devices else None
        try:
            with sampler, queue or contextlib.nullcontext():
                yield sampler
        finally:
            self.capture("counters.jsonl", sampler.content())
            if queue is not None:
                self.capture(evidence.DISK_QUEUE, queue.content())


def disks_below(stack: Stack, ground: DiskImageSpec) -> Iterator[evidence.Capture]:
    """Yield the capture of the disks that guests are spread over, if they are."""
    second = ground.second or (ground.further[0] if stack.spread is not None and ground.further else None)
    if ground.image is not None and second is not None:
        disks = [[disk.name for disk in backing_of(image).disks] for image in (ground.image, second)]
        yield _capture(evidence.DISKS, json.dumps({"disks": disks}) + "\n")


def jobs_of(study: Study, trial: Trial, attempt: int, workload: Workload, bench: Bench, tools: Tools) -> list[FioJob]:
    """Return the job of every guest that shares the load; one job without guests."""
    stack, chance = study.arm(trial.arm).stack, secrets.token_hex(8)
    # fio loads an existing device, since virtune-load would open it exclusively
    held = tools.held_of(stack)
    claimed = workload.writes and held is not None and held.path.is_block_device()
    clients = replace(tools.clients, alike=tools.clients.alike and not claimed)
    return [
        fio_job(
            share_of(workload, stack),
            bench.target,
            seconds=study.seconds,
            ramp_seconds=study.ramp_seconds,
            seed=guest_seed(planned.trial_seed(study.seed, trial.round), guest),
            clients=clients,
            identity=identity_of(study.id, trial.number, attempt, guest, chance) if stack.kind.measures else "",
        )
        for guest in range(stack.guests)
    ]


def _file_of(image: Path) -> Path | None:
    """Return the file that may be in the host's page cache: the image, or a loop device's backing file."""
    return image if image.is_file() else loop_file(image)


def _capture(name: str, content: bytes | str) -> evidence.Capture:
    return evidence.Capture(name=name, content=content if isinstance(content, bytes) else content.encode())


_TOLD_SECONDS = 2.0
"""What is over sooner is not announced."""

_GUESSED_SECONDS = 0.4
"""After so long it is known how fast a disk reads, so that what is left can be told."""


def read_first(study: Study, images: Iterable[Path], tools: Tools, say: Say) -> FirstRead | None:
    """Read the images of a study; returns what was read, None where nothing was to be read.

    An arm that measures caches as they are found asks for what lies below this host as well, so nothing is read then.
    What this run wrote is not read: it is as fast as later at once.
    """
    sizes = _parts(study, images, tools)
    if not sizes:
        return None
    if not reads_first(study):
        why = "an arm measures caches as they are found (host.cache=as-found)"
        return FirstRead(images=len(sizes), size_bytes=sum(sizes.values()), read_bytes=0, seconds=0.0, why=why)
    limit = planned.first_read_seconds_max(study)
    shown = ReadingProgress(sum(sizes.values()), limit, say)
    found = read_once(sizes, limit_seconds=limit, heard=shown.heard)
    shown.end()
    if found.why and found.read_bytes:
        came = f"{format_bytes(found.read_bytes)} of {format_bytes(found.size_bytes)}"
        text = f"{came} were read before the first trial, then {found.why}; first rounds may be slower than later"
        say(Noticed(text=text))
    return found


def reads_first(study: Study) -> bool:
    """Whether the images of a study are read before its first trial."""
    if study.connect is not None or study.simulated:
        return False
    return all(arm.stack.cache_state != "as-found" for arm in study.arms)


def _parts(study: Study, images: Iterable[Path], tools: Tools) -> dict[Path, int]:
    """Return how much is loaded of each image that this run did not write, by the path that leads to it."""
    made = tools.scratch.made.union(*(one.made for one in tools.directories.values()))
    parts: dict[Path, int] = {}
    # a drive that a guest drives itself is not read
    ours = [one.stack for one in study.arms if one.stack.device.vfio_pci is None]
    read = {stack.place for stack in ours if stack.disk.backend not in ("null-co", "rbd")}
    named = {path: place for place, path in study.targets.items()}
    for image in images:
        if (place := named.get(str(image))) is not None:
            if place in read:
                parts[tools.targets[place].path] = tools.targets[place].size_bytes
        elif image not in made:
            with contextlib.suppress(OSError):  # an image that somebody removed is the business of its trials
                parts[image] = image.stat().st_size
    return parts


class ReadingProgress:
    """Announces a reading that takes long, with the time that is left."""

    def __init__(self, size_bytes: int, limit_seconds: float, say: Say) -> None:
        self._say, self._limit = say, limit_seconds
        self._what = f"reading {format_bytes(size_bytes)} of disk once (at most {format_seconds(limit_seconds)})"
        self._begun = False

    def heard(self, share: float, seconds: float) -> None:
        """Show how far it is."""
        left = self._limit - seconds
        if share > 0:
            left = min(left, seconds * (1 - share) / share)
        if not self._begun and seconds >= _GUESSED_SECONDS and seconds + left > _TOLD_SECONDS:
            self._begun = True
            self._say(StepStarted(what=self._what))
        if self._begun:
            done = seconds / max(seconds + left, 0.001)
            self._say(StepProgressed(what=self._what, fraction=min(1.0, done), seconds_left=max(0.0, left)))

    def end(self) -> None:
        """Show that it is over, if it was shown."""
        if self._begun:
            self._say(StepEnded(what=self._what))


_BUSY_PERCENT = 40.0
"""If some task waited for a CPU in more than this share of the last 10 s, the first trials will be disturbed, as with
3 busy programs on 2 CPUs.
"""


def host_is_busy() -> bool:
    """Whether this host's CPU pressure is now so high that trials will be disturbed."""
    pressure = busy_facts().pressure
    if isinstance(pressure, Unknown):
        return False
    cpu = next((one.some_percent for one in pressure if one.resource == "cpu"), 0.0)
    return not isinstance(cpu, Unknown) and cpu > _BUSY_PERCENT


_BUSY_FACTOR = 2.0
"""The factor of a busy host on the overhead of an attempt, measured with 5 programs per CPU."""


class Pace:
    """The clock of a study: the time of its trials so far, and the forecast for those left."""

    def __init__(
        self, study: Study, *, done: int, busy: bool, seen: planned.SeenCosts = planned.NOTHING_SEEN
    ) -> None:
        """`done` trials were stored by an earlier run, and count with their expected time; `seen` is the overhead in
        this host's studies.
        """
        self._study = study
        self._busy = busy
        self._seen = seen
        self._beside: dict[str, list[float]] = {}
        self._repeated: list[bool] = []
        self._done = done
        self._before = done * fmean(self._expected(arm.name) for arm in study.arms)
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """The seconds of the study since its first trial began."""
        return self._before + time.monotonic() - self._started

    @property
    def rounds(self) -> int:
        """How many whole rounds have run."""
        return (self._done + self._repeated.count(False)) // (len(self._study.arms) * len(self._study.workloads))

    def ran(self, arm: str, *, asked: float, took: float, repeated: bool) -> None:
        """Note an attempt: the seconds planned, the seconds taken, and whether it has to be repeated."""
        self._beside.setdefault(arm, []).append(took - asked)
        self._repeated.append(repeated)

    def left(self, trials: Iterable[Trial], *, rounds: int = 0) -> float:
        """Estimate the time of these trials, and of so many whole rounds after them."""
        arms = Counter(trial.arm for trial in trials)
        for arm in self._study.arms:
            arms[arm.name] += rounds * len(self._study.workloads)
        count = sum(arms.values())
        if not count:
            return 0.0
        once = sum(number * self._expected(arm) for arm, number in arms.items())
        return once * planned.attempts_for(count, self._repeated, busy=self._busy) / count

    def _expected(self, arm: str) -> float:
        asked = self._study.seconds + self._study.ramp_seconds
        mine = self._beside.get(arm)
        if mine:
            return max(0.0, asked + fmean(mine))
        if not self._beside:
            busy = _BUSY_FACTOR if self._busy else 1.0
            return planned.trial_seconds(self._study, self._study.arm(arm).stack, self._seen, busy=busy)
        # this arm is assumed to exceed its expected time as much as the others do
        more = [fmean(found) - self._usual(name) for name, found in self._beside.items()]
        return max(0.0, asked + self._usual(arm) + fmean(more))

    def _usual(self, arm: str) -> float:
        return planned.beside_seconds(self._study.arm(arm).stack, self._seen)


def place_of(study: Study, trial: Trial, pace: Pace) -> TrialPlace:
    """Say where a trial stands in its round."""
    numbers = [one.number for one in study.trials if one.round == trial.round]
    return TrialPlace(number=numbers.index(trial.number) + 1, of=len(numbers), rounds=rounds_at_most(study, pace))


def rounds_at_most(study: Study, pace: Pace) -> int:
    """Return how many rounds a study has; for a sequential one about the most."""
    if not study.sequential:
        return study.rounds_begun
    most = planned.most_rounds(study)
    if study.budget_seconds is None:
        return most
    room = (study.budget_seconds - pace.seconds) / max(0.001, pace.left((), rounds=1))
    return min(most, max(study.rounds_begun, pace.rounds + int(room)))


def seconds_left(study: Study, left: tuple[Trial, ...], pace: Pace) -> float:
    """Estimate the time left; for a sequential study the most."""
    if not study.sequential:
        return pace.left(left)
    most = pace.left(left, rounds=planned.most_rounds(study) - study.rounds_begun)
    return most if study.budget_seconds is None else max(0.0, min(most, study.budget_seconds - pace.seconds))


def all_seconds(study: Study, seen: planned.SeenCosts = planned.NOTHING_SEEN) -> float:
    """Estimate the time of a study from its first step on; for a sequential one the most."""
    pace = Pace(study, done=0, busy=host_is_busy(), seen=seen)
    return before_seconds(study, seen) + seconds_left(study, study.trials, pace)


ImagesIn = dict[Path, list[tuple[Disk, int]]]


def before_seconds(study: Study, seen: planned.SeenCosts = planned.NOTHING_SEEN) -> float:
    """Estimate the time until the first trial can begin."""
    images, copies = scratch_images(study)
    to_fill = sum(bytes_to_fill(place, one, span_bytes=study.span_bytes) for place, one in images.items())
    to_fill += 0 if study.volume is None else study.span_bytes
    # what is filled is not read, and of a target it is known later how large it is
    lasting = sum(len(set(one)) for one in images.values()) + len(study.targets)
    to_read = max(0, study.span_bytes * lasting - to_fill) if reads_first(study) else 0
    # which are written only
    to_fill += sum(bytes_to_fill(place, one, span_bytes=study.span_bytes) for place, one in copies.items())
    return planned.setup_seconds(study, bytes_to_fill=to_fill, bytes_to_read=to_read, seen=seen)


def scratch_images(study: Study) -> tuple[ImagesIn, ImagesIn]:
    """Return the scratch images of a study, disk and number, by their directories: those that are loaded or read, and
    those that are written only.
    """
    images, copies = ImagesIn(), ImagesIn()
    for stack in scratch_stacks(study):
        place = directory_of(study) if stack.directory is None else Path(stack.directory)
        beside = [(Disk(), IMAGE)] if stack.neighbour == "io" else []
        images.setdefault(place, []).extend([*((stack.disk, one) for one in range(images_of(stack))), *beside])
        copies.setdefault(place, []).extend(copied_to(stack))
    return images, copies


def directory_of(study: Study) -> Path:
    """Return the directory of a study's scratch images, of one on a scratch volume the usual one."""
    return Path(study.scratch) if study.volume is None else shell.default_scratch()


def scratch_stacks(study: Study) -> list[Stack]:
    """Return the stacks that stand on scratch images."""
    stacks = dict.fromkeys(arm.stack for arm in study.arms if arm.stack.disk.backend == "file")
    return [stack for stack in stacks if not study.loads_target(stack)]


COPIED_IOS = 10
"""Fewer latencies may be the same in two runs by chance."""


def still_to_run(record: evidence.StudyRecord) -> tuple[Trial, ...]:
    """Return the trials left to run, first the one that was interrupted between two attempts."""
    pending = None if record.study.kind is StudyKind.CHECK else unsettled(record.attempts, most=record.study.attempts)
    return record.left if pending is None or pending in record.left else (pending, *record.left)


class Attempts:
    """Runs the trials of one study, with repeats as needed; `make` stores every attempt."""

    def __init__(self, study: Study, tools: Tools, *, store: Store, say: Say, pace: Pace | None = None) -> None:
        self._pace = pace
        self._study, self._tools, self._store, self._say = study, tools, store, say
        record = by_todays_method(store, study.id)
        self._made = list(record.attempts)
        self._stand = {one.trial.number: one for one in record.trials}
        # a job file with its own ramp is run unchanged
        self._fixed = any(own_times(workload)[1] is not None for workload in study.workloads)
        self._ramp = Ramp(seconds=study.ramp_seconds)
        self._round = 0

    @property
    def made(self) -> tuple[evidence.TrialRecord, ...]:
        """Every attempt so far, those of earlier runs of the study too."""
        return tuple(self._made)

    def make(self, trial: Trial) -> evidence.TrialRecord:
        """Run a trial until its result counts, and return that."""
        self._set_ramp(trial)
        while True:
            begun = time.monotonic()
            asked = replace(self._study, ramp_seconds=self._ramp.seconds)
            count = 1 + sum(one.trial.number == trial.number for one in self._made)
            record, captures = run_trial(asked, trial, self._tools, attempt=count)
            if record.failure is not None and self._study.on_images:
                self._require_room(record)
            record = self._not_a_copy(replace(record, attempt=count))
            if not self._store.add_trial(self._study.id, record, captures):
                said = (
                    f"another process runs study {self._study.id} too: trial {trial.number} is in the store already"
                )
                raise StoreError(said, hint="when that one is over, `virtune compare resume` does what is left")
            self._made.append(record)
            self._stand[trial.number] = record
            # a check measures the host as it is, for about the requested time
            as_it_is = self._study.kind is StudyKind.CHECK and record.failure is None
            again = None if as_it_is else why_again(trial, self._made, most=self._study.attempts)
            if self._pace is not None:
                took = time.monotonic() - begun
                seconds = asked.seconds + asked.ramp_seconds
                self._pace.ran(trial.arm, asked=seconds, took=took, repeated=again is not None)
            if again is None:
                return record
            self._say(Noticed(text=f"trial {trial.number} ({trial.arm}) {again}", of_trial=record.failure is None))

    def _require_room(self, record: evidence.TrialRecord) -> None:
        """Raise LoadError where a trial failed and nothing can be written beside its image any more: all others would
        fail as well, and this one is run again.
        """
        scratch = self._tools.scratch_of(self._study.arm(record.trial.arm).stack)
        if (lack := scratch.lack()) is not None:
            trial, place = record.trial, scratch.directory
            raise LoadError(
                f"trial {trial.number} ({trial.arm}) failed, and {place} takes nothing more: {lack.lower()}",
                hint=f"once it can be written to again, `virtune compare resume {self._study.id}` goes on",
            )

    def _not_a_copy(self, record: evidence.TrialRecord) -> evidence.TrialRecord:
        """Make a trial invalid that has the figures of an earlier one, and that one too: one of them did not run."""
        for index, earlier in enumerate(self._made):
            if earlier.measurement is None or not _same_figures(earlier.measurement, record.measurement):
                continue
            marked = _marked(earlier.measurement, record.trial)
            self._made[index] = first = replace(earlier, measurement=marked)
            if self._stand[first.trial.number] == earlier:
                self._stand[first.trial.number] = first
            self._store.add_measurement(self._study.id, first.trial.number, marked, attempt=first.attempt)
            return replace(record, measurement=_marked(earlier.measurement, first.trial))
        return record

    def record(self, study: Study) -> evidence.StudyRecord:
        """Return the stored study so far, without reading all of it again."""
        trials = tuple(self._stand[number] for number in sorted(self._stand))
        return evidence.StudyRecord(study=study, facts="", finished=False, trials=trials, attempts=tuple(self._made))

    def _set_ramp(self, trial: Trial) -> None:
        if trial.round == self._round or self._fixed:
            return
        self._round = trial.round
        known = len(self._ramp.findings)
        self._ramp = ramp_of(self._study, tuple(self._stand.values()), before_round=trial.round)
        for finding in self._ramp.findings[known:]:
            self._say(Noticed(text=finding.text))


def _same_figures(one: Measurement, other: Measurement | None) -> bool:
    """Whether two measurements are of the same I/Os: two runs never agree in every latency, to the last digit."""
    if other is None or one.histogram is None or one.histogram.count < COPIED_IOS:
        return False
    same = one.histogram == other.histogram and one.get("latency.mean") == other.get("latency.mean")
    return same and all(remark.id != SIMULATED.id for remark in one.remarks)


def _marked(measurement: Measurement, other: Trial) -> Measurement:
    text = f"its figures are those of trial {other.number} ({other.arm}) to the last digit: one of them did not run"
    return replace(measurement, remarks=(*measurement.remarks, COPY.remark(weight=Weight.INVALID, text=text)))


def summary_of(record: evidence.TrialRecord, *, offered: float | None = None) -> str:
    """Say in a line what a trial did, and with `offered` of how many I/Os a second."""
    if record.measurement is None:
        return f"no measurement: {record.failure}"
    iops, mean = record.measurement.get("iops"), record.measurement.get("latency.mean")
    words = [] if offered is None else [f"{format_count(offered)} offered"]
    words += [f"{format_count(iops)} IOPS"] if iops is not None else []
    words += [f"{format_ns(mean)} mean"] if mean is not None else []
    causes = map(label_of, record.measurement.causes)
    words += [f"disturbed: {', '.join(causes)}"] if record.measurement.causes else []
    return ", ".join(words)
