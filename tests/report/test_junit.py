# SPDX-License-Identifier: Apache-2.0
"""What CI reads of a guest under emulation says first that it is functional only."""

from dataclasses import replace

from junitparser import JUnitXml
from tests.report.test_documents import record

from virtune.analyse.study.summarise import summarise
from virtune.analyse.study.thresholds import rule
from virtune.model.evidence import StudyRecord
from virtune.model.remark import EMULATED, Remark, Weight
from virtune.plan.thresholds import parse_conditions
from virtune.report.junit import junit
from virtune.report.markdown import markdown

WORTH = "functional only: a guest under emulation"


def emulated(kept: StudyRecord) -> StudyRecord:
    remark = Remark(id=EMULATED, weight=Weight.WARNING, text="no KVM")
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
