# SPDX-License-Identifier: Apache-2.0
"""The schema of a plan file, as the plan's reader gives it, with words that name units and defaults."""

from typing import Any

from tools.schemas.shape import Schema, written
from virtune.flows.question import BUDGET_SECONDS, CONFIDENCE, MARGIN, RAMP_SECONDS, ROUNDS, SECONDS
from virtune.model.knob import Knob, describe_domain
from virtune.model.knobs import BY_ID
from virtune.model.stack import Stack, setting_of
from virtune.model.study import DEFAULT_SPAN
from virtune.model.units import format_bytes
from virtune.plan.planfile import plan_schema

IDENTITY = "virtune/plan/1"

KEYS: dict[str, str] = {
    "title": "What is to be found out, in one line; virtune does not use it yet.",
    "rig": "What brings the stacks up; `libvirt:DOMAIN` is a domain of yours that runs. Default: storage-daemon.",
    "connect": "The URI of the libvirt that has the domain of a rig `libvirt:DOMAIN`. Default: what virsh takes.",
    "workload": "What is asked of the disk: profiles, fio's own words or fio job files, one or a list. A path is"
    " looked for where the plan file lies. Default: randread-4k.",
    "baseline": "The arm to compare the others with. Default: the first.",
    "rounds": "How often every arm is tried under every workload, at most: a comparison stops when every pair is"
    f" decided. Default: {ROUNDS['compare']}, or as many as a `budget` that is given has room for.",
    "budget": "The most time of running trials: a number of seconds, or a text with its unit (5m), from 1 s to a"
    f" week. Default: {BUDGET_SECONDS:g} s, or none where `rounds` are given.",
    "seconds": "Measured time of one trial: a number of seconds, or a text with its unit (500ms, 2m), from 50 ms to"
    f" a day. Default: {SECONDS['compare']:g} s.",
    "ramp": "The time before it that is thrown away: a number of seconds, or a text with its unit, at most an hour."
    f" Default: {RAMP_SECONDS * 1000:g} ms.",
    "seed": "Seed of the order of trials and of random offsets. Default: drawn, and recorded.",
    "metric": "The metric of the verdicts. Default: iops; with at_load p99, p50 and the mean of latency.",
    "pairs": "Which pairs of arms get verdicts: those with the `baseline`, or `all`. Default: baseline.",
    "margin": f"The smallest relative difference worth knowing (0.03 is 3 %). Default: {MARGIN:g}.",
    "confidence": f"Of all verdicts together, as a share. Default: {CONFIDENCE:g}.",
    "at_load": "Offered loads at which latencies are compared, one or a list: shares of the baseline's saturation,"
    " which is measured first (70%), or rates (5000iops). One I/O at a time is compared besides.",
    "span": "Size of the scratch image, or how much of a target is used: a number of bytes, or a text (4G; powers of"
    f" 1024), at least 8 MiB. Default: {format_bytes(DEFAULT_SPAN)}.",
    "set": "Knobs of the base, which every arm starts from.",
    "vary": "Lists of values: one arm for each value, all combinations of several knobs.",
    "arm": "Arms with a name, each the base with the knobs beside the name turned.",
}
"""What every key means; a key without words, or words without a key, stop the generation."""


def schema() -> str:
    """Return the schema as text."""
    return written(IDENTITY, "A plan file", document())


def document() -> Schema:
    """Return the reader's own schema with these words, and without what TOML cannot say (null)."""
    found = plan_schema()
    for name in ("$schema", "title"):
        del found[name]
    keys: Schema = found["properties"]
    if keys.keys() != KEYS.keys():
        raise KeyError(f"plan keys and their words differ: {sorted(keys.keys() ^ KEYS.keys())}")
    found["properties"] = {name: _key(name, keys[name]) for name in KEYS}
    found["description"] = "The values that a plan file's TOML stands for, with dotted keys as tables."
    for place in (keys["set"], keys["vary"], keys["arm"]["items"]):
        _say_knobs(place["properties"])
    return found


def _key(name: str, schema: Schema) -> Schema:
    plain = {key: value for key, value in schema.items() if key not in ("title", "default")}
    choices: list[Any] = [one for one in plain.get("anyOf", ()) if one != {"type": "null"}]
    if len(choices) == 1:
        plain = {key: value for key, value in plain.items() if key != "anyOf"} | choices[0]
    return {**plain, "description": KEYS[name]}


def _say_knobs(properties: Schema) -> None:
    """Give each knob its words: what it is, what may be written, what it is otherwise."""
    for room, schema in properties.items():
        if room == "rig":
            schema["description"] = KEYS["rig"]
        elif room != "name":
            schema["description"] = f"The knobs `{room}.*`."
            for name, own in schema["properties"].items():
                knob = BY_ID[f"{room}.{name}"]
                own["description"] = (
                    f"{knob.what} Values: {describe_domain(knob.domain)}. Default: {begins_with(knob)}."
                )


def begins_with(knob: Knob) -> str:
    """Return the value that virtune's stacks have when nobody turns the knob."""
    value = setting_of(Stack(), knob)
    if isinstance(value, bool):
        return "on" if value else "off"
    return "QEMU's own" if value is None else str(value)
