# SPDX-License-Identifier: Apache-2.0
"""The tables and lists of pages that are written by hand and name all of a kind: nothing is missing or left over."""

import re
import tomllib
from pathlib import Path

from virtune.model.rig import rig_words, rig_words_with_where

ROOT = Path(__file__).resolve().parents[2]


def page(name: str) -> str:
    return (ROOT / name).read_text()


def rows(text: str) -> list[list[str]]:
    """The rows of all tables in a page, cell by cell."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")
    ]


def test_every_target_that_is_named_can_be_made() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*##", page("Makefile"), re.MULTILINE))
    for name in ("CONTRIBUTING.md", "README.md", "docs/README.md"):
        named = set(re.findall(r"(?:`|^ *|\$ )make ([a-z-]+)(?=`|  +#|$)", page(name), re.MULTILINE))
        assert named, name
        assert named <= targets, name


def test_the_rigs_of_the_readme_and_of_the_words_are_those_there_are() -> None:
    for name in ("README.md", "docs/words.md"):
        (row,) = (row for row in rows(page(name)) if row[0].strip("*") == "rig")
        assert set(re.findall(r"`([^`]+)`", row[1])) == {*rig_words(), *rig_words_with_where()}, name


def test_the_exit_codes_of_the_readme_are_those_of_the_reference() -> None:
    told = page("README.md").partition("Exit codes: ")[2].partition("\n\n")[0]
    codes = {row[0] for row in rows(page("docs/reference/exit-codes.md")) if row[0].isdecimal()}
    assert set(re.findall(r"(?:^|; |\n)(\d+)\b", told)) == codes


def test_every_page_is_named_where_all_pages_are() -> None:
    linked = set(re.findall(r"\]\(([\w/.-]+\.md)\)", page("docs/README.md")))
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    assert {one for one in linked if not one.startswith("..")} == pages


def test_every_benchmark_is_in_the_table_of_benchmarks() -> None:
    """What only other benchmarks import is no benchmark."""
    told = {name for row in rows(page("benchmarks/README.md")) for name in re.findall(r"`(\w+)\.py`", row[0])}
    sources = {path.stem: path.read_text() for path in (ROOT / "benchmarks").glob("*.py")}
    imported = {
        name for text in sources.values() for name in re.findall(r"^from benchmarks\.(\w+)", text, re.MULTILINE)
    }
    assert told <= sources.keys()
    assert {name for name in sources.keys() - told if name not in imported} == {"__init__"}


def test_the_order_of_rooms_in_words_is_that_of_the_contract() -> None:
    told = page("ARCHITECTURE.md").partition("Order: `")[2].partition("`")[0]
    contracts = tomllib.loads(page("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (layers,) = (one["layers"] for one in contracts if one["name"] == "No arrow runs back up")
    assert [set(re.findall(r"\w+", part)) for part in told.split("→")] == [
        set(re.findall(r"\w+", layer)) for layer in layers
    ]
