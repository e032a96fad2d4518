# SPDX-License-Identifier: Apache-2.0
"""Before anything is measured: every arm comes up once, and, where a study asks for it, shows that it keeps its data.

A pattern is written through the arm, flushed and read back; when the arm is down, its image is read outside of it.
"""

import contextlib
import secrets
from collections.abc import Callable, Mapping

from virtune.bench.outside import difference_outside, loaded_images, readable_outside
from virtune.bench.port import Bench, DiskImageSpec, LoadJob, Window
from virtune.bench.verify import require_verified
from virtune.fio.data_check import STEPS, Step, checked, data_job, data_workload, difference_in, parts_for, regions_of
from virtune.fio.job import COUNTED_SECONDS
from virtune.flows.run.trial import KeptCaptures, Tools, ground_for
from virtune.model.errors import CorruptDataError, LoadError, PreconditionError, RigError, VirtuneError
from virtune.model.event import Event, StepEnded, StepProgressed, StepStarted
from virtune.model.evidence import DATA, Check
from virtune.model.study import Arm, Study

_MARK_BYTES = 4
"""Written as eight hexadecimal digits."""


def all_come_up(
    study: Study, tools: Tools, say: Callable[[Event], None], *, again: bool = False
) -> Mapping[str, Check]:
    """Bring every arm up once, so that a stack that QEMU refuses is reported at once; returns by arm the check of its
    data, where the study asks for that. `again`: after the measurement, at other places.

    Raises PreconditionError for an arm that does not start, CorruptDataError for one that does not keep its data.
    """
    checks: dict[str, Check] = {}
    who = "the arm still keeps" if len(study.arms) == 1 else "all arms still keep"
    what = f"checking that {who if again else who.replace(' still', '')} what is written to them"
    if study.check_data:
        say(StepStarted(what=what))
    for index, arm in enumerate(study.arms):
        try:
            if study.check_data:
                checks[arm.name] = _keeps_data(arm, study, tools, again=again)
                say(StepProgressed(what=what, fraction=(index + 1) / len(study.arms)))
                continue
            with tools.rigs.up(arm.stack, ground_for(arm.stack, study.workloads[0], study, tools)) as bench:
                require_verified(arm.name, bench.in_force.checks)
        except RigError as error:
            said = f": {error.hint}" if error.hint else ""
            raise PreconditionError(f"arm {arm.name!r} does not start: {error.message}{said}") from None
    if study.check_data:
        say(StepEnded(what=what))
    return checks


def check_data_again(study: Study, tools: Tools, say: Callable[[Event], None]) -> None:
    """Check after the measurement, where the study asks for it, that all arms still keep their data.

    Raises CorruptDataError for one that does not.
    """
    if study.check_data:
        all_come_up(study, tools, say, again=True)


def _keeps_data(arm: Arm, study: Study, tools: Tools, *, again: bool) -> Check:
    """Check that an arm keeps its data. The pattern does not stay: a disk that compresses would serve it faster."""
    seed = study.seed + again
    writing = data_workload("write", regions_of(study.span_bytes, seed))
    ground = ground_for(arm.stack, writing, study, tools)
    try:
        proof = _proof_of_data(arm, ground, tools, seed, again=again)
    except CorruptDataError:
        with contextlib.suppress(VirtuneError):  # that it does not keep its data is what matters
            _refill(arm, ground, tools, seed)
        raise
    _refill(arm, ground, tools, seed)
    return Check(setting=DATA, asked="kept", found="kept", proof=f"{proof}: all of that as written")


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
    """Replace the pattern by random data."""
    with tools.rigs.up(arm.stack, ground) as bench:
        _run("refill", arm, bench, tools, "", seed)


def _run(step: Step, arm: Arm, bench: Bench, tools: Tools, mark: str, seed: int, *, again: bool = False) -> None:
    """Run one step on every guest that loads. Raises CorruptDataError for data that is not what was written."""
    job, workload = data_job(step, bench.target, mark=mark, clients=tools.clients, seed=seed)
    one = LoadJob(job=job, workload=workload, program=tools.programs.get(job.program, job.program))
    window = Window(seconds=1.0, ramp_seconds=0.0, patience_seconds=COUNTED_SECONDS)
    try:
        bench.run([one] * arm.stack.guests, window, KeptCaptures([], {}))
    except LoadError as error:
        said = error.message + (f": {error.hint}" if error.hint else "")
        if step == "read" and (at := difference_in(said)) is not None:
            raise _corrupt(
                arm, f"{at} of its disk, read back through it, is not what was written", again=again
            ) from None
        raise LoadError(f"the data of arm {arm.name!r} cannot be checked: {said}") from None


def _corrupt(arm: Arm, what: str, *, again: bool) -> CorruptDataError:
    hint = "nothing was measured; without this arm, or without --check-data, the study runs"
    if again:
        hint = "it kept its data before the measurement: trust no figure of it"
    return CorruptDataError(f"arm {arm.name!r} does not keep its data: {what}", hint=hint)
