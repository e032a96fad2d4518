# SPDX-License-Identifier: Apache-2.0
"""Nothing that is said of inputs of which one thing is turned changes unseen (`census_cases`)."""

import difflib

import pytest
from tests.golden.census import Census
from tests.golden.census_cases import SAID, SUBJECTS, said

LINES_SHOWN = 40


@pytest.mark.parametrize("subject", SUBJECTS)
def test_what_is_said_of_turned_inputs_is_what_was_written_down(subject: str) -> None:
    before, now = (SAID / f"{subject}.txt").read_text().splitlines(), said(subject).splitlines()
    changed = list(difflib.unified_diff(before, now, subject, f"{subject} (now)", lineterm="", n=0))
    hint = "meant? `python -m tests.golden.census_cases` writes it down again"
    assert not changed, "\n".join((hint, *changed[:LINES_SHOWN]))


def test_nothing_is_written_down_of_no_subject() -> None:
    assert {path.stem for path in SAID.iterdir()} == set(SUBJECTS)


def test_a_census_sees_a_number_a_sign_a_place_and_a_word() -> None:
    def of(*lines: str) -> str:
        census = Census()
        census.add(lines)
        return census.said

    assert of("1 of 2", "3 of 4") == of("3 of 4", "1 of 2") != of("2 of 1", "3 of 4")
    assert of("-1,000 reads") == "     1        -6.91 # reads\n"
    assert len({of(line) for line in ("1 read", "-1 read", "1.5 read", "1 write", "none")}) == 5
