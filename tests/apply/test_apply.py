# SPDX-License-Identifier: Apache-2.0
"""A change of a domain is written down first, made, looked at, and put back byte for byte; on a libvirt in memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.apply.shelf import UUID, WEB, Shelf

from virtune.apply.journal import Entry, Journal, Step
from virtune.flows.domains.apply import Applied, apply, undo
from virtune.model.domain import SettingChange
from virtune.model.errors import NotInForceError, PreconditionError, VirtuneError
from virtune.model.finding import Advice
from virtune.virsh import LibvirtRefused

CACHE = SettingChange(knob="disk.cache", at="vda", value="none")
LIMIT = SettingChange(knob="disk.throttle_iops", at="vda", value="500")
MENDED = WEB.replace("cache='unsafe'", "cache='none'")
WHEN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Case:
    shelf: Shelf
    journal: Journal

    def apply(self, *turns: SettingChange, before: str = WEB, after: str = MENDED) -> Applied:
        advice = Advice(turns=turns or (CACHE,), after=after.encode(), diff="", effects=())
        return apply(self.shelf, UUID, advice, before.encode(), journal=self.journal, when=WHEN)

    def entry(self) -> Entry:
        (found,) = self.journal.entries()
        return found


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(Shelf(), Journal(tmp_path))


def test_a_change_is_made_and_undone_to_the_byte(case: Case) -> None:
    done = case.apply()
    assert (done.running, done.now, done.later) == (False, (), (CACHE,))
    assert case.shelf.xml == MENDED
    assert case.entry().steps[-1] is Step.COMMITTED
    assert "web is as it was before" in undo(case.shelf, case.entry(), journal=case.journal, anyway=False)
    assert case.shelf.xml == WEB
    assert case.entry().steps[-1] is Step.UNDONE


def test_what_somebody_else_changed_meanwhile_is_not_overwritten(case: Case) -> None:
    case.shelf.xml = theirs = WEB.replace("<vcpu>1", "<vcpu>2")
    with pytest.raises(PreconditionError, match="somebody else"):
        case.apply()
    assert case.shelf.xml == theirs
    assert case.shelf.verbs() == []
    assert case.journal.entries() == ()


@pytest.mark.parametrize(("verb", "step"), [("define", Step.DEFINING), ("blkdeviotune", Step.LIVE)])
def test_a_step_is_written_down_before_it_is_taken(verb: str, step: Step, case: Case) -> None:
    case.shelf.live = WEB
    reached: list[Step] = []

    def note(words: Sequence[str]) -> None:
        if words[0] == verb:
            reached.append(case.entry().steps[-1])

    case.shelf.seen = note
    with pytest.raises(NotInForceError, match=r"disk.throttle_iops=500 was set on the running domain"):
        case.apply(CACHE, LIMIT)  # this libvirt takes limits and does not set them, so all is put back
    assert reached == [step, Step.UNDOING]
    assert case.shelf.xml == WEB


@pytest.mark.parametrize("verb", ["define", "blkdeviotune"])
def test_a_failure_is_undone_and_the_error_says_so(verb: str, case: Case) -> None:
    case.shelf.live = WEB
    failures: list[str] = []

    def fail_once(words: Sequence[str]) -> None:
        if words[0] == verb and not failures:
            failures.append(verb)
            raise LibvirtRefused("libvirt refused it")

    case.shelf.seen = fail_once
    with pytest.raises(LibvirtRefused) as caught:
        case.apply(CACHE, LIMIT)
    assert case.shelf.xml == WEB
    assert case.entry().steps[-1] is Step.UNDONE
    assert not case.entry().open
    assert "may be half changed" not in (caught.value.hint or "")


def test_a_failure_that_cannot_be_undone_says_what_is_left_to_do(case: Case) -> None:
    def fail(words: Sequence[str]) -> None:
        if words[0] == "define" and case.shelf.xml == MENDED:
            raise LibvirtRefused("libvirt refused `define`: gone")

    case.shelf.live = WEB
    case.shelf.seen = fail
    with pytest.raises(NotInForceError) as caught:
        case.apply(CACHE, LIMIT)
    assert case.shelf.xml == MENDED
    assert case.entry().open
    assert f"`virtune apply undo {case.entry().id}` puts it back" in (caught.value.hint or "")


def lower(old: str, new: str) -> Callable[[str], str]:
    return lambda xml: xml.replace(old, new)


def test_what_libvirt_drops_is_noticed_and_put_back(case: Case) -> None:
    case.shelf.rewritten = lower(" cache='none'", "")
    with pytest.raises(NotInForceError, match=r"this libvirt dropped what it was given: .*cache"):
        case.apply()
    assert case.shelf.xml == WEB
    assert case.entry().steps[-1] is Step.UNDONE


def test_what_cannot_be_put_back_to_the_byte_is_said(case: Case) -> None:
    case.apply()
    case.shelf.rewritten = lower("<vcpu>1</vcpu>", "<vcpu placement='static'>1</vcpu>")
    with pytest.raises(VirtuneError, match=r"was put back, and libvirt writes it differently now"):
        undo(case.shelf, case.entry(), journal=case.journal, anyway=False)
    assert case.entry().steps[-1] is Step.UNDOING  # it is not called undone


def test_undoing_does_not_take_away_what_somebody_else_changed(case: Case) -> None:
    case.apply()
    case.shelf.xml = theirs = MENDED.replace("<vcpu>1", "<vcpu>2")
    with pytest.raises(PreconditionError, match="has been changed since by somebody else"):
        undo(case.shelf, case.entry(), journal=case.journal, anyway=False)
    assert case.shelf.xml == theirs
    undo(case.shelf, case.entry(), journal=case.journal, anyway=True)
    assert case.shelf.xml == WEB


def test_a_change_that_was_undone_is_not_undone_again(case: Case) -> None:
    case.apply()
    undo(case.shelf, case.entry(), journal=case.journal, anyway=False)
    case.shelf.xml = theirs = MENDED
    assert "nothing to do" in undo(case.shelf, case.entry(), journal=case.journal, anyway=False)
    assert case.shelf.xml == theirs
