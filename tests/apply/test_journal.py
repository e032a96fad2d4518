# SPDX-License-Identifier: Apache-2.0
"""The journal: an entry is there whole or not at all, is found by its names, and survives what a crash leaves."""

import contextlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from virtune.apply.journal import Entry, Journal, Plug, Restart, Step
from virtune.cli import run
from virtune.model.domain import SettingChange
from virtune.model.errors import PreconditionError, UsageError, VirtuneError
from virtune.virsh import Virsh

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
    left = tmp_path / ".new-20260101-000001-aaaa"
    left.mkdir()
    os.utime(left, (0, 0))  # one of this minute may be another process's that makes it now
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


def test_a_journal_on_a_filesystem_that_became_read_only_is_said_with_a_way_out(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "none", str(tmp_path)], check=True)
    try:
        journal = Journal(tmp_path / "journal")
        with journal.alone():
            begun(journal)
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path)], check=True)
        with (
            pytest.raises(PreconditionError, match=r"cannot keep a journal in .*/journal: Read-only") as caught,
            journal.alone(),
        ):
            begun(journal)
        assert caught.value.hint == "`--journal DIR` keeps it elsewhere"
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_only_one_holds_the_journal(tmp_path: Path) -> None:
    with (
        Journal(tmp_path).alone(),
        pytest.raises(PreconditionError, match="another virtune"),
        Journal(tmp_path).alone(),
    ):
        raise AssertionError
    with Journal(tmp_path).alone():
        pass


ENTRY = b'{"uri": "u", "uuid": "i", "domain": %s, "turns": [], "live": []}'

DAMAGE: dict[str, tuple[str, bytes | None, str]] = {
    "cut": ("entry.json", b"[", "Invalid JSON: EOF while parsing"),
    "a list": ("entry.json", b"[]", "object"),
    "a number": ("entry.json", b"3", "object"),
    "another type": ("entry.json", ENTRY % b"7", "domain: Input should be a valid string"),
    "deep": ("entry.json", b"[" * 100_000, "recursion limit"),
    "no UTF-8": ("entry.json", ENTRY % b'"\xff"', "Invalid JSON"),
    "no steps": ("steps", b"", "steps: it is empty"),
    "half a step": ("steps", b"inten", "it has no steps"),
    "an unknown step": ("steps", b"intended\nflown\n", "'flown' is not a valid Step"),
    "an empty XML": ("before.xml", b"", "before.xml: it is empty"),
    "an XML that is gone": ("before.xml", None, "before.xml: no such file"),
}


@pytest.mark.parametrize(("name", "content", "says"), DAMAGE.values(), ids=DAMAGE)
def test_one_damaged_entry_hides_no_other(name: str, content: bytes | None, says: str, tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    entries = [begun(journal, f"2026010{day}-000000", domain) for day, domain in ((1, "db"), (2, "web"), (3, "mail"))]
    place = tmp_path / entries[1].id / name
    if content is None:
        place.unlink()
    else:
        place.write_bytes(content)
    assert journal.entries() == (entries[0], entries[2])
    (why,) = journal.damaged()
    assert says in why
    assert journal.find("db") == entries[0]
    assert journal.find("last") == entries[2]
    with pytest.raises(VirtuneError, match="cannot be read"):
        journal.find(entries[1].id)  # and not that it is not there
    journal.step(entries[0], Step.DEFINING)
    assert begun(journal, "20260102-000000").id > entries[1].id  # one of the same second


def test_what_is_no_entry_hides_none(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    entry = begun(journal)
    (tmp_path / "stray").mkdir()
    (tmp_path / "20260101-000000-zzzz").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / entry.id / "found.xml").symlink_to("/dev/zero")
    assert journal.entries() == ()
    assert [why.split()[3] for why in journal.damaged()] == [entry.id, "20260101-000000-zzzz", "stray"]
    assert begun(journal).id > entry.id


def test_undo_names_what_is_damaged_and_undoes_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # libvirt's own test driver has one domain, as it was made each time that it is asked
    virsh = Virsh("test:///default", write=True)
    (uuid,) = virsh.uuids()
    before = (virsh.dump([uuid], secrets_too=True)[0].inactive or "").encode()
    journal = Journal(tmp_path)
    good, lost = (
        journal.begin(
            name=f"2026010{day}-000000", uri=virsh.uri, uuid=one, domain=name,
            turns=[TURN], live=[], before=before, after=b"<b/>",
        )
        for day, one, name in ((1, uuid, "test"), (2, uuid.replace("6", "7"), "lost"))
    )  # fmt: skip
    (tmp_path / "stray").mkdir()
    place = ["--journal", str(tmp_path)]
    assert run(["apply", "undo", "--list", *place]) == 1
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == [good.id, lost.id]
    assert err.startswith("damaged: the journal's entry stray cannot be read")
    assert run(["apply", "undo", "--show", *place]) == 3  # the last change, whose domain is gone
    capsys.readouterr()
    assert run(["apply", "undo", *place]) == 3
    out, err = capsys.readouterr()
    assert out == f"test is as it was before {good.id}\n"
    assert f"{lost.id} of lost: there is no domain" in err
    assert Step.UNDONE in journal.read(good.id).steps
    assert run(["apply", "undo", good.id, *place]) == 0  # named, it does not matter what else is damaged
    assert "damaged" not in capsys.readouterr().err


@contextlib.contextmanager
def disk(image: Path, place: Path, *options: str) -> Iterator[Path]:
    """A filesystem in a file, mounted."""
    place.mkdir()
    subprocess.run(["mount", "-o", ",".join(("loop", *options)), str(image), str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_what_was_written_down_is_on_the_disk_when_that_returns(tmp_path: Path) -> None:
    image, later = tmp_path / "disk.img", tmp_path / "later.img"
    with image.open("wb") as file:
        file.truncate(16 * 1024**2)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    # without the kindnesses of ext4, which writes what is renamed and what is five seconds old
    with disk(image, tmp_path / "now", "commit=300,noauto_da_alloc") as now:
        journal = Journal(now / "journal")
        with journal.alone():
            entry = begun(journal)
            shutil.copyfile(image, later)  # what the disk holds if the power fails now
            with disk(later, tmp_path / "begun") as crashed:
                assert Journal(crashed / "journal").read(entry.id) == entry
            journal.step(entry, Step.DEFINED, found=b"<c/>")
            shutil.copyfile(image, later)
            with disk(later, tmp_path / "stepped") as crashed:
                assert Journal(crashed / "journal").read(entry.id) == journal.read(entry.id)
        assert journal.read(entry.id).found == b"<c/>"


def test_plugs_and_a_restart_come_back_as_they_were_written(tmp_path: Path) -> None:
    """An undo after a crash has nothing else to go by: not one of their words may be lost."""
    plugs = (Plug(target="vda", old="<disk n='1'/>", new="<disk n='2'/>"), Plug(target="vdb", old="<x/>", new="<y/>"))
    for number, (healthy, force_off) in enumerate(itertools.product(((), ("agent", "address")), (False, True))):
        restart = Restart(healthy=healthy, timeout_seconds=12.5, force_off=force_off)
        entry = Journal(tmp_path).begin(
            name=f"20260101-00000{number}", uri="u", uuid="i", domain="web", turns=[TURN, TURN], live=[],
            before=b"<a/>", after=b"<b/>", plugs=plugs, restart=restart,
        )  # fmt: skip
        assert Journal(tmp_path).read(entry.id) == entry
        assert (entry.plugs, entry.restart, entry.turns, entry.live) == (plugs, restart, (TURN, TURN), ())


@pytest.mark.parametrize("step", Step)
def test_only_what_is_committed_or_undone_is_finished_and_only_what_is_undone_is_past(
    step: Step, tmp_path: Path
) -> None:
    journal = Journal(tmp_path)
    entry = begun(journal)
    journal.step(entry, step)
    again = journal.read(entry.id)
    assert again.steps == (Step.INTENDED, step)
    assert again.open is (step not in (Step.COMMITTED, Step.UNDONE))
    assert journal.find(entry.id) == again
    for name in ("last", "web", "u-web"):
        if step is Step.UNDONE:
            with pytest.raises(UsageError, match=f"no change '{name}' in the journal"):
                journal.find(name)
        else:
            assert journal.find(name) == again
    assert {place.stat().st_mode & 0o777 for place in (tmp_path / entry.id).iterdir()} == {0o600}
    assert (tmp_path / entry.id).stat().st_mode & 0o077 == 0
