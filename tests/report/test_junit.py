# SPDX-License-Identifier: Apache-2.0
"""What CI reads of a guest under emulation says first that it is functional only."""

from dataclasses import replace

from junitparser import JUnitXml
from tests.report.records import record

from virtune.analyse.study.summarise import summarise
from virtune.analyse.study.thresholds import rule
from virtune.model.evidence import StudyRecord
from virtune.model.remark import EMULATED
from virtune.plan.goal import parse_conditions
from virtune.report.junit import junit
from virtune.report.markdown import markdown

WORTH = "functional only: a guest under emulation"


def emulated(kept: StudyRecord) -> StudyRecord:
    remark = EMULATED.remark(text="no KVM")
    trials = tuple(
        replace(one, measurement=replace(one.measurement, remarks=(remark,)))
        for one in kept.trials
        if one.measurement is not None
    )
    return replace(kept, trials=trials)


def written(kept: StudyRecord) -> tuple[str, str]:
    found = summarise(kept)
    # held, breached and undecided: each has its own place for the message
    rulings = rule(kept, parse_conditions(["iops < -3%", "iops > +3%", "cpu_per_io > +900%"]))
    return junit(found, rulings), markdown(found, rulings)


def test_a_guest_under_emulation_is_called_so_in_every_message() -> None:
    xml, page = written(emulated(record(12)))
    (suite,) = JUnitXml.fromstring(xml.encode())
    assert f'<property name="standing" value="{WORTH} (randread-4k)" />' in xml
    cases = list(suite)
    said = [case.result[0].message if case.result else case.system_out for case in cases]
    assert len(said) == 3
    assert all(WORTH in text for text in said)
    assert f"**{WORTH}**" in page
    assert page.count(f"| {WORTH}; ") == 3


def test_of_a_guest_with_kvm_nothing_is_said() -> None:
    for text in written(record(12)):
        assert "functional only" not in text


def test_each_outcome_has_its_count_and_its_element() -> None:
    kept = record(12)
    asked = ("iops < -3%", "iops < -5%", "iops > +3%", "cpu_per_io > +900%")
    xml = junit(summarise(kept), rule(kept, parse_conditions(asked)))
    (suite,) = JUnitXml.fromstring(xml.encode())
    assert (suite.tests, suite.failures, suite.skipped, suite.errors) == (4, 1, 1, 0)
    kinds = {case.name: [type(one).__name__ for one in case.result] for case in suite}
    assert kinds == {"iops < -3%": [], "iops < -5%": [], "iops > +3%": ["Failure"], "cpu_per_io > +900%": ["Skipped"]}
    failed = next(case for case in suite if case.name == "iops > +3%")
    assert "native against threads (randread-4k): IOPS +10.0 % [" in failed.result[0].message
    assert failed.classname == "randread-4k.native"


def test_a_suite_says_where_and_how_it_was_measured() -> None:
    xml, _ = written(record(12))
    assert '<property name="host" value="host not recorded, virtune ' in xml
    assert '<property name="command" value="virtune compare --arm threads:' in xml
