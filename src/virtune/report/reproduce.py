# SPDX-License-Identifier: Apache-2.0
"""A study's question in a sentence, and the command line that repeats it."""

import re
import shlex
from collections.abc import Iterator
from typing import assert_never

from virtune.model.durability import durability_of
from virtune.model.metric import BY_ID
from virtune.model.search import Search
from virtune.model.study import Study, StudyKind
from virtune.model.study_options import ATTEMPTS
from virtune.model.workload import INLINE, Workload

AGAIN = "the same arms, load, limits and seed; defaults are written out, so that a later version does the same"
"""What the command that repeats a study has in it, beside what was typed."""


def question_of(study: Study) -> str:
    """Return the study's question in a sentence: a built-in study has its own."""
    if study.builtin and study.title:
        return study.title
    metric = BY_ID[study.metric].label
    workloads = ", ".join(workload.name for workload in study.workloads)
    if len(study.arms) < 2:
        return f"what does {study.arms[0].name} do under {workloads}?"
    arms = ", ".join(study.arm_names)
    return f"which of {arms} differ by {100 * study.margin:.3g} % or more in {metric} under {workloads}?"


def command_again(study: Study) -> str:
    """Return the command line that repeats the study with the same seed; empty where none does: for imported results,
    and where an arm has a load of its own, which the options of `compare` cannot say. Of a load that was a job file
    it first writes the file as the study keeps it.
    """
    if any(arm.options for arm in study.arms):
        return ""
    match study.kind:
        case StudyKind.COMPARE | StudyKind.CHECK:  # a check is a comparison of one stack with itself
            return _rounds_again(study, compares=True)
        case StudyKind.MEASURE:
            return _rounds_again(study, compares=False)
        case StudyKind.TUNE:
            return tune_again(study)
        case StudyKind.SWEEP:
            return sweep_again(study)
        case StudyKind.IMPORT:
            return ""
        case _:
            assert_never(study.kind)


def fleet_again(study: Study) -> str:
    """Return the same for all hosts of a list."""
    return re.sub(r"(^|&& )virtune (?!show )", r"\1virtune fleet run -i hosts.txt ", command_again(study), count=1)


def _rounds_again(study: Study, *, compares: bool) -> str:
    words = ["virtune", "compare", *([] if compares else ["measure"])]
    for arm in study.arms:
        settings = ",".join(f"{name}={value}" for name, value in arm.settings)
        if compares:
            words += ["--arm", f"{arm.name}:{settings}"]
        else:
            words += [word for name, value in arm.settings for word in ("--set", f"{name}={value}")]
    if compares:
        words += ["--baseline", study.baseline]
    for workload in [one for one in study.workloads if one.probe] or study.workloads:
        words += ["--workload", _asked(workload, study)]
    words += ["--rounds", str(study.rounds), "--seconds", f"{study.seconds:g}", "--ramp", f"{study.ramp_seconds:g}"]
    words += _attempts(study)
    words += ["--budget", f"{study.budget_seconds:g}"] if study.budget_seconds is not None else []
    words += ["--seed", str(study.seed), "--span", _size(study.span_bytes)]
    for load in study.at_load:
        words += ["--at-load", load]
    if compares:
        words += [] if study.also else ["--metric", study.metric]
        words += ["--pairs", "all"] if study.pairs == "all" and len(study.arms) > 2 else []
        words += ["--margin", f"{study.margin:g}", "--confidence", f"{study.confidence:g}"]
    for condition in study.conditions:
        words += ["--fail-if", condition.text]
    words += ["--restart"] if any(trial.restart for trial in study.trials) else []
    words += _checks(study)
    return _on_its_disk(words, study)


def _on_its_disk(words: list[str], study: Study) -> str:
    files = [job_file_of(one) for one in study.workloads if one.verbatim is not None]
    # in a folder of the study's name no other file of that name can be meant
    before = [f"mkdir -p {shlex.quote(study.id)}"] if files else []
    for file in files:
        kept = shlex.join(["virtune", "show", study.id, "--capture", file])
        before.append(f"{kept} > {shlex.quote(f'{study.id}/{file}')}")
    where = ["--target", study.target] if study.target else ["--scratch", study.scratch]
    return " && ".join([*before, shlex.join([*words, *where])])


def job_file_of(workload: Workload) -> str:
    """Return the name of a workload's job file, by which `show --capture` prints it."""
    return f"{workload.name}.fio"


def _attempts(study: Study) -> list[str]:
    return [] if study.attempts == ATTEMPTS else ["--attempts", str(study.attempts)]


def _checks(study: Study) -> list[str]:
    asked = {"--check-data": study.check_data, "--check-durability": study.check_durability}
    asked |= {"--precondition": study.precondition, "--until-steady": study.until_steady is not None}
    words = [word for word, said in asked.items() if said]
    if (rule := study.until_steady) is not None:
        words += ["--steady-rule", rule.text, "--steady-limit", f"{rule.limit_seconds:g}s"]
    return words


def tune_again(study: Study) -> str:
    search = study.search
    assert search is not None  # noqa: S101 - only searches are asked again so
    words = ["virtune", "tune", *_space_again(study, search)]
    words += ["--maximize" if search.goal.improves.better == "higher" else "--minimize", search.goal.metric]
    words += [word for limit in search.goal.limits for word in ("--subject-to", limit.text)]
    asked = {
        "--mode": search.mode,
        "--budget": search.budget_seconds,
        "--confirm": search.confirm_pairs,
        "--confirm-seconds": search.confirm_seconds,
        "--soak": search.soak_seconds or None,
        "--spread": search.spread_seconds,
        "--margin": study.margin,
        "--seconds": search.slice_seconds,
        "--ramp": study.ramp_seconds,
        "--seed": study.seed,
        "--span": _size(study.span_bytes),
    }
    for workload in study.workloads:
        words += ["--workload", _asked(workload, study)]
    for flag, value in asked.items():
        words += [] if value is None else [flag, f"{value:g}" if isinstance(value, float) else str(value)]
    words += _attempts(study)
    words += ["--emulated"] if search.emulated else []
    return _on_its_disk(words, study)


def sweep_again(study: Study) -> str:
    plan = study.sweep
    assert plan is not None  # noqa: S101 - only sweeps are asked again so
    words = ["virtune", "sweep"]
    words += [word for name, value in study.arms[0].settings for word in ("--set", f"{name}={value}")]
    words += ["--workload", _asked(study.workloads[0], study)]
    words += [] if plan.limit is None else ["--subject-to", plan.limit.text]
    words += [word for load in plan.loads for word in ("--loads", load)]
    words += [word for one in study.conditions for word in ("--fail-if", one.text)]
    words += ["--rounds", str(plan.rounds), "--seconds", f"{study.seconds:g}", "--ramp", f"{study.ramp_seconds:g}"]
    words += [*_attempts(study), *_checks(study)]
    words += ["--seed", str(study.seed), "--span", _size(study.span_bytes)]
    return _on_its_disk(words, study)


def _size(size: int) -> str:
    """Write a size exactly, and in the largest unit that allows it."""
    units = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
    return next((f"{size // unit}{word}" for unit, word in units if size and not size % unit), str(size))


def _space_again(study: Study, search: Search) -> Iterator[str]:
    varied = {factor.knob for factor in search.factors}
    baseline = study.arm(study.baseline)
    other = next((arm for arm in study.arms if arm.name != study.baseline), baseline)
    fixed = {name: value for name, value in other.settings if name not in varied}
    vary = search.vary
    if vary is None:  # an older search, which did not store the request: the values that it had
        vary = tuple(f"{factor.knob}={','.join(factor.values)}" for factor in search.factors)
    for text in vary:
        yield from ("--vary", text)
    for name, value in fixed.items():
        yield from ("--rig", value) if name == "rig" else ("--set", f"{name}={value}")
    own = [f"{name}={value}" for name, value in baseline.settings if name not in fixed]
    yield from ("--baseline", ",".join(own)) if own else ()
    if search.promise is not durability_of(baseline.stack).promise:
        yield from ("--durability", search.promise.value)


def _asked(workload: Workload, study: Study) -> str:
    """Return a workload as `--workload` takes it: a profile by its name, a job file as the study's own, anything else
    as fio options.
    """
    if workload.verbatim is not None:
        return f"{study.id}/{job_file_of(workload)}"
    if workload.meaning.startswith(INLINE):
        return f"{workload.name}: {workload.meaning.removeprefix(INLINE)}"
    job = workload.jobs[0]
    if len(workload.jobs) > 1 or workload.name == job.name:  # a profile's job has the profile's name
        return workload.name
    return f"{workload.name}: {','.join(f'{name}={value}' for name, value in job.options)}"
