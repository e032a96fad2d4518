# SPDX-License-Identifier: Apache-2.0
"""The schema of `virtune diagnose --json`."""

from tools.schemas.layers import layers
from tools.schemas.parts import identity, program_version
from tools.schemas.shape import Schema, maybe, number, rows, switch, table, text, whole, word, written
from virtune.model.bottleneck import Cause
from virtune.model.threads import THREAD_ROLES
from virtune.report.json.diagnose import SCHEMA


def schema() -> str:
    """Return the schema as text."""
    thread = table(
        "A thread that carries I/O.",
        {
            "tid": whole("Its id.", minimum=0),
            "name": text("Its name."),
            "role": word("What it does.", (*THREAD_ROLES, "load")),
            "cpu_seconds": number("CPU time in the window, in seconds.", minimum=0),
            "user_seconds": number("User time, by clock ticks of 10 ms.", minimum=0),
            "system_seconds": number("Kernel time, by clock ticks of 10 ms.", minimum=0),
            "wait_seconds": maybe(number("Time in which it could have run and had no CPU.", minimum=0)),
            "cpu_per_io_seconds": maybe(number("CPU time for each I/O; null without I/Os.", minimum=0)),
        },
    )
    bottleneck = table(
        "What limits the disk.",
        {
            "cause": word("The cause; `undecidable` where nothing stands out.", Cause),
            "text": text("The cause in words."),
            "evidence": rows("By what it was seen.", text("A sentence.")),
            "experiment": text("What to try next."),
            "rounds": whole("Rounds that say so.", minimum=1),
            "of": whole("Rounds in all.", minimum=1),
        },
    )
    disk = table(
        "A disk under a load.",
        {
            "disk": text("The disk: VM and target, or the arm of a study."),
            "workload": text("The load: its name, or what was seen of it in fio's words."),
            "rate": text("Of a live disk the rate of its I/Os, in fio's words; empty for a stored study."),
            "seconds": number(
                "How long it was looked at; of a stored study the round that the figures and threads are of.",
                exclusiveMinimum=0,
            ),
            "iops": number("I/Os a second.", minimum=0),
            "bandwidth_bps": number("Bytes a second.", minimum=0),
            "bottleneck": bottleneck,
            "layers": layers(),
            "threads": rows("Threads of QEMU and of a load on this host.", thread),
            "guideline": maybe(_guideline()),
            "missing": rows("What could not be seen, and what it would add.", text("A sentence.")),
        },
    )
    body = table(
        "What limits disks under their load.",
        {"schema": identity(SCHEMA), "virtune": program_version(), "disks": rows("The disks.", disk)},
    )
    return written(SCHEMA, "A diagnosis", body)


def _guideline() -> Schema:
    step = table(
        "A question.",
        {
            "question": text("The question."),
            "yes": switch("The answer."),
            "evidence": text("By what it was answered."),
            "assumed": switch("Whether the answer is unknown, and no was taken."),
        },
    )
    return table(
        "The way through the published tuning guideline; null where QEMU does not serve the disk.",
        {
            "id": text("Which guideline."),
            "source": text("Where it comes from."),
            "steps": rows("The questions that were asked.", step, minItems=1),
            "leaf": text("The id of what it ends in."),
            "text": text("What it ends in."),
            "limit": switch("Whether nothing is left to gain."),
            "ours": switch("Whether the study has no such leaf."),
        },
    )
