# SPDX-License-Identifier: Apache-2.0
"""Every command of the guide runs as its page says, on real disks, and prints what the page shows of it."""

import shutil
from dataclasses import replace
from pathlib import Path

import click
import pytest
from tests.conftest import User, bare_guest, generator
from tests.guide import EXAMPLES, PAGES, Step, missing, steps

from virtune.cli import cli


def shortened(step: Step) -> tuple[str, ...]:
    """Its words, with two rounds instead of the reader's six, and no disturbed trial repeated, where the page shows
    nothing of what they decide.

    The words as they stand are those of `test_every_command_is_one_that_virtune_takes`.
    """
    words = step.words
    if step.shown or "--rounds" not in words:
        return words
    place = words.index("--rounds") + 1
    return (*words[:place], "2", *words[place + 1 :], "--attempts", "1")


def runs(page: Path) -> list[Step]:
    """The steps of a page that are run here."""
    return [step for step in steps(page) if not step.needs_libvirt and not step.only_parsed]


MEASURED = ("measure", "--rounds", "1", "--seconds", "300ms", "--span", "64M", "-q")
"""A study for what comes after a check that is not made: a check takes 10 s at least."""


def always(page: Path) -> list[Step]:
    """The steps of a page in each run: all that show something, and the measurements of the tutorial; those of other
    pages are typed nearly alike, and `make test-long` makes them.
    """
    found = []
    for step in runs(page):
        unseen = not step.shown and "--span" in step.words
        if unseen and step.words[0] == "check":
            found.append(replace(step, words=MEASURED))
        elif not unseen or page.stem == "tutorial":
            found.append(step)
    return found


def run(user: User, step: Step) -> str:
    measures = {"--span", "--rig"} & {*step.words}  # in the scratch directory of the tests, which no other run holds
    place = ("--scratch", str(user.scratch)) if measures else ()
    return user.run(*shortened(step), *place, exactly=True, status=step.status).stdout


def go_through(page_steps: list[Step], user: User) -> None:
    shutil.copytree(EXAMPLES, user.home, dirs_exist_ok=True)
    for step in page_steps:
        printed = run(user, step)
        assert missing(step.shown, printed) is None, f"{step.words}:\n{printed}"


@pytest.mark.real
@pytest.mark.parametrize("page", [page for page in PAGES if always(page)], ids=lambda page: page.stem)
def test_the_commands_of_a_page_do_what_the_page_says(page: Path, user: User) -> None:
    go_through(always(page), user)


@pytest.mark.real
@pytest.mark.long
@pytest.mark.parametrize("page", [page for page in PAGES if always(page) != runs(page)], ids=lambda page: page.stem)
def test_every_command_of_a_page_does_what_the_page_says(page: Path, user: User) -> None:
    generator()
    bare_guest()
    go_through(runs(page), user)


@pytest.mark.parametrize(
    "step", [step for page in PAGES for step in steps(page)], ids=lambda step: " ".join(step.words)
)
def test_every_command_is_one_that_virtune_takes(step: Step) -> None:
    verb, *words = step.words
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    command.make_context(verb, [*words])


def test_a_shown_line_that_is_not_printed_is_found() -> None:
    printed = "one\ntwo\nthree\nfour\n"
    assert missing(("one", "...", "four"), printed) is None
    assert missing(("two", "three"), printed) is None
    assert missing(("one", "three"), printed) == "three"
    assert missing(("four", "...", "one"), printed) == "one"


def test_only_rounds_are_fewer_and_none_where_a_page_shows_what_they_decide() -> None:
    shown = Step("page.md", ("compare", "--rounds", "6", "--seconds", "1"), shown=("better",))
    assert shortened(shown) == shown.words
    few = ("compare", "--rounds", "2", "--seconds", "1", "--attempts", "1")
    assert shortened(replace(shown, shown=())) == few
    assert shortened(Step("page.md", ("probe",))) == ("probe",)


def test_what_only_a_long_run_types_is_measured_unseen() -> None:
    seldom = [step for page in PAGES for step in runs(page) if step not in always(page)]
    assert {step.words[0] for step in seldom} == {"check", "compare"}
    assert not any(step.shown for step in seldom)
    (tutorial,) = [page for page in PAGES if page.stem == "tutorial"]
    assert [step.words[0] for step in runs(tutorial) if step not in always(tutorial)] == ["check"]


def test_the_guide_has_commands_of_every_kind() -> None:
    found = [step for page in PAGES for step in steps(page)]
    assert {step.words[0] for step in found} >= {"audit", "compare", "diagnose", "explain", "sweep", "tune", "undo"}
    assert any(step.shown for step in found)
    assert any(step.needs_libvirt for step in found)
