# SPDX-License-Identifier: Apache-2.0
"""The report never calls verified what was not seen, and says of each workload what was seen there."""

import io
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console, Group
from tests.report.records import record

from virtune.analyse.study.summarise import summarise
from virtune.fio.workloads import parse_workload
from virtune.model.evidence import Check, InForce, StudyRecord, TrialRecord, to_verify, unverified_remarks
from virtune.model.remark import Remark, Weight
from virtune.model.result import Result
from virtune.model.stack import Stack
from virtune.model.study import Arm, StudyKind, Trial
from virtune.report.html.page import page_of
from virtune.report.pages.evidence import notes
from virtune.report.pages.study import all_checks, verified

SEEN = tuple(
    Check(setting=name, asked="threads", found="threads", proof=f"{name} was seen") for name in to_verify(Stack())
)
BLIND = tuple(replace(one, found=None, proof="nothing moved") if one.setting == "disk.aio" else one for one in SEEN)


def text_of(result: Result) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(Group(*verified(result), *notes(result)))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def with_checks(kept: StudyRecord, checks: Sequence[Check], arm: str = "threads") -> StudyRecord:
    def seen(one: TrialRecord) -> TrialRecord:
        mine = checks if one.trial.arm == arm else SEEN
        assert one.measurement is not None
        remarks = tuple(unverified_remarks(Stack(), mine))
        return replace(
            one, in_force=InForce(checks=tuple(mine)), measurement=replace(one.measurement, remarks=remarks)
        )

    return replace(kept, trials=tuple(map(seen, kept.trials)))


def mark_of(page: str, arm: str) -> str:
    return next(line.split()[1] for line in page.splitlines() if line.split()[:1] == [arm])


def test_what_was_seen_is_ok_and_what_was_not_seen_never_is() -> None:
    good = text_of(summarise(with_checks(record(2), SEEN)))
    assert mark_of(good, "threads") == "ok"
    bad = text_of(summarise(with_checks(record(2), BLIND)))
    assert (mark_of(bad, "threads"), mark_of(bad, "native")) == ("unverified", "ok")
    assert "requested, and not seen: disk.aio=threads" in bad


def test_one_round_in_which_it_was_not_seen_is_enough() -> None:
    some = with_checks(record(2), SEEN)
    blind = with_checks(record(2), BLIND).trials
    mixed = text_of(summarise(replace(some, trials=(blind[0], *some.trials[1:]))))
    assert mark_of(mixed, blind[0].trial.arm) == "unverified"


def test_what_nobody_can_see_is_said_and_is_never_ok() -> None:
    silent = Check(setting="disk.discard", asked="unmap", found=None, proof="shown nowhere", hidden=True)
    page = text_of(summarise(with_checks(record(2), (*SEEN, silent))))
    assert mark_of(page, "threads") == "partly"
    assert "requested, cannot be verified: disk.discard=unmap" in page


def test_a_mismatch_is_said_first() -> None:
    wrong = tuple(replace(one, found="native") if one.setting == "disk.aio" else one for one in SEEN)
    assert mark_of(text_of(summarise(with_checks(record(2), wrong))), "threads") == "NOT"


def of_two_workloads(engines: tuple[str, str], *, remark: bool = False) -> StudyRecord:
    """One arm under two workloads, each with the engine that its load had."""
    kept = record(1)
    names = ("randread-4k", "randwrite-4k")
    arm = Arm(name="metal", stack=Stack(rig="metal"))
    workloads = tuple(parse_workload(name)[0] for name in names)
    told = (Remark(id="depth", weight=Weight.WARNING, text="never filled"),) if remark else ()
    trials = []
    for number, (name, engine) in enumerate(zip(names, engines, strict=True), 1):
        seen = Check(setting="load.engine", asked=engine, found=engine, proof=f"fio holds {engine}")
        first = kept.trials[0]
        assert first.measurement is not None
        trials.append(
            replace(
                first,
                trial=Trial(number=number, round=1, arm="metal", workload=name),
                in_force=InForce(checks=(seen,)),
                measurement=replace(first.measurement, remarks=told),
            )
        )
    study = replace(kept.study, arms=(arm,), baseline="metal", workloads=workloads, kind=StudyKind.MEASURE)
    study = replace(study, trials=tuple(one.trial for one in trials))
    return replace(kept, study=study, trials=tuple(trials))


def test_an_arm_has_a_line_for_each_workload_where_they_differ() -> None:
    page = text_of(summarise(of_two_workloads(("io_uring", "libaio"))))
    lines = [line.split()[:3] for line in page.splitlines() if line.startswith("  metal") and "load." in line]
    assert lines == [["metal", "ok", "load.engine=io_uring"], ["metal", "ok", "load.engine=libaio"]]
    assert "randread-4k" in page
    assert "randwrite-4k" in page
    same = text_of(summarise(of_two_workloads(("libaio", "libaio"))))
    assert same.count("load.engine=libaio") == 1


def test_rounds_are_named_by_their_workload() -> None:
    page = text_of(summarise(of_two_workloads(("libaio", "libaio"), remark=True)))
    assert "(metal in 1 of 1 round of each workload)" in page
    kept = of_two_workloads(("libaio", "libaio"), remark=True)
    last = kept.trials[1]
    assert last.measurement is not None
    quiet = replace(last, measurement=replace(last.measurement, remarks=()))
    page = text_of(summarise(replace(kept, trials=(kept.trials[0], quiet))))
    assert "(metal in 1 of 1 round of randread-4k)" in page


def of_workloads(*checks: tuple[Check, ...]) -> StudyRecord:
    """One arm under two workloads, of each of which these checks were made."""
    kept = of_two_workloads(("libaio", "libaio"))
    trials = zip(kept.trials, checks, strict=True)
    return replace(kept, trials=tuple(replace(one, in_force=InForce(checks=mine)) for one, mine in trials))


@pytest.mark.parametrize("found", [None, "native"])
@pytest.mark.parametrize("last", [True, False])
def test_the_page_says_the_worst_that_was_seen_of_a_setting(found: str | None, last: bool) -> None:
    good = Check(setting="disk.aio", asked="threads", found="threads", proof="seen")
    bad = replace(good, found=found, proof="not so here")
    kept = of_workloads(*[(good,), (bad,)][:: 1 if last else -1])
    table = page_of(summarise(kept), kept).settings
    assert table is not None
    (row,) = table.cells
    assert row[2:] == (("not seen", "unverified") if found is None else (found, "DIFFERS")) + ("not so here",)


def test_every_check_of_every_guest_is_listed() -> None:
    first = Check(setting="disk.aio", asked="threads", found="native", proof="first guest")
    console = Console(file=io.StringIO(), width=200)
    others = (replace(first, guest=1, proof="second guest"), replace(first, asked="native", proof="asked otherwise"))
    console.print(all_checks(summarise(of_workloads((first, others[0]), (first, others[1])))))
    assert isinstance(console.file, io.StringIO)
    page = console.file.getvalue()
    assert [page.count(words) for words in ("first guest", "second guest", "asked otherwise")] == [1, 1, 1]


def test_the_list_of_checks_says_of_which_guest_each_is() -> None:
    kept = with_checks(record(2), [replace(one, guest=guest) for guest in (0, 1) for one in SEEN])
    two = tuple(replace(arm, stack=replace(arm.stack, guests=2)) for arm in kept.study.arms)
    console = Console(file=io.StringIO(), width=200)
    console.print(all_checks(summarise(replace(kept, study=replace(kept.study, arms=two)))))
    assert isinstance(console.file, io.StringIO)
    for number in (1, 2):
        assert f"threads, guest {number}  ok  disk.aio=threads" in " ".join(console.file.getvalue().split(" "))
