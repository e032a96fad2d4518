# SPDX-License-Identifier: Apache-2.0
"""The journal: an entry is there whole or not at all, is found by its names, and survives what a crash leaves."""

from pathlib import Path

import pytest

from virtune.apply.journal import Entry, Journal, Step
from virtune.model.domain import SettingChange
from virtune.model.errors import PreconditionError, UsageError, VirtuneError

TURN = SettingChange(knob="disk.cache", at="vda", value="none")


def begun(journal: Journal, name: str = "20260101-000000", domain: str = "web") -> Entry:
    return journal.begin(
        name=name, uri="test:///default", uuid="u-" + domain, domain=domain, turns=[TURN],
        live=[(("do", "1"), ("undo", "1"))], before=b"<a/>", after=b"<b/>",
    )  # fmt: skip


def test_an_entry_comes_back_as_it_was_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "deep" / "journal")
    with journal.alone():
        entry = begun(journal)
    assert (entry.turns, entry.live) == ((TURN,), ((("do", "1"), ("undo", "1")),))
    assert (entry.before, entry.after, entry.found, entry.steps) == (b"<a/>", b"<b/>", None, (Step.INTENDED,))
    journal.step(entry, Step.DEFINING)
    journal.step(entry, Step.DEFINED, found=b"<c/>")
    again = journal.read(entry.id)
    assert (again.found, again.steps[-1], again.open) == (b"<c/>", Step.DEFINED, True)
    journal.step(entry, Step.COMMITTED)
    assert not journal.read(entry.id).open


def test_what_a_crash_leaves_is_no_entry_and_no_step(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    entry = begun(journal)
    (tmp_path / ".new-20260101-000001-aaaa").mkdir()
    with (tmp_path / entry.id / "steps").open("ab") as log:
        log.write(b"defin")
    assert [one.id for one in journal.entries()] == [entry.id]
    assert journal.read(entry.id).steps == (Step.INTENDED,)
    journal.step(entry, Step.UNDOING)
    assert journal.read(entry.id).steps == (Step.INTENDED, Step.UNDOING)
    begun(journal, "20260101-000002")
    assert not list(tmp_path.glob(".new-*"))


def test_entries_are_found_by_id_beginning_domain_and_last(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    first, second = begun(journal), begun(journal, "20260102-000000", "db")
    assert journal.find("last").id == second.id
    assert journal.find("web").id == first.id
    assert journal.find("u-db").id == second.id
    assert journal.find("20260102").id == second.id
    journal.step(second, Step.UNDONE)
    assert journal.find("last").id == first.id
    for name in ("2026", "nothing", "", "../.."):
        with pytest.raises(UsageError):
            journal.find(name)


def test_changes_of_one_second_keep_their_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    made = [begun(journal).id for _ in range(20)]
    assert [one.id for one in journal.entries()] == made
    assert journal.find("last").id == made[-1]


def test_a_journal_that_cannot_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PreconditionError, match="cannot keep a journal"), Journal(tmp_path / "file").alone():
        raise AssertionError
    assert Journal(tmp_path / "nowhere").entries() == ()
    (tmp_path / "broken").mkdir()
    with pytest.raises(VirtuneError, match="cannot be read"):
        Journal(tmp_path).entries()


def test_only_one_holds_the_journal(tmp_path: Path) -> None:
    with (
        Journal(tmp_path).alone(),
        pytest.raises(PreconditionError, match="another virtune"),
        Journal(tmp_path).alone(),
    ):
        raise AssertionError
    with Journal(tmp_path).alone():
        pass
