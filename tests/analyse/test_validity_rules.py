# SPDX-License-Identifier: Apache-2.0
"""Runs that were cut are said."""

import json

from tests.analyse.recordings import recorded

from virtune.analyse.trial.explain import explain
from virtune.fio.results import read_result
from virtune.model.remark import Remark


def said(text: str, name: str) -> list[Remark]:
    return [remark for remark in explain(read_result(text)) if remark.id == name]


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
