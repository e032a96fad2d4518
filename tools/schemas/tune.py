# SPDX-License-Identifier: Apache-2.0
"""The schema of a search: what `virtune tune`, and `resume` and `show` of a search, write with `--json`."""

from tools.schemas import probe
from tools.schemas.parts import basis, checked, identity, metric_word, program_version, ramp
from tools.schemas.result import CAUSES
from tools.schemas.shape import (
    Schema,
    by_name,
    exactly,
    maybe,
    moment,
    number,
    rows,
    switch,
    table,
    text,
    whole,
    word,
    written,
)
from virtune.model.durability import Promise
from virtune.model.search import Phase
from virtune.model.standing import Place
from virtune.model.tuning import LimitState, Recommendation
from virtune.model.verdict import Verdict
from virtune.report.json.tune import SCHEMA

PROGRAMS = ("qemu", "qemu-img", "libvirt")
"""In whose words a winner is written."""


def schema() -> str:
    """Return the schema as text."""
    facts, of_facts = probe.document()
    body = table(
        "What `virtune tune`, and `resume` and `show` of a search, write with `--json`. Base units throughout: ns,"
        " bytes, 1/s, CPU seconds per I/O.",
        {
            "schema": identity(SCHEMA),
            "virtune": program_version(),
            "study": _study(),
            "facts": maybe({"description": "The host as it was when the search began.", "$ref": "#/$defs/Facts"}),
            "recommendation": word("What to do.", Recommendation),
            "why": text("The reason, in words."),
            "winner": maybe(text("The arm to change to, or to keep; null while nobody leads.")),
            "leader": maybe(text("The arm that leads the race; another than the winner where it may break a limit.")),
            "distance": maybe(
                number("The winner is at most this share below the best of the ranked (0.03 is 3 %).", minimum=0)
            ),
            "error": number("The probability that anything said of the race is not so, 0 to 1.", minimum=0),
            "certified": switch("Whether the leader is certainly within the margin of the best."),
            "rivals": rows(
                "Arms that may be better than the leader by more than the margin: while there are any, which one is"
                " the best is undecided.",
                text("A name."),
            ),
            "tied": rows("Arms that are certainly as good as the leader within the margin.", text("A name.")),
            "confirmation": maybe(_confirmation()),
            "soaks": rows("Arms that were loaded for minutes.", _soak()),
            "limits": rows("Every arm against every limit.", _limit()),
            "arms": rows("The arms that compete and break no limit.", _arm()),
            "tried": whole("How many configurations were raced.", minimum=0),
            "broken": rows(
                "Arms that certainly break a limit.",
                table(
                    "One of them.",
                    {
                        "arm": text("Its name."),
                        "after_blocks": whole("Blocks after which that was known.", minimum=1),
                        **_tried(),
                    },
                ),
            ),
            "cost": _cost(),
            "repeated": whole("Attempts that failed or were disturbed, and ran again.", minimum=0),
            "basis": table(
                "The evidence behind the verdicts.",
                {
                    "unit": exactly("What the race counts as one observation.", "block"),
                    "confirmation_unit": exactly("What the confirmation counts as one: both made anew.", "start"),
                    "checked": checked(),
                    "workloads": rows("By workload; none while the race runs.", basis()),
                    "command": text("The command line that searches the same again, with the same seed."),
                },
            ),
            "ramps": rows("Ramps that were found too short, in the order of time.", ramp()),
            "notes": rows(
                "Warnings: disturbances that repeated attempts did not remove, and limits of the result.",
                text("A sentence."),
            ),
            "spelled": by_name("The winner, as other programs configure it.", text("The text."), PROGRAMS),
            "spelled_notes": by_name(
                "Notes on these texts, or why there are none.",
                rows("In words.", text("A sentence.")),
                PROGRAMS,
            ),
        },
    )  # fmt: skip
    return written(SCHEMA, "The result of a search", body, {"Facts": facts, **of_facts})


def _tried() -> dict[str, Schema]:
    return {
        "attempts": whole("Attempts at its trials in all phases, failed and invalid ones too.", minimum=0),
        "failed": whole("How many of them gave no measurement.", minimum=0),
        "invalid": by_name(
            "How many of them were invalid, by the id of the remark that says why.",
            whole("A number of attempts.", minimum=1),
            CAUSES,
        ),
    }


def _study() -> Schema:
    factor = table(
        "A knob that is varied.",
        {
            "knob": text("Its id."),
            "values": rows("The values it takes, as they are written.", text("A value.")),
            "costly": switch("Whether turning it makes a process or a guest's device anew (a whole plot)."),
        },
    )
    removed = table(
        "What was left out, and why.",
        {
            "what": text("A value, or one of the configurations by name."),
            "count": maybe(whole("How many configurations; null for a value that this host has not.", minimum=1)),
            "why": text("The reason, in words."),
        },
    )
    apart = table(
        "Configurations that promise another durability, and are never ranked with the others.",
        {
            "arms": rows("Their names.", text("A name."), minItems=1),
            "durability": word("What they promise.", Promise),
            "weaker": switch("Whether that is less than what the ranked promise."),
            "why": text("What a write survives there, and why."),
        },
    )
    return table(
        "What was searched, and how.",
        {
            "id": text("By which `show` and `resume` find it."),
            "kind": exactly("The verb that made it.", "tune"),
            "created": moment("When it was begun, in UTC."),
            "mode": word("How the race is run.", ("quick", "certify")),
            "metric": metric_word("The metric that is improved."),
            "better": word("Which way is better.", ("higher", "lower")),
            "limits": rows("What must be kept, as it was written.", text("A limit.")),
            "durability": word("What every ranked configuration promises.", Promise),
            "ranked": whole("How many configurations compete.", minimum=2),
            "tries": maybe(
                whole("At most so many of them race, as Optuna proposes them; null where all do.", minimum=1)
            ),
            "spread_seconds": number("Blocks of the race begin at least so many seconds apart.", minimum=0),
            "baseline": text("The arm that is there now."),
            "margin": number("A difference that is not worth more measuring (0.03 is 3 %).", exclusiveMinimum=0),
            "ramp_seconds": number("Warm-up before each slice, not measured, in seconds.", minimum=0),
            "seed": whole("Seed of the order of trials and of random offsets.", minimum=0),
            "span_bytes": whole("Size of the scratch image, or how much of a target is used, in bytes.", minimum=1),
            "target": maybe(text("The user's own file or device that was loaded; null for scratch images.")),
            "workloads": rows("The names of the workloads.", text("A name."), minItems=1),
            "jobs": rows(
                "Their jobs, as fio is asked.",
                table(
                    "One job of a workload.",
                    {
                        "workload": text("The workload that it belongs to."),
                        "name": text("Its name."),
                        "options": by_name("fio's options.", text("The value, as it was written.")),
                    },
                ),
            ),
            "budget_seconds": maybe(
                number("The time that was given to all of it, in seconds; null is the mode's own.", minimum=0)
            ),
            "factors": rows("The knobs that are varied.", factor),
            "removed": rows("What was left out.", removed),
            "apart": rows("What is never ranked with the others.", apart),
            "finished": switch("Whether nothing is left to run."),
            "phase": word("What is run, or was run last.", Phase),
        },
    )


def _confirmation() -> Schema:
    ratio = table(
        "winner / baseline of the metric: Hodges-Lehmann over pairs of starts.",
        {
            "estimate": number("The ratio itself. 1 is no change."),
            "low": number("The lower end of the interval."),
            "high": number("The upper end of the interval."),
            "confidence": number("The confidence that so many pairs allow, 0 to 1."),
        },
    )
    return table(
        "Winner against baseline on fresh data, started anew for each measurement.",
        {
            "pairs": whole("Pairs of starts that gave values of both.", minimum=0),
            "winner": maybe(number("The metric of the winner: geometric mean over its starts.")),
            "baseline": maybe(number("The metric of the baseline: geometric mean over its starts.")),
            "ratio": maybe(ratio),
            "verdict": word("Of the winner against the baseline.", Verdict),
            "why": text("The reason, in words."),
            "spread": maybe(number("Relative standard deviation over the winner's starts.", minimum=0)),
            "baseline_spread": maybe(number("The same of the baseline.", minimum=0)),
            "unstable": switch("Whether the winner's starts differ by more than a tenth."),
            "breaks": rows("Limits that the winner's fresh data do not keep.", text("A limit.")),
            "processes": maybe(
                whole(
                    "In how many processes the winner was measured: where they are fewer than the pairs, a start was"
                    " a guest's disk made anew in the machine that there was. Null where it was not written down.",
                    minimum=1,
                )
            ),
        },
    )


def _soak() -> Schema:
    return table(
        "One arm under load for minutes.",
        {
            "arm": text("Its name."),
            "seconds": number("How long.", minimum=0),
            "ratio": maybe(number("The metric's last third over its first; 1 is steady.")),
        },
    )


def _limit() -> Schema:
    return table(
        "One arm against one limit.",
        {
            "arm": text("Its name."),
            "workload": text("The workload of this check."),
            "limit": text("The limit, as it was written."),
            "blocks": whole("Slices that gave a value.", minimum=0),
            "value": maybe(number("The metric, in its base unit.")),
            "low": maybe(number("The lower end of its interval, null where there is none.")),
            "high": maybe(number("The upper end of its interval, null where there is none.")),
            "state": word("Whether it is certainly kept, certainly broken, or open.", LimitState),
        },
    )


def _arm() -> Schema:
    contrast = table(
        "ln(arm / leader) in the direction of the goal: below 0 is worse than the leader.",
        {
            "mean": number("The difference itself."),
            "low": maybe(number("The lower end of the interval, null where there is none.")),
            "high": maybe(number("The upper end of the interval, null where there is none.")),
            "blocks": whole("Blocks that both ran.", minimum=0),
            "sd": maybe(number("Standard deviation of one block's difference (ln), as it went into the interval.")),
            "lag1": maybe(number("How alike neighbouring blocks were taken to be, 0 to 0.9.", minimum=0)),
            "why": maybe(text("Why there is no interval.")),
        },
    )
    return table(
        "One configuration.",
        {
            "name": text("Its name."),
            "settings": by_name("Its settings by knob.", text("The value, as it was written.")),
            "place": word("Where it stands.", Place),
            "blocks": whole("Blocks that gave a value.", minimum=0),
            "out_after": maybe(whole("Blocks after which it was eliminated.", minimum=1)),
            "value": maybe(number("The goal's metric, in its base unit, of the first workload.")),
            "against_leader": maybe(contrast),
            **_tried(),
        },
    )


def _cost() -> Schema:
    return table(
        "What the search cost, and what going on would.",
        {
            "blocks": whole("Blocks of the race.", minimum=0),
            "slices": whole("Slices of the race.", minimum=0),
            "slices_max": maybe(whole("After how many the race stops as it is; null for never.", minimum=0)),
            "slices_left": maybe(whole("Forecast of the slices to a certificate; null where none is.", minimum=0)),
            "slice_seconds": number("Measured time of a slice, in seconds.", exclusiveMinimum=0),
            "certificate_seconds": maybe(
                number(
                    "What a certificate takes at most by the probe, were all nearly as good as the best; null where"
                    " that cannot be said.",
                    minimum=0,
                )
            ),
            "noise": maybe(number("Standard deviation (ln) of neighbouring slices of the baseline.", minimum=0)),
            "measured_seconds": number("Seconds of load, ramps included.", minimum=0),
            "elapsed_seconds": number("Seconds from the beginning to the last trial, pauses left out.", minimum=0),
            "grid_seconds": number("What five runs of a minute for each configuration measure.", minimum=0),
        },
    )
