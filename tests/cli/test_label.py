# SPDX-License-Identifier: Apache-2.0
"""Titles, notes and tags of studies: given, shown wherever studies are, and found by."""

from pathlib import Path

import pytest
from tests.cli.kept_results import Capture, Kept, result
from tests.published import complaints, strictly


@pytest.fixture
def kept(tmp_path: Path, capsys: Capture) -> Kept:
    """A store with two imported studies."""
    made = Kept(tmp_path, capsys)
    for name in ("monday", "tuesday"):
        made("explain", "import", str(result(tmp_path, f"{name}.json")), "--quiet")
    return made


def test_what_is_given_is_shown_and_finds(kept: Kept) -> None:
    newest, oldest = (one["id"] for one in strictly(kept("show", "list", "--json"))["studies"])
    assert "no title, no note and no tags" in kept("show", "label")
    kept(
        "show",
        "label",
        oldest,
        "--title",
        "Which engine?",
        "--note",
        "SSD <b>full</b>",
        "--tag",
        "@good",
        "--tag",
        "x",
    )
    words = "Which engine?; SSD <b>full</b> @good @x"
    assert kept("show", "label", "@good") == f"{oldest}, import of monday: {words}\n"
    assert words in " ".join(kept("show", "@good").split())
    assert "@good" in kept("show", "list")
    document = strictly(kept("show", "list", "--json"))
    assert complaints("list", document) == []
    assert [(one["title"], one["note"], one["tags"]) for one in document["studies"]] == [
        ("", "", []), ("Which engine?", "SSD <b>full</b>", ["good", "x"]),
    ]  # fmt: skip
    kept("show", "label", newest, "--tag", "good", "--tag", "good")
    assert newest in kept("show", "label", "@good")
    kept("show", "label", newest, "--untag", "good", "--untag", "never-given")
    kept("show", "label", oldest, "--note", "")
    assert kept("show", "label", "@good") == f"{oldest}, import of monday: Which engine? @good @x\n"
    assert strictly(kept("compare", "@good", "last", "--json"))["schema"] == "virtune/result/2"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("show", "@never"), "has the tag 'never'"),
        (("compare", "@never", "last"), "has the tag 'never'"),
        (("show", "label", "last", "--tag", "a b"), "'a b' is no tag"),
        (("show", "label", "last", "--tag", "@"), "'@' is no tag"),
        (("show", "label", "last", "--tag", "x" * 33), "is no tag"),
        (("show", "label", "last", "--untag", '"'), "is no tag"),
        (("show", "label", "last", "--note", "x" * 201), "at most 200 characters"),
    ],
)
def test_what_is_no_tag_or_no_study_s_is_one_sentence(kept: Kept, words: tuple[str, ...], says: str) -> None:
    kept(*words, status=2)
    assert says in kept.err
