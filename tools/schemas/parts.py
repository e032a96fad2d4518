# SPDX-License-Identifier: Apache-2.0
"""What several documents have in common: remarks, values by metric, the version of virtune."""

from tools.schemas.shape import Schema, exactly, maybe, moment, number, switch, table, text, whole, word
from virtune.model.metric import METRICS, Metric
from virtune.model.remark import Weight
from virtune.model.verdict import Verdict

IN_WORDS = {
    "1/s": "operations a second",
    "B/s": "bytes a second",
    "ns": "nanoseconds",
    "%": "percent",
    "s/io": "CPU seconds per I/O",
}
"""The units of metrics in words; a metric with another one stops the generation."""


def identity(schema: str) -> Schema:
    """Return the key by which a reader tells what the document is."""
    return exactly("What this document is, and the version of its schema.", schema)


def program_version() -> Schema:
    """Return the version of the virtune that wrote the document."""
    return text("The version of virtune that wrote this document.")


def remark() -> Schema:
    """Return a remark."""
    return table(
        "One thing that a good reader notices.",
        {
            "id": text("The rule's id, which is stable; docs/reference/remarks.md lists them."),
            "weight": word("`invalid` forbids conclusions, `warning` limits them, `note` explains.", Weight),
            "text": text("What was noticed, with the numbers that it rests on."),
            "advice": text("What to do about it; empty where there is nothing to do."),
        },
    )


def measured(description: str) -> Schema:
    """Return numbers by metric; a metric that is missing was not measured."""
    properties = {metric.id: number(meaning(metric)) for metric in METRICS}
    return table(description, properties, optional=properties)


def by_metric(description: str, value: Schema) -> Schema:
    """Return something by metric; a metric that is missing was not measured."""
    properties = {metric.id: {"description": meaning(metric), **value} for metric in METRICS}
    return table(description, properties, optional=properties)


def metric_word(description: str) -> Schema:
    """Return the id of a metric."""
    return word(description, (metric.id for metric in METRICS))


def meaning(metric: Metric) -> str:
    """Say what a metric is, in which unit, and which way is better."""
    return f"{metric.label}, in {IN_WORDS[metric.unit]}; {metric.better} is better."


def ramp() -> Schema:
    """Return a ramp that was too short."""
    return table(
        "One look after five rounds that found the measured time not steady from its begin.",
        {
            "round": whole("The last round with the ramp that was too short.", minimum=1),
            "arm": text("The arm whose halves differed most."),
            "workload": text("Under which workload."),
            "change": number("IOPS of the second half of its trials over those of the first.", exclusiveMinimum=0),
            "before": number("The ramp up to then, in seconds.", minimum=0),
            "after": number("The ramp from then on, of all arms, in seconds.", exclusiveMinimum=0),
        },
    )


def basis() -> Schema:
    """Return the evidence behind the verdicts of one workload."""
    return table(
        "What the verdicts of one workload rest on.",
        {
            "workload": text("Its name."),
            "rounds": whole("Rounds of the pair that has most.", minimum=0),
            "noise": maybe(number("Standard deviation of one round's difference (ln; 0.05 is about 5 %), the median"
                                  " over the pairs; null where no pair has one.", minimum=0)),
            "lag1": maybe(number("How alike neighbouring rounds were taken to be, 0 to 0.9, as the intervals allow"
                                 " for.", minimum=0)),
            "seconds_left": maybe(number("What deciding the rest would take if the noise stays: 0 when nothing is"
                                         " undecided, null when that cannot be said.", minimum=0)),
            "effective": maybe(number("How many independent rounds the rounds are worth, neighbours being as alike as"
                                      " `lag1` says; null where that is.", minimum=0)),
            "correlation_seconds": maybe(number("The integrated autocorrelation time of the load within trials, in"
                                                " seconds; null where no trial kept its course.", minimum=0)),
            "correlation_open": switch("Whether it goes on beyond a trial, so that it is at least this."),
            "drift": maybe(table(
                "How the metric moved over the study, all arms together: a share a minute, with its 95 % interval.",
                {"per_minute": number("Slope."), "low": number("The lower end."), "high": number("The upper end.")},
            )),
            "starts": whole("How many processes, or disks of a guest made anew, carried the trials.", minimum=0),
            "start_spread": maybe(number("Standard deviation (ln) of what their starts brought beside the noise of"
                                         " trials; null where starts cannot be told from trials.", minimum=0)),
        },
    )  # fmt: skip


def checked() -> Schema:
    """Return the result of a host's last A/A test."""
    return maybe(
        table(
            "The last A/A test on this host in the day before; null without one.",
            {
                "study": text("The id of that check."),
                "created": moment("When it was begun, in UTC."),
                "verdict": word("`better` or `worse` was a false alarm.", Verdict),
                "low": maybe(number("The lower end of the ratio, null where there was no interval.")),
                "high": maybe(number("The upper end of the ratio, null where there was no interval.")),
            },
        )
    )
