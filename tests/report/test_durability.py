# SPDX-License-Identifier: Apache-2.0
"""Who promises less is not simply faster: the class of every arm is in its result, and said where classes differ."""

import io
from dataclasses import replace

import pytest
from rich.console import Console
from tests.published import complaints
from tests.report.records import as_read, record

from virtune.analyse.study.summarise import summarise
from virtune.model.evidence import StudyRecord
from virtune.model.study import StudyKind
from virtune.plan.arms import arms_from_vary, base_stack
from virtune.report.json.result import result_document
from virtune.report.markdown import markdown
from virtune.report.pages.evidence import reading_notes
from virtune.report.pages.result import render
from virtune.report.pages.whole import plain_report


def caches(vary: str) -> StudyRecord:
    kept = record(8)
    arms = arms_from_vary(base_stack(())[0], [f"disk.cache={vary}"])
    names = dict(zip(("threads", "native"), (arm.name for arm in arms), strict=True))
    trials = tuple(replace(one, trial=replace(one.trial, arm=names[one.trial.arm])) for one in kept.trials)
    asked = replace(kept.study, arms=arms, baseline=arms[0].name, trials=tuple(one.trial for one in trials))
    return replace(kept, study=asked, trials=trials)


def shown(renderable: object) -> str:
    console = Console(file=io.StringIO(), width=400, record=True)
    console.print(renderable)
    return console.export_text()


def test_arms_of_different_classes_are_told_apart_wherever_they_are_read() -> None:
    kept = caches("none,directsync")
    found = summarise(kept)
    document = as_read(result_document(found, kept))
    assert complaints("result", document) == []
    none, directsync = (arm["durability"] for arm in document["arms"])
    assert none["promise"] == "flush"
    assert none["why"].startswith("a flushed write survives a power cut, one only completed a crash")
    assert directsync == {
        "promise": "every-write",
        "why": "a completed write survives a power cut (cache=directsync)",
    }
    for text in (shown(render(found)), markdown(found, ())):
        assert "the arms differ in durability, so a faster one may only do less work" in text
        assert "cache=directsync: a completed write survives a power cut" in text.replace("\\", "")
    apart = caches("writeback,directsync")
    arms = tuple(
        replace(arm, stack=replace(arm.stack, disk=replace(arm.stack.disk, cache="none")))
        for arm in kept.study.arms[:1]
    )
    said = " ".join(reading_notes(replace(apart.study, arms=(*apart.study.arms, replace(arms[0], name="none")))))
    assert "only completed a crash of the host's kernel (cache=none)" in said, "of arms of one class each has its own"
    assert "only completed the end of the QEMU process (cache=writeback)" in said
    report = shown(plain_report(found, kept))
    assert "durability: flush" in report
    assert "durability: every-write" in report


@pytest.mark.parametrize("vary", ["none,writeback", "writethrough,directsync"])
def test_arms_of_one_class_need_no_word(vary: str) -> None:
    assert not any("promise different" in text for text in reading_notes(caches(vary).study))


def test_of_an_imported_arm_nothing_is_claimed() -> None:
    kept = caches("none,directsync")
    kept = replace(kept, study=replace(kept.study, kind=StudyKind.IMPORT, paired=False))
    document = as_read(result_document(summarise(kept), kept))
    assert [arm["durability"] for arm in document["arms"]] == [None, None]
    assert not any("promise different" in text for text in reading_notes(kept.study))
