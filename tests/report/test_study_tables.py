# SPDX-License-Identifier: Apache-2.0
"""The studies' own tables: what stands in them, and what their words rest on."""

import re
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from virtune.analyse.study.summarise import summarise
from virtune.cli import run
from virtune.flows.reports.report import page_html, published_study
from virtune.report.html.page import page_of
from virtune.report.pages.builtin import ending as study_ending
from virtune.report.pages.builtin import sign_probability
from virtune.store.store import Store


def ending(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    words = ("--rig", "simulated", "--quick", "--rounds", "6", "--seed", "7", "-q")
    assert run(["compare", "study", "run", name, *words, *more, "--store", str(tmp_path / "store.sqlite")]) == 0
    return capsys.readouterr().out.partition(f"study {name}")[2]


@pytest.fixture(scope="module")
def single_operations(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What a study of 18 arms and 144 pairs says at its end, and its store."""
    place, said = tmp_path_factory.mktemp("operations") / "store.sqlite", StringIO()
    words = ("--rig", "simulated", "--rounds", "1", "--seconds", "1", "--seed", "7", "-q", "--store", str(place))
    with redirect_stdout(said):
        assert run(["compare", "study", "run", "vmm-latency", *words]) == 0
    return said.getvalue().partition("study vmm-latency")[2], place


def test_a_sign_test_has_the_chances_of_a_coin() -> None:
    assert sign_probability(6, 6) == pytest.approx(2 / 64)
    assert sign_probability(0, 6) == sign_probability(6, 6)
    assert sign_probability(8, 12) == pytest.approx(0.3877, abs=1e-4)
    assert sign_probability(3, 6) == 1.0
    assert sign_probability(0, 0) == 1.0


def test_values_beside_differences_and_authors_ratios_agree_with_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ending("nvme-scaling", tmp_path, capsys, "--rig", "simulated:dipping", "--rounds", "7", "--seed", "3")
    reads, _, after = said.partition("randwrite")
    iops = {row[0]: float(row[1].rstrip("k")) for row in map(str.split, reads.splitlines()) if row[2:4][-1:] == ["x"]}
    ratio = dict(re.findall(r"^(\S+) +\S+k +([\d.]+) x \[", reads, re.MULTILINE))
    assert set(ratio) == {"1-fio-per-VM", "N-fio-per-VM", "N-fio-per-VM-iothread"}
    for arm, told in ratio.items():
        assert iops[arm] / iops["bare"] == pytest.approx(float(told), abs=0.01)
    here = dict(re.findall(r"^(\S+) +randread-4k-numjobs-2 +IOPS by bare +\S+ x +(\S+) x", after, re.MULTILINE))
    assert here == {arm: told for arm, told in ratio.items() if arm in here} != {}
    assert "loaded by simulated" in after.partition("here: ")[2].partition("differs")[0], "not by the host's fio"


def test_a_difference_of_counts_is_a_count_and_of_shares_in_points(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {line[:26].strip(): line for line in ending("io-engine", tmp_path, capsys).splitlines()}
    assert re.search(r" \+[\d.,]+k?$", rows["context switches a second"].rstrip())
    assert rows["load CPU sys"].rstrip().endswith(" points")


def test_datapath_shows_reads_and_writes_and_engine_and_iothread_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ending("datapath", tmp_path, capsys)
    assert said.index("randread-4k") < said.index("randwrite-4k")
    arms = {line.split()[0] for line in said.splitlines() if line and not line.startswith(" ")}
    assert arms >= {"bare", "native", "native-IOThread", "io_uring-main-loop", "io_uring", "io_uring-pinned"}
    native = said.partition("\nnative-IOThread")[2]  # a row, or a list of its own where the table is too wide
    assert "+1" in native.split("[")[0], "an IOThread alone is worth 15 % on this disk"
    assert "410k" in said, "what the author printed of polling"


def test_datapath_counts_the_context_switches_of_all_threads_of_qemu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ending("datapath", tmp_path, capsys, "--rounds", "1")
    with Store(tmp_path / "store.sqlite") as store:
        record = store.get(store.find("last"))
    more = (("switches.io.vcpu", 0.5), ("switches.io.iothread", 1.5), ("switches.io.load", 9.0), ("iops", 20_000.0))
    trials = tuple(
        replace(one, measurement=replace(one.measurement, values=more)) for one in record.trials if one.measurement
    )
    result = summarise(replace(record, trials=trials, attempts=()))
    console = Console(width=200, file=(said := StringIO()))
    for part in study_ending(result):
        console.print(part)
    rows = [line for line in said.getvalue().splitlines() if line.startswith("io_uring-pinned") and "40.0k" in line]
    assert rows
    assert all(row.split()[-7:-1].count("40.0k") == 1 for row in rows), "two an I/O; those of the load are not QEMU's"


def test_scaling_shows_its_parts_of_bare_metal_with_intervals_and_at_every_offered_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ending("nvme-scaling", tmp_path, capsys)
    assert "N-fio-per-VM-passthrough is left out: a simulation has no drives" in said
    rows = [line for line in said.splitlines() if line.startswith("N-fio-per-VM-iothread")]
    assert all(" x [" in row for row in rows[:2])
    loads = ending("nvme-scaling", tmp_path, capsys, "--at-load", "50%,150%,150iops")
    assert "offered at" in loads
    beside = loads.partition("what the authors printed")[2]
    assert "at-150pct" in beside, "what was carried at most stands beside what the authors' machine carried"
    assert "at-50pct" not in beside
    assert "50 % of the baseline's saturation" in " ".join(loads.split())


@pytest.mark.xdist_group("single operations")
def test_single_operations_are_judged_by_a_test_and_not_by_a_count(single_operations: tuple[str, Path]) -> None:
    lines, _ = single_operations
    assert lines.count("undecided") <= 2, "a log has the study's own table, and not a line for each of 144 pairs"
    said = " ".join(lines.split())
    assert "bare: maximum higher beside the most background load in 6 of 6 kinds of I/O (sign test: p = 0.03)" in said
    assert "virtio is faster in the mean than the emulated disk in 18 of 18 cells (sign test: p < 0.01)" in said
    _, found, rest = said.partition("one vCPU is faster in the mean than two in ")
    assert found
    assert "so chance may do it" in rest[:80], "vCPUs change nothing on this disk"


@pytest.mark.xdist_group("single operations")
def test_the_page_of_a_study_begins_with_its_own_table_and_pictures(single_operations: tuple[str, Path]) -> None:
    _, place = single_operations
    with Store(place) as store:
        record = store.get(store.find("last"))
    result, authors = summarise(record), published_study("vmm-latency")
    page = page_of(result, record, published=authors)
    assert page.question == record.study.title
    table = page.own[0].table
    assert table is not None
    assert table.titles == ("", *(arm.name for arm in record.study.arms))
    assert len(table.rows) == 18
    assert any("Okayama" in line for block in page.own for line in block.lines)
    assert page.foremost_pictures == ("extents-load-0", "extents-load-2", "extents-load-4")
    assert len(page.further_pictures) > 18
    text = page_html(replace(page, charts=()))
    places = [text.index(f'id="{name}"') for name in ("study", "pictures", "verdicts", "settings")]
    assert places == sorted(places)
    assert page.counts == "144 verdicts: 144 undecided"
    shown, _, folded = text[places[2] :].partition("<details>")
    assert (shown.count("<li"), folded.partition("</details>")[0].count("<li")) == (0, 144)


def test_engines_have_extremes_and_a_word_on_what_each_is_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ending("fio-engines", tmp_path, capsys, "--rounds", "1")
    rows = {line.split()[0] + " " + line.split()[1] for line in said.splitlines() if line.startswith("lat ")}
    assert rows >= {"lat min", "lat max", "lat p99.95"}
    assert "splice: moves pages through a pipe" in said
