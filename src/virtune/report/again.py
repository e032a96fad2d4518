# SPDX-License-Identifier: Apache-2.0
"""A study in words: what it asks, and the command line that asks it again."""

import shlex

from virtune.model.metric import BY_ID
from virtune.model.study import CHECK, Study
from virtune.model.workload import INLINE, Workload


def question_of(study: Study) -> str:
    """Say in a sentence what the study asks."""
    metric = BY_ID[study.metric].label
    workloads = ", ".join(workload.name for workload in study.workloads)
    if len(study.arms) < 2:
        return f"what does {study.arms[0].name} do under {workloads}?"
    arms = ", ".join(arm.name for arm in study.arms)
    return f"which of {arms} differ by {study.margin:.3g} or more in {metric} under {workloads}?"


def command_again(study: Study) -> str:
    """Write the command line that asks the same question with the same seed."""
    kind = "compare" if study.kind == CHECK else study.kind  # a check is a comparison of one stack with itself
    words = ["virtune", kind]
    for arm in study.arms:
        settings = ",".join(f"{name}={value}" for name, value in arm.settings)
        if kind == "compare":
            words += ["--arm", f"{arm.name}:{settings}"]
        else:
            words += [word for name, value in arm.settings for word in ("--set", f"{name}={value}")]
    if kind == "compare":
        words += ["--baseline", study.baseline]
    for workload in [one for one in study.workloads if one.probe] or study.workloads:
        words += ["--workload", _asked(workload)]
    words += ["--rounds", str(study.rounds), "--seconds", f"{study.seconds:g}", "--ramp", f"{study.ramp_seconds:g}"]
    words += ["--budget", f"{study.budget_seconds:g}"] if study.budget_seconds is not None else []
    words += ["--seed", str(study.seed), "--span", str(study.span_bytes)]
    for load in study.at_load:
        words += ["--at-load", load]
    if kind == "compare":
        words += [] if study.also else ["--metric", study.metric]
        words += ["--margin", f"{study.margin:g}", "--confidence", f"{study.confidence:g}"]
    for condition in study.conditions:
        words += ["--fail-if", condition.text]
    words += ["--restart"] if any(trial.restart for trial in study.trials) else []
    words += ["--target", study.target] if study.target else ["--scratch", study.scratch]
    return shlex.join(words)


def _asked(workload: Workload) -> str:
    """Write a workload as it can be asked for: a profile by its name, anything else in its words."""
    if workload.verbatim is not None:
        return f"{workload.name}.fio"
    if workload.meaning.startswith(INLINE):
        return f"{workload.name}: {workload.meaning.removeprefix(INLINE)}"
    job = workload.jobs[0]
    if len(workload.jobs) > 1 or workload.name == job.name:  # a profile's job has the profile's name
        return workload.name
    return f"{workload.name}: {','.join(f'{name}={value}' for name, value in job.options)}"
