# SPDX-License-Identifier: Apache-2.0
"""What several documents have in common: remarks, values by metric, the version of virtune."""

from tools.schemas.shape import Schema, exactly, number, table, text, word
from virtune.model.metric import METRICS, Metric
from virtune.model.remark import Weight

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
    properties = {metric.id: number(_meaning(metric)) for metric in METRICS}
    return table(description, properties, optional=properties)


def by_metric(description: str, value: Schema) -> Schema:
    """Return something by metric; a metric that is missing was not measured."""
    properties = {metric.id: {"description": _meaning(metric), **value} for metric in METRICS}
    return table(description, properties, optional=properties)


def metric_word(description: str) -> Schema:
    """Return the id of a metric."""
    return word(description, (metric.id for metric in METRICS))


def _meaning(metric: Metric) -> str:
    return f"{metric.label}, in {IN_WORDS[metric.unit]}; {metric.better} is better."
