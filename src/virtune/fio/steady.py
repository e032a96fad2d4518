# SPDX-License-Identifier: Apache-2.0
"""fio's `steadystate`: a job that goes on until its load is steady, and what its result says of that; and the load
that writes a whole disk before.

fio takes a sample each second, and from the end of its window on looks back over it after each: at the slope of a
line through the samples, in % of their mean for a second, or at the sample that is furthest from their mean. All jobs
are put into one reporting group, since fio judges the sum of a group.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from virtune.fio.generator import FIO, INSTEAD
from virtune.fio.job import FioJob
from virtune.fio.results import entries_of, objects, read_result, result_of, text_of
from virtune.model.errors import LoadError, PreconditionError, ReadError
from virtune.model.steady import BLOCK_BYTES, SteadyRule
from virtune.model.workload import ENDS_ITSELF, Job, Workload
from virtune.model.workload import job as make_job


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyFound:
    """What fio says of one load: whether it became steady, how long it ran, and of its last window the operations a
    second and what was compared with the limit, in %.
    """

    attained: bool
    seconds: float
    iops: float | None
    percent: float | None


def steady_job(job: FioJob, workload: Workload, rule: SteadyRule, *, ramp_seconds: float) -> FioJob:
    """Return a job, written for `rule.limit_seconds`, that ends as soon as its load is steady.

    Raises PreconditionError for one that fio cannot judge.
    """
    if job.program != FIO:
        hint = f"{INSTEAD}; in a test guest `--set guest.system=linux`"
        raise PreconditionError(
            "only fio goes on until its load is steady, and virtune-load would load it", hint=hint
        )
    if workload.verbatim is not None:
        raise PreconditionError(
            f"{workload.name} is a job file, which runs as it is and not until it is steady",
            hint="write its words inline: rw=...,bs=...",
        )
    if any(ENDS_ITSELF & one.as_dict().keys() for one in workload.jobs):
        raise PreconditionError(f"{workload.name} ends after an amount of I/O, steady or not")
    ramp = math.ceil(ramp_seconds)
    if rule.limit_seconds < rule.window_seconds + ramp + 1:
        said = f"within {rule.limit_seconds:g} s no load can be found steady: {rule.window_seconds} s are looked at"
        raise PreconditionError(f"{said}, after a ramp of {ramp} s", hint="a longer --steady-limit")
    words = {
        "steadystate": rule.fio,
        "steadystate_duration": str(rule.window_seconds),
        "steadystate_ramp_time": str(ramp),
        "group_reporting": "1",
    }
    begin, text = "[global]\n", job.text.replace("new_group=1\n", "")
    text = text.replace(begin, begin + "".join(f"{name}={value}\n" for name, value in words.items()), 1)
    return replace(job, text=text, asked=tuple(_with(one, words) for one in job.asked))


def _with(one: Job, words: dict[str, str]) -> Job:
    own = {name: value for name, value in one.options if name != "new_group"}
    return make_job(one.name, {**own, **words})


def steady_found(output: bytes) -> SteadyFound:
    """Return what the result of such a job says; raises LoadError where it says nothing of it."""
    seconds = 0.0
    try:
        document = next(found for _, found in objects(text_of(output)))
        states = [state for entry in entries_of(document) if isinstance(state := entry.get("steadystate"), dict)]
        seconds = result_of(document).seconds
    except (ReadError, StopIteration):
        states = []
    if not states:
        raise LoadError("fio's result says nothing of its steadystate", hint="fio 3.0 and newer have it")
    rates = [
        rate for one in states if isinstance(data := one.get("data"), dict) for rate in _numbers(data, "iops_mean")
    ]
    found = [value for one in states for value in _numbers(one, "criterion")]
    return SteadyFound(
        attained=all(one.get("attained") == 1 for one in states),
        seconds=seconds,
        iops=sum(rates) if rates else None,
        percent=max(found, key=abs, default=None),
    )


def _numbers(found: dict[str, object], name: str) -> Iterator[float]:
    """Yield the number of that name, if there is one: `0.316638%` and 635962 are."""
    value = found.get(name)
    try:
        number = float(value.removesuffix("%")) if isinstance(value, str) else value
    except ValueError:
        return
    if isinstance(number, int | float) and math.isfinite(number):
        yield float(number)


def filling(size_bytes: int, *, disks: int) -> Workload:
    """Return the workload that writes so many disks of this size in full once, in order."""
    options = {
        "rw": "write",
        "bs": str(BLOCK_BYTES),
        "iodepth": "32",
        "numjobs": str(disks),
        "number_ios": str(size_bytes // BLOCK_BYTES),
        "end_fsync": "1",
    }
    return Workload(name="precondition", meaning="writes the whole disk", jobs=(make_job("precondition", options),))


def written_bytes(output: bytes) -> int:
    """Return how many bytes a load wrote by its result; raises ReadError where it cannot be read."""
    return sum(one.bytes or 0 for one in read_result(text_of(output)).streams if one.direction == "write")
