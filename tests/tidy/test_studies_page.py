# SPDX-License-Identifier: Apache-2.0
"""The page of the studies: all that they contain is on it, its counts are right, its commands exist."""

import re
from pathlib import Path

from virtune.cli import VERBS
from virtune.flows.run.question import builtins

PAGE = (Path(__file__).parents[2] / "docs" / "studies.md").read_text()
LINES = [
    [cell.strip() for cell in line.strip("|").split(" | ")] for line in PAGE.splitlines() if line.startswith("|")
]
ROWS = [cells for cells in LINES if len(cells) > 3 and cells[1] in ("Y", "P", "N")]


def test_its_counts_are_those_of_its_rows() -> None:
    assert len(ROWS) == 99
    together = re.search(r"\| together \| *\| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", PAGE)
    assert together is not None
    assert [int(one) for one in together.groups()] == [99, *(sum(row[1] == one for row in ROWS) for one in "YPN")]


def test_what_is_shown_has_a_command_that_exists_and_what_is_not_has_a_reason() -> None:
    studies = {one.name for one in builtins()}
    for row in ROWS:
        commands = re.findall(r"`(?:virtune|make) [^`]*`", row[2])
        assert commands or row[1] == "N", row
        assert row[1] == "Y" or row[3], row
        for command in commands:
            words = command.strip("`").split()
            assert words[0] == "make" or " ".join(words[1:3]) in VERBS or words[1] in VERBS, command
            if words[1:4] == ["compare", "study", "run"]:
                assert words[4] in studies, command
