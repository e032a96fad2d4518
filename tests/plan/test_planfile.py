# SPDX-License-Identifier: Apache-2.0
"""Plan files: what they say, the schema that describes them, and hostile ones."""

import json
import tomllib
from contextlib import suppress
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from virtune.model.errors import PlanError
from virtune.model.study_options import OPTIONS, StudyOptions
from virtune.plan import planfile
from virtune.plan.arms import arm_as_written, arms_from_vary, base_stack
from virtune.plan.planfile import plan_schema, read_plan

FULL = """
title = "Which AIO engine for qcow2?"
rig = "storage-daemon"
workload = ["randread-4k", "rw=randrw,bs=8k"]
rounds = 8
seconds = "500ms"
ramp = 0.25
span = "4G"
seed = 7
baseline = "threads"
metric = "latency.p99"
margin = 0.05
confidence = 0.95

[set]
disk.format = "qcow2"
disk.cluster_size = 65536
"disk.extended_l2" = true

[vary]
disk.aio = ["threads", "native"]
disk.l2_cache_size = ["1M", 4194304]

[[arm]]
name = "bare"
rig = "metal"

[[arm]]
name = "slow"
[arm.disk]
throttle_iops = 500
"""


def test_a_plan_says_what_it_says() -> None:
    assert read_plan(FULL) == StudyOptions(
        title="Which AIO engine for qcow2?",
        rig="storage-daemon",
        workloads=("randread-4k", "rw=randrw,bs=8k"),
        settings=("disk.format=qcow2", "disk.cluster_size=65536", "disk.extended_l2=on"),
        vary=("disk.aio=threads,native", "disk.l2_cache_size=1M,4194304"),
        arms=(("bare", ("rig=metal",)), ("slow", ("disk.throttle_iops=500",))),
        baseline="threads",
        rounds=8,
        seconds=0.5,
        ramp=0.25,
        seed=7,
        metric="latency.p99",
        margin=0.05,
        confidence=0.95,
        span=4 * 1024**3,
    )


def test_a_plan_becomes_arms() -> None:
    plan = read_plan(FULL)
    base, settings = base_stack(plan.settings)
    arms = arms_from_vary(base, plan.vary, settings=settings)
    assert len(arms) == 4
    assert [arm_as_written(arm, base, settings=settings).stack.rig for arm in plan.arms] == [
        "metal",
        "storage-daemon",
    ]


def test_an_empty_plan_says_nothing() -> None:
    assert read_plan("") == StudyOptions()
    assert read_plan('workload = "randread-4k"').workloads == ("randread-4k",)


def test_the_example_in_the_modules_docstring_is_a_plan() -> None:
    example = (planfile.__doc__ or "").partition("\n")[2].rpartition("A flag")[0]
    assert read_plan(example).baseline == "threads"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('wrokload = "x"', "unknown key wrokload", "workload"),
        ("zzz = 1", "unknown key zzz", "keys: study, title"),
        ("rounds = 0", "rounds: ", None),
        ('rounds = "8"', "rounds: ", None),
        ("rounds = true", "rounds: ", None),
        ("rounds = 8.5", "rounds: ", None),
        ("seconds = 0", "seconds: is outside", None),
        ('seconds = "soon"', "seconds: not a time", None),
        ("seconds = true", "seconds: write a number", None),
        ("seconds = nan", "seconds: is outside", None),
        ("ramp = -1", "ramp: is outside", None),
        ("ramp = inf", "ramp: is outside", None),
        ('span = "big"', "span: not a size", None),
        ("span = 1.5", "span: write a size", None),
        ("margin = 5", "margin: ", None),
        ("margin = nan", "margin: ", None),
        ("margin = 0.0009", "margin: ", None),
        ("margin = 0.51", "margin: ", None),
        ("ramp = 3601", "ramp: is outside 0 s..3600 s", None),
        ("confidence = 0.49", "confidence: ", None),
        ("confidence = 1.0", "confidence: ", None),
        ("seed = -1", "seed: ", None),
        ("workload = []", "workload: write", None),
        ("workload = [1]", "workload: write", None),
        ('metric = "latency.p98"', "metric: 'latency.p98' is not known; did you mean `latency.p", None),
        ('rig = "metl"', "rig: 'metl' is not known; did you mean `metal`", None),
        ("rig = 1", "rig: '1' is not known", None),
        ("title = 1979-05-27", "title: ", None),
        ("set = 1", "set: ", None),
        ('[set]\ndisk.aoi = "native"', "set: there is no knob 'disk.aoi'", "disk.aio"),
        ('[set]\ndisk.aio = "nativ"', "set: disk.aio: 'nativ' is not one of", "native"),
        ("[set]\ndisk.aio = 1.5", "set.disk.aio: write a text", None),
        ('[set]\ndisk.aio = ""', "set.disk.aio: write a text", None),
        ('[set]\ndisk.aio = ["native"]', "set.disk.aio: write a text", None),
        ('[set]\n"disk.aio" = "native"\ndisk.aio = "threads"', "set: disk.aio is set twice", None),
        ('[vary]\ndisk.aio = "native"', "vary.disk.aio: write a list", None),
        ("[vary]\ndisk.aio = []", "vary.disk.aio: write a list", None),
        ('[vary]\ndisk.aio = ["native", "threds"]', "vary: disk.aio: 'threds'", "threads"),
        ("[[arm]]\ndisk.aio = 1", "arm.1.name is missing", "name ="),
        ("[[arm]]\nname = 1", "arm.1.name: write a name", None),
        ('[[arm]]\nname = "a/b"', "arm.1.name: 'a/b' cannot be", None),
        ('[[arm]]\nname = "a"\n[[arm]]\nname = "a"', "arm: two are named a", None),
        ('[[arm]]\nname = "a"\nrig = "x"', "arm a: unknown rig 'x'", None),
        ("[arm]\nname = 1", "arm: ", None),
        ("rounds = 1\nrounds = 2", "not valid TOML", None),
        ("rounds = [", "not valid TOML", None),
        ("x = " + "[" * 4000, "nested too deeply|not valid TOML", None),
        ("x = [\n" + "[\n" * 20_000, "nested too deeply|not valid TOML", None),
        ("x = " + "{a=" * 1300, "nested too deeply|not valid TOML", None),
        ("[set]\n" + "a." * 2000 + "b = 1", "set", None),
        ("a." * 20_000 + "b = 1", "longer than 4200", None),
        ("seed = 1" + "9" * 4100, "seed: |not valid TOML", None),
        ("x = " + "9" * 4196, "unknown key|not valid TOML", None),
        ("#" * 70_000, "64 KiB", None),
        ("\x00", "not valid TOML", None),
        ("\udcff = 1", "not valid TOML", None),
    ],
)
def test_what_is_wrong_is_refused_by_its_place(text: str, message: str, hint: str | None) -> None:
    with pytest.raises(PlanError, match=message.replace("[", r"\[")) as caught:
        read_plan(text)
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 400
    if hint is not None:
        assert hint in (caught.value.hint or "")


def test_the_schema_describes_the_plan() -> None:
    schema = plan_schema()
    json.dumps(schema)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid(tomllib.loads(FULL.replace('"disk.extended_l2"', "disk.extended_l2")))
    for wrong in (
        "wrokload = 1",
        '[set]\ndisk.aio = "nativ"',
        "[[arm]]\nx = 1",
        "rounds = 0",
        "[vary]\ndisk.aio = []",
    ):
        assert not validator.is_valid(tomllib.loads(wrong)), wrong


values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.text(max_size=5),
        st.integers(),
        st.floats(),
        st.booleans(),
        st.sampled_from(["native", "metal", "4G", "randread-4k", "a"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["disk", "aio", "rig", "name", "disk.aio", "format", ""]), inner, max_size=3),
    ),
    max_leaves=6,
)
keys = st.sampled_from([*(row.plan for row in OPTIONS.values() if row.plan), "x"])


def toml(value: Any) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{json.dumps(key)} = {toml(inner)}" for key, inner in value.items()) + "}"
        case list():
            return "[" + ", ".join(toml(inner) for inner in value) + "]"
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value)
        case _:
            return repr(value)


@given(st.dictionaries(keys, values, max_size=4))
@example({"set": {"disk": {"aio": "native"}}})
def test_only_plan_errors_come_out_of_any_table(table: dict[str, Any]) -> None:
    with suppress(PlanError):
        read_plan("\n".join(f"{key} = {toml(value)}" for key, value in table.items()))


@given(st.text())
def test_only_plan_errors_come_out_of_any_text(text: str) -> None:
    with suppress(PlanError):
        read_plan(text)
