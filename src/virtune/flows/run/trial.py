# SPDX-License-Identifier: Apache-2.0
"""Run one trial: bring a stack up, verify it, load and watch it, take it down, and return the evidence."""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from virtune.analyse.trial.derive import derive
from virtune.bench.cache_state import cache_state_checks, set_cache
from virtune.bench.counters import DiskQueue, Sampler
from virtune.bench.neighbour import IMAGE, idle_cost, neighbour
from virtune.bench.permission import Held
from virtune.bench.port import PATIENCE_SECONDS, Bench, DiskImageSpec, HostCounters, LoadJob, Session, Window
from virtune.bench.scratch import Scratch, image_bytes
from virtune.bench.verify import require_verified
from virtune.fio.as_asked import Ran, depth_check, load_checks
from virtune.fio.generator import Clients
from virtune.fio.job import COUNTED_SECONDS, FioJob, fio_job
from virtune.model.contradictions import images_of
from virtune.model.errors import LoadError, RigError
from virtune.model.evidence import (
    DISK_QUEUE,
    DISKS,
    EACH_OPERATION,
    IDLE,
    Capture,
    Changeover,
    Check,
    InForce,
    TrialRecord,
    not_shown_checks,
    of_guest,
)
from virtune.model.stack import Disk, Stack
from virtune.model.study import FirstRead, Study, Trial
from virtune.model.workload import Workload
from virtune.plan.guests import guest_seed, share_of
from virtune.plan.trials import trial_seed
from virtune.probe.devices import backing_of, loop_file
from virtune.shell import Warden


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What trials share: the load generators by name and their use, the rigs, the scratch images, the warden.
    `spread` has the scratch images of guests in other directories, by directory; `data` the checks of the arms' data
    that were made before the first trial, by arm; `rbd` the images on Ceph by the pools that arms name. `first_read`
    is what was read of the images; None where nothing was to be read.
    """

    programs: Mapping[str, str]
    clients: Clients
    rigs: Session
    scratch: Scratch
    warden: Warden
    target: Held | None
    spread: Mapping[str, Scratch] = field(default_factory=dict)
    data: Mapping[str, Check] = field(default_factory=dict)
    rbd: Mapping[str, str] = field(default_factory=dict)
    first_read: FirstRead | None = None


def run_trial(study: Study, trial: Trial, tools: Tools) -> tuple[TrialRecord, tuple[Capture, ...]]:
    """Run one trial and return its record with its raw evidence.

    A failed load or rig gives a record with its reason. Raises NotInForceError when another setting runs than
    requested, since figures must not be reported under its name.
    """
    arm = study.arm(trial.arm)
    workload = arm.load_of(study.workload(trial.workload))
    ground = ground_for(arm.stack, workload, study, tools)
    captures: list[Capture] = []
    seen: list[Check] = []
    changeover: Changeover | None = None
    try:
        with tools.rigs.up(arm.stack, ground, restart=trial.restart) as bench:
            changeover = bench.changeover
            captures += [] if changeover is None else [_text("changeover.txt", changeover.text + "\n")]
            seen += (*bench.in_force.checks, *not_shown_checks(arm.stack, bench.in_force.checks))
            seen += surroundings_checks(arm.stack, ground, tools)
            seen += [tools.data[arm.name]] if arm.name in tools.data else []
            captures += [_text("rig.txt", bench.command), *disks_below(arm.stack, ground)]
            require_verified(arm.name, seen)
            _load(study, trial, workload, bench, tools, captures, seen)
            if arm.stack.poll_max_ns is not None and bench.processes:
                captures.append(_text(IDLE, idle_cost(bench.processes.values())))
        require_verified(arm.name, seen)
        measurement = derive({c.name: c.content for c in captures}, stack=arm.stack, workload=workload, checks=seen)
        failure = None
    except (LoadError, RigError) as error:
        measurement, failure = None, error.message + (f": {error.hint}" if error.hint else "")
    record = TrialRecord(
        trial=trial,
        ended=datetime.now(UTC).isoformat(timespec="seconds"),
        in_force=InForce(checks=tuple(seen), changeover=changeover),
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
        size = study.span_bytes if tools.target is None else tools.target.size_bytes
        return DiskImageSpec(image=None, size_bytes=size, writes=workload.writes)
    if stack.disk.rbd is not None:
        name = tools.rbd[stack.disk.rbd]
        return DiskImageSpec(image=None, size_bytes=study.span_bytes, writes=workload.writes, rbd=name)
    if stack.disk.backend == "null-co" or not stack.kind.measures:
        none = (None,) * (several - 1)
        return DiskImageSpec(image=None, size_bytes=study.span_bytes, writes=workload.writes, further=none)
    if tools.target is not None and stack.place == "target":
        held = tools.target
        set_cache({held.path, _file_of(held.path) or held.path}, stack.cache_state)
        same = (held.path,) * (several - 1)
        return DiskImageSpec(image=held.path, size_bytes=held.size_bytes, writes=workload.writes, further=same)
    image, *further = images_for(stack, tools)
    second = further.pop() if stack.spread is not None and several == 1 else None
    set_cache((image, *further, *([second] if second is not None else [])), stack.cache_state)
    size = image_bytes(stack.disk, study.span_bytes)
    return DiskImageSpec(image=image, size_bytes=size, writes=workload.writes, second=second, further=tuple(further))


def images_for(stack: Stack, tools: Tools) -> list[Path]:
    """Return the scratch images of a stack: of each disk, or of each guest; every second one in the directory that
    they are spread over.
    """
    several = max(images_of(stack), 1 if stack.spread is None else 2)
    apart = None if stack.spread is None else tools.spread[stack.spread]
    found = []
    for number in range(several):
        if apart is not None and number % 2:
            found.append(apart.image_for(stack.disk, tools.warden, number - 1))
        else:
            found.append(tools.scratch.image_for(stack.disk, tools.warden, number))
    return found


def surroundings_checks(stack: Stack, ground: DiskImageSpec, tools: Tools) -> Iterator[Check]:
    """Yield what is found of the images' place, and of how much of them is cached."""
    images = [image for image in (ground.image, ground.second, *ground.further) if image is not None]
    yield from cache_state_checks([_file_of(image) or image for image in images], stack.cache_state)
    if stack.place == "scratch" and ground.image is not None:
        found = "scratch" if ground.image.parent == tools.scratch.directory else "target"
        yield Check(setting="disk.place", asked="scratch", found=found, proof=f"the load is on {ground.image}")


def _load(
    study: Study,
    trial: Trial,
    workload: Workload,
    bench: Bench,
    tools: Tools,
    captures: list[Capture],
    seen: list[Check],
) -> None:
    jobs = _jobs(study, trial, workload, bench, tools)
    job = jobs[0]
    captures += [_text(of_guest("job.fio", guest), one.text) for guest, one in enumerate(jobs)]
    chosen = [*job.chosen, *_held_words(study, study.arm(trial.arm).stack, tools)]
    captures.append(_text("choices.txt", "".join(f"{what}: {why}\n" for what, why in chosen)))
    window = Window(
        seconds=study.seconds,
        ramp_seconds=study.ramp_seconds,
        round=trial.round,
        seed=study.seed,
        patience_seconds=COUNTED_SECONDS if workload.counted else PATIENCE_SECONDS,
    )
    share = share_of(workload, study.arm(trial.arm).stack)
    loads = [LoadJob(job=one, workload=share, program=tools.programs.get(one.program, one.program)) for one in jobs]
    stack = study.arm(trial.arm).stack
    with neighbour(
        stack.neighbour, tools.warden, lambda: tools.scratch.image_for(Disk(), tools.warden, IMAGE)
    ) as loud:
        begun, since = time.time(), time.monotonic()
        loaded = bench.run(loads, window, KeptCaptures(captures, {} if loud.pid is None else {"neighbour": loud.pid}))
        ran = Ran(begun=begun, ended=time.time(), seconds=time.monotonic() - since)
        seen += loud.check()
    for guest, output in enumerate((loaded.output, *loaded.beside)):
        captures.append(Capture(name=of_guest("fio.json", guest), content=output))
        if stack.kind.measures:
            # the clock of a guest is its own
            seen += load_checks(jobs[guest], output, ran=None if stack.kind.in_guest else ran, guest=guest)
    for guest, log in enumerate(loaded.operations):
        captures.append(Capture(name=of_guest(EACH_OPERATION, guest), content=log))
    captures.append(_text("command.txt", loaded.command))
    captures.append(Capture(name="iops.log", content=loaded.log))
    seen += loaded.checks
    if stack.load_depth is not None:
        seen.append(depth_check(loaded.output, stack.load_depth))


class KeptCaptures:
    """Collects a rig's evidence as captures of the trial. `beside` are its processes besides the rig's."""

    def __init__(self, captures: list[Capture], beside: Mapping[str, int]) -> None:
        self._captures, self._beside = captures, beside

    def capture(self, name: str, content: bytes | str) -> None:
        """Add raw evidence by name."""
        self._captures.append(Capture(name=name, content=content if isinstance(content, bytes) else content.encode()))

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
                self.capture(DISK_QUEUE, queue.content())


def disks_below(stack: Stack, ground: DiskImageSpec) -> Iterator[Capture]:
    """Yield the capture of the disks that guests are spread over, if they are."""
    second = ground.second or (ground.further[0] if stack.spread is not None and ground.further else None)
    if ground.image is not None and second is not None:
        disks = [[disk.name for disk in backing_of(image).disks] for image in (ground.image, second)]
        yield _text(DISKS, json.dumps({"disks": disks}) + "\n")


def _held_words(study: Study, stack: Stack, tools: Tools) -> list[tuple[str, str]]:
    """Return a note on the name under which an existing target is loaded."""
    if tools.target is None or stack.place == "scratch" or stack.device.vfio_pci is not None:
        return []
    return [(str(tools.target.path), f"{study.target}, held open so that its name cannot come to mean another")]


def _jobs(study: Study, trial: Trial, workload: Workload, bench: Bench, tools: Tools) -> list[FioJob]:
    """Return the job of every guest that shares the load; one job without guests."""
    stack = study.arm(trial.arm).stack
    return [
        fio_job(
            share_of(workload, stack),
            bench.target,
            seconds=study.seconds,
            ramp_seconds=study.ramp_seconds,
            seed=guest_seed(trial_seed(study.seed, trial.round), guest),
            clients=_clients(workload, tools),
        )
        for guest in range(stack.guests)
    ]


def _clients(workload: Workload, tools: Tools) -> Clients:
    """Return the load generators; fio loads an existing device, since virtune-load would open it exclusively."""
    claimed = workload.writes and tools.target is not None and tools.target.path.is_block_device()
    return replace(tools.clients, alike=tools.clients.alike and not claimed)


def _file_of(image: Path) -> Path | None:
    """Return the file that may be in the host's page cache: the image, or a loop device's backing file."""
    return image if image.is_file() else loop_file(image)


def _text(name: str, content: str) -> Capture:
    return Capture(name=name, content=content.encode())
