# SPDX-License-Identifier: Apache-2.0
"""The schema of a sweep: what `virtune sweep` writes with `--json`."""

from tools.schemas.parts import identity, program_version
from tools.schemas.shape import Schema, by_name, maybe, moment, number, rows, switch, table, text, whole, written
from virtune.report.json.sweep import SCHEMA


def _study() -> Schema:
    return table(
        "What was asked.",
        {
            "id": text("By which `show` and `resume` find it."),
            "created": moment("When it was begun, in UTC."),
            "simulated": switch("Whether its figures are invented (rig=simulated)."),
            "finished": switch("Whether the curve needed no more loads."),
            "arm": text("The name of the stack."),
            "settings": by_name("Its settings as they were asked for, by knob.", {"type": "string"}),
            "workload": text("The workload that was offered at each load."),
            "limit": maybe(text("The limit that the greatest load was looked for under; null without one.")),
            "rounds": whole("How often each load ran.", minimum=1),
            "seconds": number("Measured time of a trial, in seconds."),
            "ramp_seconds": number("Warm-up before it, in seconds."),
            "seed": whole("Of the random order and offsets."),
            "trials": whole("Trials so far.", minimum=1),
        },
    )


def _estimate(description: str) -> Schema:
    found = table(
        description,
        {
            "iops": number("The load, in operations a second."),
            "low": maybe(number("The lower end of its 95 % interval; null where no load bounds it.")),
            "high": maybe(number("The upper end of its 95 % interval; null where no load bounds it.")),
        },
    )
    return maybe(found)


def schema() -> str:
    """Return the schema as text."""
    point = table(
        "One offered load.",
        {
            "workload": text("Its name in the store."),
            "offered_iops": number("Operations a second that were offered."),
            "achieved_iops": number("Operations a second that were done, the mean of the rounds."),
            "met": switch(
                "Whether the median round did what was offered: 99 % of it, less 10 ms at the end of a trial."
            ),
            "rounds": whole("Rounds that gave a measurement.", minimum=1),
            "values": by_name("Its metrics by id, in base units (ns, B/s, 1/s, %).", {"type": "number"}),
        },
    )
    body = table(
        "What `virtune sweep --json` writes.",
        {
            "schema": identity(SCHEMA),
            "virtune": program_version(),
            "study": _study(),
            "facts": {"description": "The facts of the host: a document `virtune/probe/1`; null without them."},
            "saturation": _estimate("The most that was carried; null where it was not reached."),
            "knee": _estimate("The load of the greatest IOPS by mean latency; null for fewer than three loads."),
            "most": _estimate("The greatest load at which the limit holds; null without one."),
            "why": rows("What was not found, and why.", text("One sentence.")),
            "points": rows("The loads, the least first.", point),
            "command": text("The command line that does it again."),
        },
    )
    return written(SCHEMA, "One stack under more and more load", body)
