# SPDX-License-Identifier: Apache-2.0
"""What a study needs before its first trial: images, disks and domains, and every arm seen to come up as asked."""

import contextlib
import itertools
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from virtune.bench.port import Bench, DiskImageSpec, LoadJob, Surroundings, Window, session
from virtune.bench.scratch import Scratch, difference_outside, loaded_images, readable_outside
from virtune.bench.verify import require_verified
from virtune.fio.generator import Clients
from virtune.fio.job import (
    COUNTED_SECONDS,
    STEPS,
    Step,
    checked,
    data_job,
    data_workload,
    difference_in,
    parts_for,
    regions_of,
)
from virtune.fio.options import ENGINES
from virtune.flows.run.preconditions import bring_back
from virtune.flows.run.trial import KeptCaptures, Tools, ground_for
from virtune.flows.stored.show import last_check
from virtune.model import errors
from virtune.model.event import Noticed, Say, step
from virtune.model.evidence import DATA, Check, StudyRecord
from virtune.model.study import Arm, Identity, Study
from virtune.model.text import format_bytes
from virtune.plan.guests import require_fit
from virtune.probe.devices import backing_of, identity_of
from virtune.report.words import names_text
from virtune.shell import Warden
from virtune.store.store import Store

if TYPE_CHECKING:
    from virtune.bench.libvirt.access import DomainAccess


_MARK_BYTES = 4
"""Written as eight hexadecimal digits."""


def all_come_up(study: Study, tools: Tools, say: Say, *, again: bool = False) -> Mapping[str, Check]:
    """Bring every arm up once, so that a stack that QEMU refuses is reported at once; returns by arm the check of its
    data, where the study asks for that. `again`: after the measurement, at other places.

    Raises PreconditionError for an arm that does not start, CorruptDataError for one that does not keep its data.
    """
    checks: dict[str, Check] = {}
    if again and not study.check_data:
        return checks
    who = "the arm still keeps" if len(study.arms) == 1 else "all arms still keep"
    what = f"checking that {who if again else who.replace(' still', '')} what is written to them"
    emulated = list[str]()
    with step(what, say, told=study.check_data) as come:
        for number, arm in enumerate(study.arms, 1):
            try:
                if study.check_data:
                    checks[arm.name] = _keeps_data(arm, study, tools, again=again)
                    come(number, len(study.arms))
                    continue
                ground = ground_for(arm.stack, study.workloads[0], study, tools)
                with tools.up(arm.stack, ground) as (bench, host_checks):
                    require_verified(arm.name, (*bench.in_force.checks, *host_checks()))
                    if bench.in_force.emulated is not None:
                        emulated.append(arm.name)
            except errors.RigError as error:
                said = f": {error.hint}" if error.hint else ""
                raise errors.PreconditionError(f"arm {arm.name!r} does not start: {error.message}{said}") from None
    if emulated:
        say(Noticed(text=f"{names_text(emulated, 3)}: no KVM, so figures of the emulator (TCG) and of no VM"))
    return checks


def _keeps_data(arm: Arm, study: Study, tools: Tools, *, again: bool) -> Check:
    """Check that an arm keeps its data. The pattern does not stay: a disk that compresses would serve it faster."""
    seed = study.seed + again
    writing = data_workload("write", regions_of(study.span_bytes, seed))
    ground = ground_for(arm.stack, writing, study, tools)
    try:
        proof = _proof_of_data(arm, ground, tools, seed, again=again)
    except errors.CorruptDataError:
        with contextlib.suppress(errors.VirtuneError):  # that it does not keep its data is what matters
            _refill(arm, ground, tools, seed)
        raise
    _refill(arm, ground, tools, seed)
    return Check(DATA, "kept", "kept", f"{proof}: all of that as written")


def _proof_of_data(arm: Arm, ground: DiskImageSpec, tools: Tools, seed: int, *, again: bool) -> str:
    """Write the pattern through an arm, read it back, and read its image outside of it; returns what was done."""
    mark = secrets.token_hex(_MARK_BYTES)
    with tools.rigs.up(arm.stack, ground) as bench:
        require_verified(arm.name, bench.in_force.checks)
        for step in STEPS:
            _run(step, arm, bench, tools, mark, seed, again=again)
        regions = parts_for(bench.target, tools.clients, seed)
        size = bench.target.size_bytes
    proof = f"{checked(regions, size)} (seed {seed}) written, flushed and read back through it"
    images = loaded_images(arm.stack, ground)
    if images and readable_outside(arm.stack):
        at = difference_outside(arm.stack, images, regions, mark, tools.warden.directory)
        if at is not None:
            what = f"{at}, read outside of the arm, is not what was written and flushed through it"
            raise _corrupt(arm, what, again=again)
        proof += ", then read from the image outside of it"
    return proof


def _refill(arm: Arm, ground: DiskImageSpec, tools: Tools, seed: int) -> None:
    with tools.rigs.up(arm.stack, ground) as bench:
        _run("refill", arm, bench, tools, "", seed)


def _run(step: Step, arm: Arm, bench: Bench, tools: Tools, mark: str, seed: int, *, again: bool = False) -> None:
    """Run one step on every guest that loads. Raises CorruptDataError for data that is not what was written."""
    job, workload = data_job(step, bench.target, mark=mark, clients=tools.clients, seed=seed)
    one = LoadJob(job=job, workload=workload, program=tools.programs.get(job.program, job.program))
    window = Window(seconds=1.0, ramp_seconds=0.0, patience_seconds=COUNTED_SECONDS)
    try:
        bench.run([one] * arm.stack.guests, window, KeptCaptures([], {}))
    except errors.LoadError as error:
        said = error.message + (f": {error.hint}" if error.hint else "")
        if step == "read" and (at := difference_in(said)) is not None:
            raise _corrupt(
                arm, f"{at} of its disk, read back through it, is not what was written", again=again
            ) from None
        raise errors.LoadError(f"the data of arm {arm.name!r} cannot be checked: {said}") from None


def _corrupt(arm: Arm, what: str, *, again: bool) -> errors.CorruptDataError:
    hint = "nothing was measured; without this arm, or without --check-data, the study runs"
    if again:
        hint = "it kept its data before the measurement: trust no figure of it"
    return errors.CorruptDataError(f"arm {arm.name!r} does not keep its data: {what}", hint=hint)


@contextlib.contextmanager
def simulated_tools(study: Study, say: Say) -> Iterator[Tools]:
    """Yield the tools of a simulated study; raises PreconditionError for a target, which nothing would load."""
    if study.target is not None:
        raise errors.PreconditionError(
            "the simulated rig loads nothing, so it takes no --target", hint="omit --target"
        )
    clients = Clients(engines=frozenset(ENGINES))
    require_fit(study, clients=clients)
    scratch = Scratch(Path(study.scratch), span_bytes=study.span_bytes, say=say)
    with Warden(study.id) as warden, session(Surroundings(warden=warden, scratch=scratch.directory)) as rigs:
        for arm in study.arms:
            try:
                with rigs.up(arm.stack, DiskImageSpec(image=None, size_bytes=study.span_bytes, writes=False)):
                    pass
            except errors.RigError as error:
                raise errors.PreconditionError(f"arm {arm.name!r}: {error.message}", hint=error.hint) from None
        yield Tools(programs={}, clients=clients, rigs=rigs, scratch=scratch, warden=warden)


@contextlib.contextmanager
def further_directories(study: Study, own: Scratch, say: Say) -> Iterator[dict[str, Scratch]]:
    """Yield the scratch directories that arms name besides the study's `own`, by name: those of their images, and
    those that guests are spread over.

    Two names of the same directory count once. Raises PreconditionError for one that is not there, since where
    nothing is mounted it would lie on another disk than was meant, and where guests are spread over one directory.
    """
    spread = [one.stack.spread for one in study.arms if one.stack.spread is not None]
    places = sorted({*spread, *(one.stack.directory for one in study.arms if one.stack.directory is not None)})
    if spread and not study.on_images:
        raise errors.RefusedTargetError(
            "guests are spread over scratch images, not over a target or a volume and another"
        )
    meant = {place: Path(place).resolve() for place in places}
    for place, other in itertools.combinations((place for place in meant if place not in spread), 2):
        if meant[place] == meant[other]:
            raise errors.PreconditionError(f"disk.place={place} and disk.place={other} are one directory")
    first = None if study.volume is not None else Path(study.scratch).resolve()
    for stack in (one.stack for one in study.arms if one.stack.spread is not None):
        if meant[str(stack.spread)] == (first if stack.directory is None else meant[stack.directory]):
            said = f"guests.spread names the scratch directory itself, {stack.spread}, so it spreads nothing"
            raise errors.PreconditionError(said, hint="name a directory on another disk")
    with contextlib.ExitStack() as ends:
        others = {*meant.values()} - {first}
        made = {path: ends.enter_context(_named(path, study, say)) for path in others}
        found = {place: made.get(path, own) for place, path in meant.items()}
        for place in sorted({one.stack.directory for one in study.arms if one.stack.directory is not None}):
            below = backing_of(found[place].directory)
            named = "+".join(disk.name for disk in below.disks) or below.gap
            same = below.mount_point == backing_of(own.directory).mount_point
            beside = ", the same filesystem as the scratch directory" if same else ""
            say(Noticed(text=f"disk.place={place}: {below.filesystem} on {below.source} ({named}){beside}"))
        yield found


@contextlib.contextmanager
def _named(path: Path, study: Study, say: Say) -> Iterator[Scratch]:
    with contextlib.ExitStack() as ends:
        try:
            made = ends.enter_context(Scratch(path, span_bytes=study.span_bytes, say=say))
        except errors.PreconditionError as error:
            raise errors.PreconditionError(error.message, hint=_ELSEWHERE) from None
        yield made


_ELSEWHERE = "disk.place (guests.spread) names a directory of yours, below directories of yours or root's"


def ready_domains(study: Study, say: Say) -> "Mapping[str, DomainAccess]":
    """Check the domains of a study and the requirements of a load in them.

    Returns the access to each by its name. Raises PreconditionError with what is missing and what to do.
    """
    if study.connect is None:
        return {}
    from virtune.bench.libvirt.access import find_way, require_possible

    found: dict[str, DomainAccess] = {}
    for domain in dict.fromkeys(arm.stack.domain for arm in study.arms if arm.stack.domain is not None):
        with step(f"looking into {domain}", say):
            found[domain] = find_way(study.connect, domain)
            for arm in study.arms:
                if arm.stack.domain == domain:
                    require_possible(found[domain], arm.stack)
    return found


def identities(paths: Iterable[Path]) -> tuple[Identity, ...]:
    """Return the identities of the loaded images, so that a resumed study can check them."""
    found = (identity_of(path) for path in sorted(set(paths)))
    return tuple(one for one in found if one is not None)


def begun(study: Study, images: Iterable[Path], tools: Tools, store: Store) -> Study:
    """Return a study that is about to be stored, with what is known of its images and its host."""
    return replace(
        study,
        images=identities(images),
        checked=last_check(store, study),
        first_reads=() if tools.first_read is None else (tools.first_read,),
    )


def resumed(record: StudyRecord, tools: Tools, store: Store) -> StudyRecord:
    """Return a record that is about to be continued, with what was read of its images just now."""
    if tools.first_read is None:
        return record
    read = replace(tools.first_read, after=len(record.trials))
    study = replace(record.study, first_reads=(*record.study.first_reads, read))
    store.replace_study(study)
    return replace(record, study=study)


def require_same_images(study: Study) -> None:
    """Raise RefusedTargetError when a file or device is not the one that the study began with.

    Otherwise rounds of two disks would be mixed in one table. A drive that a killed run left with a guest comes back
    first.
    """
    bring_back(study)
    for begun in study.images:
        reason = _replaced(begun, identity_of(Path(begun.path)))
        if reason is not None:
            raise errors.RefusedTargetError(
                f"{begun.path} is not what study {study.id} began with: {reason}",
                hint=f"ask the question anew; `virtune show {study.id} --report FILE` has its command line, and what"
                " is finished stays",
            )


def _replaced(begun: Identity, now: Identity | None) -> str | None:
    """Say in words how one differs from the other; None for the same."""
    if now is None:
        return "it is gone"
    if begun.device != now.device:
        return f"it was on the device {begun.device}, and is on {now.device}"
    if begun.inode != now.inode or (begun.born_ns and now.born_ns and begun.born_ns != now.born_ns):
        return "another file has its name now"
    if begun.size_bytes and now.size_bytes and begun.size_bytes != now.size_bytes:
        return f"it had {format_bytes(begun.size_bytes)}, and has {format_bytes(now.size_bytes)}"
    return None
