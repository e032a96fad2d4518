# SPDX-License-Identifier: Apache-2.0
"""What is set at any width: nothing is cut, and no id, value or interval is broken."""

from collections.abc import Sequence

import pytest
from rich.console import Console, RenderableType
from rich.text import Text

from virtune.report.render.terminal import Column, Paragraph, Section, Table, right, section, set_at, wrap

WIDTHS = (20, 40, 60, 80, 100, 160)
SAID = (
    "native against threads: undecided, IOPS +78.4 % [+6.7, +198]; it took 12.5 ms and 250 MiB, as `virtune compare"
    " --help` says at https://lists.example.org/archive/html/devel/2026-01/msg00000000000000000000000000.html at last"
)
WHOLE = ("12.5 ms", "250 MiB", "+78.4 %", "[+6.7, +198]")
URL = "https://lists.example.org/archive/html/devel/2026-01/msg00000000000000000000000000.html"


def shown(renderable: RenderableType, width: int) -> list[str]:
    console = Console(width=width, no_color=True)
    with console.capture() as captured:
        console.print(renderable, crop=False)
    return captured.get().splitlines()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_paragraph_keeps_its_words_values_and_intervals_together(width: int) -> None:
    lines = shown(Paragraph(SAID, indent=2, hanging=2), width)
    assert " ".join(" ".join(lines).split()) == SAID
    assert all(line == line.rstrip() for line in lines)
    for whole in (*WHOLE, URL):
        assert any(whole in line for line in lines), whole
    assert all(len(line) <= width for line in lines if URL not in line)
    assert len(lines) > 1


def test_an_estimate_stays_with_its_interval_and_a_command_whole_where_they_fit() -> None:
    lines = shown(Paragraph(SAID), 40)
    assert any("+78.4 % [+6.7, +198]" in line for line in lines)
    assert any("`virtune compare --help`" in line for line in lines)


def test_colours_and_line_ends_survive() -> None:
    lines = wrap(Text.assemble(("one two", "red"), "\n  three four"), 8)
    assert [line.plain for line in lines] == ["one two", "  three", "four"]
    assert str(lines[0].spans[0].style) == "red"


COLUMNS = (
    Column(title="study"),
    Column(title="arms", wraps=True),
    Column(title="trials", right=True),
    Column(title=""),
)
ROWS = (
    ("20260102-030405-abcd", "threads, native, io_uring and more than a narrow terminal has room for", "28/28", "ok"),
    Section(Text("a heading")),
    ("20260102-030405-ffff", "one", "1/4", ""),
)  # fmt: skip


@pytest.mark.parametrize("width", WIDTHS)
def test_a_table_never_cuts_a_cell_and_falls_back_to_paragraphs(width: int) -> None:
    lines = shown(Table(COLUMNS, ROWS), width)
    text = " ".join(" ".join(lines).split())
    for cell in ("20260102-030405-abcd", "28/28", "20260102-030405-ffff", "1/4", "a heading"):
        assert any(cell in line for line in lines), cell
    assert all(word in text for word in ROWS[0][1].split())
    beside = any("20260102-030405-ffff" in line and "1/4" in line for line in lines)
    assert beside == (width >= 60)
    assert ("  trials: 28/28" in lines) == (not beside)
    assert all(len(line) <= max(width, 20) for line in lines)
    assert all(line == line.rstrip() for line in lines)


def test_an_empty_column_is_left_out_and_numbers_stand_to_the_right() -> None:
    lines = shown(Table(["a", "empty", *right("n")], [("x", "", "5"), ("y", "", "500")]), 40)
    assert lines == ["a    n", "x    5", "y  500"]


def test_a_head_of_several_lines_is_as_wide_as_its_longest() -> None:
    lines = shown(Table(["", *right("a\nread", "both")], [("IOPS", "5", "500")], gap=1), 40)
    assert lines == ["        a both", "     read", "IOPS    5  500"]


def test_other_outputs_read_the_heads_the_cells_and_how_each_column_is_set() -> None:
    rows: list[Sequence[Text | str] | Section] = [(Text("x", style="bold"), "5 us", "")]
    rows += [Section(Text("a heading")), ("y", ">=2 ms", "")]
    table = Table(["a", *right("n"), "empty"], rows, caption="of it", notes=["what it shows"])
    assert table.titles == ("a", "n", "empty")
    assert table.cells == (("x", "5 us", ""), ("y", ">=2 ms", ""))
    assert table.kinds == ("short", "number", "number")
    assert (table.filled().titles, table.filled().caption, table.filled().notes) == (
        ("a", "n"),
        "of it",
        ("what it shows",),
    )
    assert table.only(1).cells == (("5 us",), (">=2 ms",))


def test_a_heading_stands_only_over_what_there_is() -> None:
    assert section("warnings", []) == []
    assert set_at(40, *section("warnings", ["one", "two"])) == "\nwarnings\n  one\n  two\n"
