# SPDX-License-Identifier: Apache-2.0
"""JSON of studies, with their stacks and workloads: what goes in comes out, and nothing else comes in."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtune.model.errors import PlanError
from virtune.model.stack import Disk, Stack
from virtune.model.study import Arm, Study, StudyKind, Trial
from virtune.model.verdict import Threshold
from virtune.model.workload import Job, Workload
from virtune.plan import codec

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
finite = st.floats(allow_nan=False, allow_infinity=False)
pairs = st.lists(st.tuples(words, words), max_size=3).map(tuple)
stacks = st.from_type(Stack)
jobs = st.builds(Job, name=words, options=pairs)
workloads = st.builds(
    Workload, name=words, meaning=words, jobs=st.lists(jobs, max_size=3).map(tuple), verbatim=st.none() | words
)
arms = st.builds(Arm, name=words, stack=stacks, settings=pairs)
trials = st.builds(Trial, number=st.integers(), round=st.integers(), arm=words, workload=words)
conditions = st.builds(Threshold, metric=words, relation=st.sampled_from(["<", ">"]), limit=finite, text=words)
studies = st.builds(
    Study,
    id=words,
    created=words,
    kind=st.sampled_from(StudyKind),
    arms=st.lists(arms, max_size=2).map(tuple),
    baseline=words,
    workloads=st.lists(workloads, max_size=2).map(tuple),
    rounds=st.integers(),
    seconds=finite,
    ramp_seconds=finite,
    seed=st.integers(-(2**63), 2**63 - 1),
    scratch=words,
    span_bytes=st.integers(0, 2**63 - 1),
    target=st.none() | words,
    margin=finite,
    confidence=finite,
    trials=st.lists(trials, max_size=3).map(tuple),
    conditions=st.lists(conditions, max_size=2).map(tuple),
)

STUDY = Study(
    id="s1",
    created="2026-01-01T00:00:00Z",
    kind=StudyKind.COMPARE,
    arms=(Arm(name="threads", stack=Stack(disk=Disk(aio="native")), settings=(("disk.aio", "native"),)),),
    baseline="threads",
    workloads=(Workload(name="w", meaning="m", jobs=(Job(name="j", options=(("rw", "read"),)),)),),
    rounds=6,
    seconds=1,
    ramp_seconds=0.5,
    seed=1,
    scratch="/scratch",
    span_bytes=4096,
)


@given(studies)
def test_a_study_survives_the_round_trip(study: Study) -> None:
    assert codec.study_from_json(codec.study_to_json(study)) == study


@given(stacks)
def test_a_stack_survives_the_round_trip(stack: Stack) -> None:
    study = replace(STUDY, arms=(replace(STUDY.arms[0], stack=stack),))
    assert codec.study_from_json(codec.study_to_json(study)) == study


@given(workloads)
def test_a_workload_survives_the_round_trip(workload: Workload) -> None:
    study = replace(STUDY, workloads=(workload,))
    assert codec.study_from_json(codec.study_to_json(study)) == study


def test_a_field_added_since_gets_its_default() -> None:
    plain = json.loads(codec.study_to_json(STUDY))
    del plain["margin"]
    del plain["conditions"]  # kept by a virtune that stopped without looking at them
    del plain["arms"][0]["stack"]["disk"]["discard"]
    assert codec.study_from_json(json.dumps(plain)) == STUDY


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda plain: plain.update(colour="red"), "colour"),
        (lambda plain: plain["arms"][0]["stack"]["disk"].update(raid=5), r"arms\.0\.stack\.disk\.raid"),
        (lambda plain: plain["arms"][0]["stack"]["disk"].update(aio="magic"), r"disk\.aio"),
        (lambda plain: plain.update(rounds="6"), "rounds"),
        (lambda plain: plain.pop("seed"), "seed"),
    ],
)
def test_what_is_strange_is_refused_by_its_place(change: Callable[[Any], object], named: str) -> None:
    plain = json.loads(codec.study_to_json(STUDY))
    change(plain)
    with pytest.raises(PlanError, match=named):
        codec.study_from_json(json.dumps(plain))


@pytest.mark.parametrize("text", ["", "null", "[]", "{", "[" * 100_000, '{"id":NaN}', "\ud800", '"\\ud800"', "1e999"])
def test_what_is_no_study_is_refused(text: str) -> None:
    with pytest.raises(PlanError):
        codec.study_from_json(text)


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    with pytest.raises(PlanError):
        codec.study_from_json(text)


def test_a_path_that_is_no_text_is_refused_when_written() -> None:
    with pytest.raises(PlanError, match="JSON"):
        codec.study_to_json(replace(STUDY, scratch="/\udcff"))
    with pytest.raises(PlanError, match="JSON"):
        codec.study_to_json(replace(STUDY, seconds=float("inf")))
