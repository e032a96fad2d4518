# SPDX-License-Identifier: Apache-2.0
"""Nothing that virtune says of kept studies and recorded files changes unseen (`golden_cases`)."""

import difflib
import json

import pytest
from tests.golden.golden_cases import SAID, TOUCHED, cases, place, said, touching

CASES = cases()
LINES_SHOWN = 40


@pytest.mark.parametrize("group", CASES)
def test_what_is_said_is_what_was_written_down(group: str) -> None:
    changed: list[str] = []
    touched = json.loads(TOUCHED.read_text())
    with place() as at:
        for case in CASES[group]:
            with touching(at) as done:
                text = said(case, at)
            before, now = (SAID / case.name).read_text().splitlines() + touched[case.name], text.splitlines() + done
            if before != now:
                lines = difflib.unified_diff(before, now, case.name, f"{case.name} (now)", lineterm="", n=1)
                changed += list(lines)[:LINES_SHOWN]
    hint = "meant? `python -m tests.golden.golden_cases` writes it down again"
    assert not changed, "\n".join((hint, *changed))


def test_nothing_is_written_down_that_no_call_says() -> None:
    assert {path.name for path in SAID.iterdir()} == {case.name for group in CASES.values() for case in group}
