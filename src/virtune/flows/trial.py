# SPDX-License-Identifier: Apache-2.0
"""One trial: a stack up, proven, loaded, watched, taken down, and its evidence."""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from virtune.analyse.trial.derive import derive
from virtune.bench.counters import Sampler
from virtune.bench.load import run_load
from virtune.bench.permission import Held
from virtune.bench.port import Bench, DiskImageSpec, Session
from virtune.bench.scratch import Scratch, drop_cache
from virtune.bench.verify.judge import require_verified
from virtune.bench.watch import Moments
from virtune.fio.exported import FIO, Clients
from virtune.fio.generator import PROGRAM
from virtune.fio.job import FioJob, fio_job
from virtune.flows.domain_trial import load_in_domain
from virtune.flows.guest_trial import disks_below, load_in_guests
from virtune.model.errors import LoadError, RigError
from virtune.model.evidence import EACH_OPERATION, Capture, Changeover, Check, InForce, TrialRecord, of_guest
from virtune.model.stack import Stack
from virtune.model.study import Study, Trial
from virtune.model.target import GuestTarget
from virtune.model.verification import not_shown_checks
from virtune.model.workload import Workload
from virtune.plan.guests import guest_seed, share_of
from virtune.plan.interleave import trial_seed
from virtune.probe.devices import backing_of
from virtune.probe.identity import loop_file
from virtune.shell import Warden

_SETTLE_SECONDS = {"fio": 0.3, "virtune-load": 0.05}
"""fio needs about half of this from its start until its ramp begins, and it ends its run that much later than asked;
our own generator takes 0.01 s for both. The counters of the measured time are read inside of that, so that they speak
of nothing else."""

_VERSION = re.compile(rb'"fio version"\s*:\s*"([\x20-\x7e]{1,80}?)"')
_HEAD_BYTES = 64 * 1024
"""The version stands before the first job, behind what fio may have complained of."""

_END_SECONDS = 0.05
"""So long before the end the counters of the measured time are read: no load ends sooner than it was asked to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What trials share: the programs that load by name, what of them loads what, the rigs, the scratch images, the
    warden. `spread` has the scratch images of guests that are to lie elsewhere, by directory.
    """

    programs: Mapping[str, str]
    clients: Clients
    rigs: Session
    scratch: Scratch
    warden: Warden
    target: Held | None
    spread: Mapping[str, Scratch] = field(default_factory=dict)


def run_trial(study: Study, trial: Trial, tools: Tools) -> tuple[TrialRecord, tuple[Capture, ...]]:
    """Run one trial and return its record with its raw evidence.

    A load or rig that failed is a record with its reason. Raises NotInForceError when something else runs than was
    asked for: nothing may be reported under that name.
    """
    arm, workload = study.arm(trial.arm), study.workload(trial.workload)
    ground = ground_for(arm.stack, workload, study, tools)
    captures: list[Capture] = []
    seen: list[Check] = []
    changeover: Changeover | None = None
    try:
        with tools.rigs.up(arm.stack, ground, restart=trial.restart) as bench:
            changeover = bench.changeover
            captures += [] if changeover is None else [_text("changeover.txt", changeover.text + "\n")]
            seen += (*bench.in_force.checks, *not_shown_checks(arm.stack, bench.in_force.checks))
            captures += [_text("rig.txt", bench.command), *disks_below(ground)]
            require_verified(arm.name, seen)
            _load(study, trial, workload, bench, tools, captures, seen)
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
    """Return what the stack stands on, as cold as the one before it."""
    if stack.disk.backend == "null-co":
        return DiskImageSpec(image=None, size_bytes=study.span_bytes, writes=workload.writes)
    if tools.target is not None:
        held = tools.target
        for place in {held.path, _file_of(held.path) or held.path}:
            drop_cache(place)
        return DiskImageSpec(image=held.path, size_bytes=held.size_bytes, writes=workload.writes)
    image = tools.scratch.image_for(stack.disk, tools.warden)
    second = None if stack.spread is None else tools.spread[stack.spread].image_for(stack.disk, tools.warden)
    for cold in (image, *([second] if second is not None else [])):
        drop_cache(cold)
    return DiskImageSpec(image=image, size_bytes=study.span_bytes, writes=workload.writes, second=second)


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
    chosen = [*job.chosen, *_held_words(study, tools)]
    captures.append(_text("choices.txt", "".join(f"{what}: {why}\n" for what, why in chosen)))
    devices = backing_of(bench.image).names if bench.image is not None else ()
    file = None if bench.image is None else _file_of(bench.image)
    files = {} if file is None else {"image": file}
    sampler = Sampler(devices=devices, processes=bench.processes, files=files)
    try:
        with sampler:
            if study.arm(trial.arm).stack.rig == "libvirt":
                loaded = load_in_domain(study, workload, job, bench, sampler, captures)
            elif isinstance(bench.target, GuestTarget):
                loaded = load_in_guests(study, workload, jobs, bench, sampler, captures)
            else:
                loaded = run_load(
                    tools.programs[job.program],
                    job.text,
                    job.arguments,
                    bench=bench,
                    warden=tools.warden,
                    moments=functools.partial(_moments, study, sampler, _SETTLE_SECONDS[job.program]),
                    flushes=_flushes(workload),
                )
        for guest, output in enumerate((loaded.output, *loaded.beside)):
            captures.append(Capture(name=of_guest("fio.json", guest), content=output))
        for guest, log in enumerate(loaded.operations):
            captures.append(Capture(name=of_guest(EACH_OPERATION, guest), content=log))
        captures.append(_text("command.txt", loaded.command))
        captures.append(Capture(name="iops.log", content=loaded.log))
        seen += _judged(loaded.checks, job)
        seen.append(_program_seen(loaded.output, job))
    finally:
        captures.append(Capture(name="counters.jsonl", content=sampler.content()))


def _held_words(study: Study, tools: Tools) -> list[tuple[str, str]]:
    """Say under what name a target of the user's is loaded."""
    if tools.target is None:
        return []
    return [(str(tools.target.path), f"{study.target}, held open so that its name cannot come to mean another")]


def _jobs(study: Study, trial: Trial, workload: Workload, bench: Bench, tools: Tools) -> list[FioJob]:
    """Write the job of every guest that the load is shared among; one job where there is none."""
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
    """Return what loads; a device of the user's is written by fio, since virtune-load would claim it for itself."""
    claimed = workload.writes and tools.target is not None and tools.target.path.is_block_device()
    return replace(tools.clients, alike=tools.clients.alike and not claimed)


def _file_of(image: Path) -> Path | None:
    """Return the file whose pages the host may hold: the image, or what a loop device stands on."""
    return image if image.is_file() else loop_file(image)


def _moments(study: Study, sampler: Sampler, settle_seconds: float, pid: int) -> Moments:
    def on_begin() -> None:
        sampler.add_process("load", pid)
        sampler.sample(mark="begin")

    def on_end() -> None:
        sampler.sample(mark="stop")

    return Moments(
        begin_seconds=study.ramp_seconds + min(settle_seconds, study.seconds / 3),
        end_seconds=study.ramp_seconds + study.seconds - min(_END_SECONDS, study.seconds / 6),
        on_begin=on_begin,
        on_end=on_end,
    )


def _judged(checks: tuple[Check, ...], job: FioJob) -> list[Check]:
    """Hold what was seen of fio itself against what its job asked for."""

    def asked(check: Check) -> str:
        if check.setting == "load.direct":
            return "on" if job.direct else "off"
        if check.setting == "load.engine":
            # of several engines only some leave a trace, so each of them may be the one that is seen
            return check.found if check.found in job.engines else "+".join(sorted(job.engines))
        return check.asked

    return [replace(check, asked=asked(check)) for check in checks]


def _program_seen(output: bytes, job: FioJob) -> Check:
    """Say by whom the result was written, as it says itself."""
    said = _VERSION.search(output[:_HEAD_BYTES])
    name = None if said is None else said[1].decode(errors="replace")
    found = None if name is None else PROGRAM if name.startswith(PROGRAM) else FIO
    return Check(setting="load.program", asked=job.program, found=found, proof=f"the result comes from {name}")


def _flushes(workload: Workload) -> bool:
    """Whether the load makes QEMU flush, now and then or after every write."""
    return any(job.writes or job.get("fsync", "0") != "0" or job.get("fdatasync", "0") != "0" for job in workload)


def _text(name: str, content: str) -> Capture:
    return Capture(name=name, content=content.encode())
