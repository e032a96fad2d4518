# SPDX-License-Identifier: Apache-2.0
"""Every rule that reads a fio result: one result that it speaks of, one that it is silent on, and its numbers."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.analyse.reading_cases import (
    FIRES,
    FLUSH,
    GOOD,
    READ,
    SILENT,
    of_flow,
    of_load,
)
from tests.analyse.recordings import recorded

from virtune.analyse.trial.explain import LOAD_RULES, RESULT_RULES, beside, explain
from virtune.fio.options import facts_of
from virtune.fio.results import read_result
from virtune.model.measurement import FioResult, Latency
from virtune.model.remark import OF_LOADS, OF_RESULTS, Remark, Weight


def said(result: FioResult, name: str) -> list[Remark]:
    return [remark for remark in explain(result) if remark.id == name]


@pytest.mark.parametrize("case", list(FIRES))
def test_a_rule_speaks_with_its_numbers(case: str) -> None:
    result, weight, numbers = FIRES[case]
    remarks = said(result, case.partition(",")[0])
    assert remarks, [remark.id for remark in explain(result)]
    text = " | ".join(remark.text for remark in remarks if remark.weight is weight)
    for number in numbers:
        assert number in text


@pytest.mark.parametrize("case", list(SILENT))
def test_a_rule_is_silent_where_there_is_nothing_to_say(case: str) -> None:
    assert said(SILENT[case], case.partition(",")[0]) == []


TURNED = {"read": "write", "write": "read", "randread": "randwrite", "randwrite": "randread"}


def turned(result: FioResult) -> FioResult:
    """The same result of the other direction: what was read is written, by fio and on its devices."""
    loads = tuple(
        replace(
            load,
            pattern=TURNED.get(load.pattern or "", load.pattern),
            streams=tuple(replace(one, direction=TURNED.get(one.direction, one.direction)) for one in load.streams),
            options=load.options and tuple((name, TURNED.get(value, value)) for name, value in load.options),
        )
        for load in result.loads
    )
    devices = tuple(
        replace(
            one,
            reads=one.writes, writes=one.reads, read_bytes=one.written_bytes, written_bytes=one.read_bytes,
            read_seconds=one.write_seconds, write_seconds=one.read_seconds,
        )
        for one in result.devices
    )  # fmt: skip
    return replace(result, loads=loads, devices=devices)


OF_WRITES = {"cached-sync", "misnamed"}
"""What is said of writes only, and of a name."""


def test_what_is_said_of_reads_is_said_of_as_many_writes() -> None:
    for case, result in {**{case: fires[0] for case, fires in FIRES.items()}, **SILENT}.items():
        here, there = ({(one.id, one.weight) for one in explain(told)} for told in (result, turned(result)))
        assert {one for one in here ^ there if one[0] not in OF_WRITES} == set(), case


def test_a_good_run_gives_notes_only() -> None:
    assert {remark.weight for remark in explain(GOOD)} == {Weight.NOTE}


def test_every_rule_judges_by_a_kind_of_remark_and_has_both_cases() -> None:
    rules: tuple[Callable[..., object], ...] = (*RESULT_RULES, *LOAD_RULES)
    by = {(rule.__doc__ or "").removeprefix("Judge by `").removesuffix("`.") for rule in rules}
    shared = {"page-cache", "rate-unmet", "saturated-cpu"}  # gates of a trial, too
    assert by == {one.id for one in (*OF_RESULTS, *OF_LOADS)} - {"not-added", "unserved"} | shared
    for name in by:
        assert any(case.partition(",")[0] == name for case in FIRES), name
        assert any(case.partition(",")[0] == name for case in SILENT), name


@pytest.mark.parametrize("option", [("iodepth_batch_submit", "16"), ("io_submit_mode", "offload")])
def test_the_submission_of_a_batch_or_of_another_thread_is_no_share_of_the_jobs_time(option: tuple[str, str]) -> None:
    load = of_load(depth=32, depth_levels=(("1", 1.0),), options=(("rw", "randread"), ("iodepth", "32"), option))
    submitting = replace(load.loads[0].streams[0], slat=Latency(mean_ns=20e3))
    found = explain(replace(load, loads=(replace(load.loads[0], streams=(submitting,)),)))
    assert not any("submission calls" in one.text for one in found)
    assert not any(one.id in ("little", "depth") for one in found)


def test_only_libaio_holds_up_what_is_in_flight_while_it_flushes() -> None:
    (beside,) = said(of_load(sync=FLUSH, engine="io_uring"), "sync-share")
    assert "latencies" not in beside.text
    assert said(of_load(sync=FLUSH, engine="io_uring"), "latency-parts")


def test_every_remark_rests_on_a_number() -> None:
    for result, _, _ in FIRES.values():
        for remark in explain(result):
            assert any(character.isdigit() for character in remark.text), remark


def test_jobs_are_named_where_there_are_several_and_clones_are_said_once() -> None:
    sections = said(read_result(recorded("sections.both")), "short-run")
    assert [remark.text[:8] for remark in sections] == ["`reader`", "`writer`"]
    (clones,) = said(read_result(recorded("clones.both")), "short-run")
    assert clones.text.endswith("(One of 2 such jobs.)")


def test_jobs_reported_together_spread_less_than_one() -> None:
    """fio adds the means of 4 jobs and pools their deviations: 10 % of each is 5 % of the sum when independent."""
    four = of_load(jobs=4, streams=(replace(READ, iops_stddev=2_000, iops_samples=240),))
    assert said(four, "spread") == []
    (remark,) = said(of_load(jobs=4, streams=(replace(READ, iops_stddev=8_000, iops_samples=240),)), "spread")
    assert "20 %" in remark.text
    assert "8,000 a job" in remark.text


def test_two_runs_further_apart_than_their_spread_are_still_one_run_each() -> None:
    remark = beside(GOOD, of_flow(iops=120_000, iops_mean=120_000))
    assert remark is not None
    assert "+50.0 %" in remark.text
    assert "one run each cannot show" in remark.text


def test_two_runs_without_samples_are_said_to_show_nothing() -> None:
    remark = beside(GOOD, of_flow(iops_stddev=None))
    assert remark is not None
    assert "nothing here shows how far apart" in remark.text
    assert beside(GOOD, of_load(streams=())) is None


@pytest.mark.parametrize(
    ("options", "block_size", "rate"),
    [
        ({"bs": "4k"}, 4096, None),
        ({"bs": "4096B-4096B"}, 4096, None),
        ({"bs": "4KiB"}, None, None),  # 4000 to fio
        ({"bs": "4k-64k", "rate": "100m"}, None, None),
        ({"bsrange": "4k-64k", "rate": "100m"}, None, None),
        ({"bssplit": "4k/50:8k/50"}, None, None),
        ({"rate_iops": "10k"}, 4096, 10240.0),
        ({"bs": "8k", "rate": "80k"}, 8192, 10.0),
    ],
)
def test_a_size_is_known_where_there_is_one_and_as_fio_reads_it(
    options: dict[str, str], block_size: int | None, rate: float | None
) -> None:
    facts = facts_of({"rw": "randread", **options})
    assert (facts.block_size, facts.rate_iops) == (block_size, rate)
