# SPDX-License-Identifier: Apache-2.0
"""The page of a diagnosis says what the terminal says, with pictures of its layers, and shows names as text."""

import gzip
import html
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from tests.report.layer_parts import LAYERS

from virtune.advise.guidelines import TUNING
from virtune.cli import run
from virtune.flows.live.diagnose import diagnose_study
from virtune.flows.reports.report import page_html
from virtune.model.bottleneck import Cause, Diagnosis, walk
from virtune.model.counters import ThreadCost
from virtune.model.live import HostQueue
from virtune.report.html.page import diagnosis_page
from virtune.report.pages.diagnose import render
from virtune.store.store import Store

KEPT = Path(__file__).parents[1] / "store" / "data" / "older-method.sqlite.gz"
COMPARE = "20261122-184255-3883"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "kept.sqlite"
    made.write_bytes(gzip.decompress(KEPT.read_bytes()))
    return made


@pytest.fixture
def found(place: Path) -> tuple[Diagnosis, ...]:
    with Store(place, reading=True) as store:
        return diagnose_study(store, COMPARE)


def test_a_page_has_the_cause_its_evidence_and_its_layers(found: tuple[Diagnosis, ...]) -> None:
    thread = ThreadCost(role="iothread", name="IO iothread0", tid=1, seconds=10.0, cpu_seconds=5.0,
                        user_seconds=4.0, system_seconds=1.0, wait_seconds=0.2)  # fmt: skip
    first = found[0]
    known = replace(
        first,
        disk="<script>alert(1)</script>\x1b[31m",
        layers=LAYERS,
        path=replace(first.path, threads=(thread,), iops=1000.0),
        found=replace(first.found, cause=Cause.DEVICE, evidence=("it was busy all the time",)),
    )
    page = diagnosis_page([known])
    assert [chart.name.partition("-")[0] for chart in page.charts] == ["layers"]
    assert [table.caption.partition(": ")[2] for table in page.tables] == [
        "its requests", "where the time of a request goes", "threads, the busiest first",
    ]  # fmt: skip
    assert page.tables[2].cells[0][1:] == ("50 %", "40 %", "10 %", "2 %", "500 us", "-", "2,000 IOPS")
    text = page_html(page)
    assert "<script" not in text
    assert "\x1b" not in text
    told = html.unescape(re.sub(r"<[^>]+>", " ", text))
    for words in ("limited by the device", "it was busy all the time", f"next: {known.found.experiment}", "80 us"):
        assert words in told
    assert text.count("<svg") == 1


def test_what_was_seen_of_none_of_several_disks_is_said_once(found: tuple[Diagnosis, ...]) -> None:
    disks = [replace(found[0], missing=("the guest", *more)) for more in (("its device",), ())]
    console = Console(width=200)
    with console.capture() as captured:
        console.print(render(disks))
    assert [line for line in captured.get().splitlines() if "not seen" in line] == [
        "not seen: its device", "not seen: the guest",
    ]  # fmt: skip


def test_a_page_says_all_that_the_text_says(found: tuple[Diagnosis, ...]) -> None:
    thread = ThreadCost(role="iothread", name="IO iothread0", tid=1, seconds=10.0, cpu_seconds=5.0, user_seconds=4.0,
                        system_seconds=1.0, wait_seconds=0.2, sleeps=20_000)  # fmt: skip
    whole = replace(
        found[0], workload="randread-4k", rate="rate_iops=900",
        path=replace(found[0].path, threads=(thread,), iops=1000.0),
        found=replace(found[0].found, rounds=3, of=8), queue=HostQueue(queue_ns=30_000.0, device_ns=50_000.0),
        exits_per_io=2.5,
        guideline=walk(TUNING, {}),
    )  # fmt: skip
    idle = replace(thread, name="worker", role="worker", cpu_seconds=0.0, wait_seconds=0.0)
    crowd = replace(whole, path=replace(whole.path, threads=(thread, *[idle] * 64)))
    assert len(next(one for one in diagnosis_page([crowd]).tables if "threads" in one.caption).rows) == 1
    console = Console(width=10_000)
    with console.capture() as captured:
        console.print(render([whole]))
    text = " ".join(captured.get().split())
    told = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page_html(diagnosis_page([whole])))).split())
    assert whole.guideline is not None
    for words in (
        "of a request at the host's disk: 30 us in its queue, 50 us in the device",
        "KVM exits per I/O: 2.5", "in 3 of 8 rounds", "sleeps per I/O",
        "virtune compare --vary disk.aio=threads,native,io_uring --workload 'randread-4k'",
        "`,rate_iops=900` behind the workload", whole.guideline.guideline.title, whole.guideline.leaf.text,
        *(step.question.text for step in whole.guideline.steps),
    ):  # fmt: skip
        assert words in text, words
        assert words in told, words
    assert "Nothing was measured" not in told


def test_a_stored_study_s_diagnosis_is_written_as_a_page_and_as_text(
    place: Path, tmp_path: Path, found: tuple[Diagnosis, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["diagnose", "--run", COMPARE, "--store", str(place), "--report"]
    page, plain = tmp_path / "d.html", tmp_path / "d.txt"
    assert run([*words, str(page)]) == 0
    assert run([*words, str(plain)]) == 0
    assert f"report: {plain}" in capsys.readouterr().err
    for one in found:
        assert one.disk in page.read_text()
        assert one.found.evidence[0].split()[0] in plain.read_text()
    assert run([*words, str(tmp_path / "none" / "d.html")]) != 0
