# SPDX-License-Identifier: Apache-2.0
"""Untrusted text stays text in Markdown, and what is harmless is not escaped."""

from dataclasses import replace

import pytest
from markdown_it import MarkdownIt
from tests.report.records import record

from virtune.analyse.study.summarise import summarise
from virtune.report.markdown import code, markdown, plain

PARSER = MarkdownIt("gfm-like", {"linkify": False})


@pytest.mark.parametrize(
    "text",
    [
        "-12.3 % [-15.0, -9.5]", ">=6.26 ms", "~6.46 ms", "io_uring", "IOPS (4 of 9)", "a = b; c + d - e!", "x^2 {y}",
    ],
)  # fmt: skip
def test_what_is_harmless_reads_the_same_without_a_renderer(text: str) -> None:
    assert plain(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>", "a <img src=x onerror=y> b", "[x](http://evil)", "![x](http://evil)",
        "[x]: http://evil", "[x][y]", "*a* **b**", "_a_ __b__", "`a`", "~~a~~", "a | b", "&lt;b&gt; &#60;",
        "\\[x](y)", "\\", "a\\", "$a$", "#1",
    ],
)  # fmt: skip
def test_untrusted_markup_is_shown_as_it_is(text: str) -> None:
    for place, around in ((0, f"* note: {plain(text)}\n"), (1, f"| a | {plain(text)} |\n| --- | --- |\n")):
        tokens = PARSER.parse(around)
        inline = [child for token in tokens for child in token.children or ()]
        assert {one.type for one in inline} <= {"text", "text_special"}, around
        shown = "".join(one.content for one in inline).replace("\u200b", "")
        assert shown == (f"note: {text}" if place == 0 else f"a{text}"), around


def test_a_mention_and_an_address_are_parted() -> None:
    assert "@everyone" not in plain("@everyone")
    assert "://" not in plain("http://evil").replace("://\u200b", "")
    assert plain("a\x1b[31m\nb") == "a?[31m?b"


def test_a_code_block_cannot_be_left() -> None:
    tokens = PARSER.parse(code("a\n````\n</pre><b>"))
    assert [token.type for token in tokens] == ["fence"]
    assert tokens[0].content == "a\n````\n</pre><b>\n"


def test_a_page_begins_with_the_answer_and_holds_the_verified_settings() -> None:
    kept = record(12)
    page = markdown(summarise(kept), ())
    tokens = PARSER.parse(page)
    assert [token.type for token in tokens[:4]] == ["heading_open", "inline", "heading_close", "fence"]
    assert "native  better  +10.0 % [" in tokens[3].content
    assert "| threads | unverified | aio=threads; requested, and not seen: disk.cache=none, " in page
    assert tokens[-1].content.startswith("virtune compare --arm threads:disk.aio=threads ")
    hostile = replace(kept.study, title="> <b>[x](http://evil)")
    assert "&gt; &lt;b>[x\\](http:" in markdown(summarise(replace(kept, study=hostile)), ())
