# SPDX-License-Identifier: Apache-2.0
"""The pictures of the README show what virtune shows today; `python -m benchmarks.pictures` draws them anew."""

from pathlib import Path

import pytest
from benchmarks.pictures import PLACE, report, top


@pytest.mark.parametrize(("name", "made"), [("report", report), ("top", top)])
def test_a_picture_shows_what_virtune_shows_today(name: str, made: object, tmp_path: Path) -> None:
    assert callable(made)
    _, said = made(tmp_path)
    assert (PLACE / f"{name}.txt").read_text() == said, "`python -m benchmarks.pictures` draws it anew"


def test_the_readme_has_both_on_its_first_page() -> None:
    first = (PLACE.parents[1] / "README.md").read_text().partition("## Words")[0]
    assert "docs/pictures/report.png" in first
    assert "docs/pictures/top.svg" in first
