# SPDX-License-Identifier: Apache-2.0
"""Untrusted text stays text in Markdown, and what is harmless is not escaped."""

import re
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from markdown_it import MarkdownIt
from tests.analyse.search_worlds import World, searched, study_of
from tests.report.records import record

from virtune.analyse.study.summarise import summarise
from virtune.model.bottleneck import Bottleneck, Cause, DataPath, Diagnosis
from virtune.model.reason import Reason
from virtune.model.result import ArmSummary, Result
from virtune.model.tuning import Spelled
from virtune.model.verdict import Comparison, Outcome, Proof, ProofReason, ThresholdResult
from virtune.plan.goal import parse_condition
from virtune.report.markdown import FOLD, FOLD_END, code, markdown, plain, proof_markdown, tuning_markdown

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
    assert [token.type for token in tokens[:4]] == ["heading_open", "inline", "heading_close", "bullet_list_open"]
    assert tokens[1].content.startswith("▲ native is better than threads, +10.0 % [")
    shown, _, proof = page.partition(f"{FOLD}\n")
    assert len([line for line in shown.splitlines() if line]) <= 8
    assert "settings not verified: disk.cache=none" in shown
    assert "native  better  +10.0 % [" in proof
    assert "| threads | unverified | aio=threads; requested, and not seen: disk.cache=none, " in page
    assert tokens[-1].content == f"{FOLD_END}\n"
    assert tokens[-2].content.startswith("virtune compare --arm threads:disk.aio=threads ")
    hostile = replace(kept.study, title="> <b>[x](http://evil)")
    assert "\\> &lt;b>[x\\](http:" in markdown(summarise(replace(kept, study=hostile)), ())


MARKUP = (
    "<b>",
    "</td>",
    "<!--",
    "<img src=x onerror=y>",
    "&amp;",
    "&#60;",
    "|",
    "\\|",
    "`",
    "```",
    "[a](b)",
    "![a](b)",
    "[a]: b",
    "*",
    "**",
    "_",
    "__",
    "~~",
    "#",
    "# ",
    "> ",
    "- ",
    "+ ",
    "1. ",
    "1) ",
    "[ ] ",
    "---",
    "===",
    "$",
    "\\",
    "\n",
    "\r\n",
    "\n\n| a |\n| - |\n",
    "\t",
    "    ",
    "http://evil",
    "www.evil.org",
    "@all",
    "\x1b[31m",
    "\x9b31m",
    "\u202e",
    "\u2028",
    "\ud800",
    "é",
    "a",
    "b c",
    "disk.aio=native",
)
"""What Markdown gives a meaning to, wherever it stands in a name, and what a terminal does."""

ALLOWED = {
    "inline",
    "text",
    "text_special",
    "softbreak",
    "heading_open",
    "heading_close",
    "paragraph_open",
    "paragraph_close",
    "fence",
    "bullet_list_open",
    "bullet_list_close",
    "list_item_open",
    "list_item_close",
    "strong_open",
    "strong_close",
    "table_open",
    "table_close",
    "thead_open",
    "thead_close",
    "tbody_open",
    "tbody_close",
    "tr_open",
    "tr_close",
    "th_open",
    "th_close",
    "td_open",
    "td_close",
}


def shape_of(page: str) -> list[str]:
    """The kinds of blocks of a page, in their order, after a look at all that is in it."""
    assert re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\ud800-\udfff]", page) is None
    tokens = PARSER.parse(page)
    ours = [one.content.strip() for one in tokens if one.type == "html_block"]
    assert ours == [FOLD, FOLD_END]
    tokens = [one for one in tokens if one.type != "html_block"]
    inline = [child for token in tokens for child in token.children or ()]
    assert {one.type for one in (*tokens, *inline)} <= ALLOWED, {one.type for one in (*tokens, *inline)} - ALLOWED
    assert not any(one.content in ("http://evil", "www.evil.org", "@all") for one in inline)
    return [one.type for one in tokens if one.type != "inline"]


def named(result: Result, names: Sequence[str]) -> Result:
    """The same result where all that others may name has these names."""
    first, second, title, workload, check, text = names
    arms = {one.name: new for one, new in zip(result.study.arms, (first, second), strict=True)}
    (load,) = result.study.workloads
    study = replace(
        result.study, baseline=arms[result.study.baseline], title=title,
        arms=tuple(replace(one, name=arms[one.name]) for one in result.study.arms),
        workloads=(replace(load, name=workload, meaning=text),),
    )  # fmt: skip

    def pair(one: Comparison) -> Comparison:
        return replace(one, candidate=arms[one.candidate], baseline=arms[one.baseline], workload=workload)

    def summary(one: ArmSummary) -> ArmSummary:
        remark = replace(one.remarks[0], remark=replace(one.remarks[0].remark, text=text))
        checks = tuple(replace(found, found=check, proof=text) for found in one.in_force)
        return replace(
            one, arm=arms[one.arm], workload=workload, remarks=(remark,), in_force=checks, failures=(text,)
        )

    return replace(
        result, study=study, arms=tuple(map(summary, result.arms)), patterns=(text,),
        verdicts=tuple(map(pair, result.verdicts)), differences=tuple(map(pair, result.differences)),
        basis=tuple(replace(one, workload=workload) for one in result.basis),
    )  # fmt: skip


RATES = {"base": 40_000.0, "fast": 80_000.0}
SEARCHED, _ = searched(study_of(list(RATES)), World(RATES, noise=0.01))


@pytest.mark.parametrize("seed", range(30))
def test_no_name_becomes_markup_in_any_page(seed: int) -> None:
    """Names made of markup at random give the page that plain names give: no table breaks, nothing is linked."""
    chance = Random(seed)
    names = ["".join(chance.choices(MARKUP, k=chance.randint(1, 6))) + str(number) for number in range(6)]
    harmless = [f"name{number}" for number in range(6)]
    kept = summarise(record(12))
    condition = parse_condition("iops < -3%")
    pages: list[tuple[str, ...]] = []
    for one in (harmless, names):
        result = named(kept, one)
        (pair, *_) = result.verdicts
        ruling = ThresholdResult(condition=replace(condition, text=one[5]), comparison=pair, outcome=Outcome.BREACHED,
                                 why=one[4], reason=Reason.WORSE_SIDE)  # fmt: skip
        search = replace(SEARCHED, notes=(one[0],), study=replace(SEARCHED.study, seed=3))
        accused = Bottleneck(cause=Cause.DEVICE, evidence=(one[2], one[5]), experiment=one[4])
        said = Diagnosis(disk=one[0], workload=one[1], seconds=1.0, path=DataPath(iops=1.0),
                         found=accused, layers=None,
                         proof=Proof(reason=ProofReason.NOT_OURS, why=one[3]))  # fmt: skip
        pages.append(
            (
                markdown(result, (ruling,)),
                tuning_markdown(search, "", [Spelled(program="", title=one[1], text=one[2], notes=(one[3],))]),
                proof_markdown(said, result),
            )
        )
    assert [shape_of(page) for page in pages[1]] == [shape_of(page) for page in pages[0]]
