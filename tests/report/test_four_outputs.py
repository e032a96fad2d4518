# SPDX-License-Identifier: Apache-2.0
"""Terminal, JSON, Markdown and HTML say the same of one stored study: its verdicts, values and differences."""

import gzip
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from virtune.cli import run
from virtune.model.metric import BY_ID
from virtune.report.markdown import plain
from virtune.report.words import quantity

pytestmark = pytest.mark.xdist_group("four outputs")  # what is made for the module is made once

KEPT = Path(__file__).parents[1] / "store" / "data" / "older-method.sqlite.gz"
COMPARE = "20261122-184255-3883"


@pytest.fixture
def outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Any, dict[str, str]]:
    """The JSON document, and the other three as text without markup, each with blanks made one."""
    store = tmp_path / "before.sqlite"
    store.write_bytes(gzip.decompress(KEPT.read_bytes()))
    place = ("--store", str(store))
    page = tmp_path / "page.html"

    def said(*words: str) -> str:
        assert run([*words, *place]) == 0
        return capsys.readouterr().out

    document = json.loads(said("show", COMPARE, "--json"))
    terminal = said("show", COMPARE)
    markdown = said("show", COMPARE, "--markdown", "-")
    said("show", "report", COMPARE, "-o", str(page))
    text = html.unescape(re.sub(r"<[^>]+>", " ", page.read_text()))
    found = {"terminal": terminal, "markdown": markdown, "html": text}
    return document, {name: " ".join(one.split()) for name, one in found.items()}


def change(ratio: float) -> str:
    return f"{(ratio - 1) * 100:+.1f}" if abs(ratio - 1) < 1 else f"{(ratio - 1) * 100:+,.0f}"


def test_every_value_of_the_document_is_in_the_other_three_with_its_unit(outputs: tuple[Any, dict[str, str]]) -> None:
    document, texts = outputs
    checked = 0
    for arm in document["arms"]:
        for workload in arm["workloads"]:
            for metric, value in workload["values"].items():
                shown = [] if value["typical"] is None else [value["typical"]]
                if not shown or BY_ID[metric].percent is not None:  # those of all rounds stand beside a round's
                    shown.append(value["value"] if value["high"] is not None else value["low"] or value["value"])
                for number in shown:
                    words = quantity(BY_ID[metric], number)
                    for name, text in texts.items():
                        assert words in text, (name, arm["name"], metric, words)
                    checked += 1
    assert checked > 20


def test_every_verdict_and_difference_is_in_all_four(outputs: tuple[Any, dict[str, str]]) -> None:
    document, texts = outputs
    for one in document["comparisons"]:
        sentence = f"{one['candidate']} against {one['baseline']}: undecided"
        for name, text in texts.items():
            assert (plain(sentence) if name == "markdown" else sentence) in text, name
    shown = 0
    for one in (*document["comparisons"], *document["differences"]):
        ratio = one["ratio"]
        if ratio is None or not re.search(r"\.p50$|^iops$|^latency\.mean$|^cpu_per_io$", one["metric"]):
            continue
        words = f"{change(ratio['estimate'])} %"
        for name, text in texts.items():
            assert words in text, (name, one["metric"], words)
        shown += 1
    assert shown >= 3


def test_a_figure_that_was_changed_in_one_of_them_is_noticed(outputs: tuple[Any, dict[str, str]]) -> None:
    document, texts = outputs
    arm = document["arms"][0]
    arm["workloads"][0]["values"]["iops"]["typical"] *= 1.37
    with pytest.raises(AssertionError):
        test_every_value_of_the_document_is_in_the_other_three_with_its_unit((document, texts))
