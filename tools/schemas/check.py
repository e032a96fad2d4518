# SPDX-License-Identifier: Apache-2.0
"""The schema of a check: what `virtune check` writes with `--json`."""

from tools.schemas.shape import exactly, table, written
from tools.schemas.typed import Typed
from virtune.model.fitness import Fitness
from virtune.model.reason import OF_HOSTS, OF_VERDICTS
from virtune.report.json.check import SCHEMA
from virtune.report.json.document import IDENTITY, ProgramVersion

WORDS: dict[str, str] = {
    "Fitness.study": "By which `show` finds it again.",
    "Fitness.workload": "What the disk was asked.",
    "Fitness.trials": "Trials that gave a measurement, a count.",
    "Fitness.measured_seconds": "Their measured time together, in seconds.",
    "Fitness.iops": "Operations a second, the mean of all windows.",
    "Fitness.window_seconds": "The length of a window, in seconds.",
    "Fitness.windows_cv": "Standard deviation of IOPS in windows against their mean (0.05 is 5 %).",
    "Fitness.correlation_seconds": "Integrated autocorrelation time: windows nearer than this tell much the same.",
    "Fitness.correlation_open": "Whether it is at least that long, since no trial saw its end.",
    "Fitness.drift": "How IOPS moved over the whole check; null with fewer than four trials.",
    "Fitness.overhead_seconds": "Seconds of a trial in which nothing is measured, its ramp included.",
    "Fitness.slices": "What trials of other lengths would have given.",
    "Fitness.best_seconds": "The length that finds a difference soonest, in seconds.",
    "Fitness.confidence": "The confidence of `reaches`, 0 to 1.",
    "Fitness.reaches": "The smallest difference that a comparison of that length detects by its planned end.",
    "Fitness.same": "The A/A test of one stack: `better` or `worse` would be a false alarm.",
    "Fitness.gates": "Where the trials stood at the gates.",
    "Fitness.neighbours": "Who else worked meanwhile, the busiest first; null when it is shown again.",
    "Fitness.advice": "What to do about it, the most severe first.",
    "Fitness.unfit": "Why the host is not fit to measure on, in words; none where it is fit.",
    "Fitness.unfit_reasons": "The codes of these reasons, in the same order.",
    "Drift.per_minute": "The change in a minute as a share (0.01 is +1 %).",
    "Drift.low": "The lower end of its interval (95 %).",
    "Drift.high": "The upper end of its interval (95 %).",
    "SliceNoise.seconds": "The length, in seconds.",
    "SliceNoise.pairs": "Neighbouring trials that the noise rests on, a count.",
    "SliceNoise.sd": "Standard deviation of ln(slice / slice of the next trial).",
    "SliceNoise.blocks_per_minute": "Pairs of such trials that fit into a minute.",
    "SliceNoise.cost": "Time until a difference is known as well, against the best length.",
    "Reach.minutes": "Minutes of two arms in turn.",
    "Reach.blocks": "Pairs of trials in them, with slices of the best length.",
    "Reach.smallest": "The smallest difference detected with 90 % power (0.05 is 5 %); null where nothing is.",
    "GateStanding.id": "The gate; docs/reference/remarks.md lists them.",
    "GateStanding.label": "What it is about.",
    "GateStanding.unit": "share (0 to 1), count, 1/s, s, or C (degrees above the drive's own limit).",
    "GateStanding.readings": "Attempts that were read, a count.",
    "GateStanding.median": "The median reading.",
    "GateStanding.worst": "The worst reading.",
    "GateStanding.flag": "Readings above this are a warning; null without such a limit.",
    "GateStanding.invalid": "Readings above this invalidate a trial; null without such a limit.",
    "GateStanding.standing": "clear, near (half of its first limit), warns or invalid, by the worst reading.",
    "Neighbour.pid": "The number of the process.",
    "Neighbour.name": "Its name.",
    "Neighbour.cpus": "CPUs that it used in the mean.",
    "Neighbour.bandwidth_bps": "Bytes a second that it moved at the storage layer; null where we may not see that.",
    "SelfTest.verdict": "What would be said of two arms.",
    "SelfTest.rounds": "Pairs of trials that it rests on, a count.",
    "SelfTest.ratio": "One over the other; null where there were too few pairs.",
    "SelfTest.why": "The reason of the verdict, in words.",
    "Interval.estimate": "The ratio itself.",
    "SelfTest.reason": "The code of that reason.",
    "Interval.low": "The lower end of the interval.",
    "Interval.high": "The upper end of the interval.",
    "Interval.confidence": "The confidence of this interval, 0 to 1.",
    "Remark.id": "The rule's id.",
    "Remark.weight": "How much it matters.",
    "Remark.text": "What was noticed.",
    "Remark.advice": "What to do about it; empty where there is nothing to do.",
}
"""By `Class.field`."""


def schema() -> str:
    """Return the schema as text."""
    shapes = Typed(WORDS)
    shapes.of(Fitness)
    if shapes.unused():
        raise KeyError(f"words for what is gone: {', '.join(shapes.unused())}")
    own = shapes.definitions.pop("Fitness")
    own["properties"]["unfit_reasons"]["items"] = {"enum": [*OF_HOSTS]}
    shapes.definitions["SelfTest"]["properties"]["reason"] |= {"enum": [*OF_VERDICTS]}
    body = table("x", {"schema": exactly(IDENTITY, SCHEMA), "virtune": shapes.of(ProgramVersion)})
    body["properties"] |= own["properties"]
    body["required"] = list(body["properties"])
    body["description"] = "What `virtune check --json` writes. Seconds, bytes, 1/s and shares (0 to 1) throughout."
    return written(SCHEMA, "A check of a host", body, shapes.definitions)
