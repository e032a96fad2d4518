# SPDX-License-Identifier: Apache-2.0
"""Figures that cannot be true together, and runs that were cut, are said."""

import json
from typing import Any

import pytest
from tests.analyse.recordings import recorded

from virtune.analyse.trial.explain import explain
from virtune.fio.results import read_result
from virtune.model.remark import Remark, Weight


def changed(**values: Any) -> str:
    whole = json.loads(recorded("plain.json"))
    whole["jobs"][0]["read"] |= values
    return json.dumps(whole)


def said(text: str, name: str) -> list[Remark]:
    return [remark for remark in explain(read_result(text)) if remark.id == name]


def test_iops_that_contradict_their_bandwidth_are_said() -> None:
    whole = json.loads(recorded("plain.json"))
    read = whole["jobs"][0]["read"]
    (remark,) = said(changed(iops=read["iops"] * 5000), "contradicted")
    assert remark.weight is Weight.INVALID
    assert "201M reads a second of 4 KiB" in remark.text
    assert "164 MB/s" in remark.text
    many = {kind: {**read[kind], "N": read[kind]["N"] * 3} for kind in ("clat_ns", "lat_ns")}
    assert len(said(changed(**many), "contradicted")) == 1
    assert len(said(changed(bw_bytes=read["bw_bytes"] // 3), "contradicted")) == 1


@pytest.mark.parametrize("factor", [1.0, 0.6, 1.5])
def test_what_a_ramp_leaves_out_is_no_contradiction(factor: float) -> None:
    read = json.loads(recorded("plain.json"))["jobs"][0]["read"]
    assert said(changed(iops=read["iops"] * factor), "contradicted") == []


def test_a_run_that_was_cut_before_its_count_is_said() -> None:
    few = recorded("few.both")
    assert said(few, "cut-short") == []
    start = few.index("\n{\n")
    whole, _ = json.JSONDecoder().raw_decode(few[start + 1 :])
    whole["jobs"][0]["job options"]["number_ios"] = "100"
    (remark,) = said(json.dumps(whole), "cut-short")
    assert "23 of 100 I/Os" in remark.text
    whole["jobs"][0]["job options"]["number_ios"] = "23"
    assert said(json.dumps(whole), "cut-short") == []
