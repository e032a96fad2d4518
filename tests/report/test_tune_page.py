# SPDX-License-Identifier: Apache-2.0
"""What a search says on a page: only what happened."""

import html
import itertools
import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType
from tests.analyse.search_worlds import World, searched, study_of
from tests.probe.machines import unpack
from tests.published import complaints, invalid_variants, validator

from virtune.analyse.search.tuning import tuning
from virtune.analyse.study.host_rules import judge_host
from virtune.cli.common.options import read_options
from virtune.cli.tune import tune as command
from virtune.flows.reports.render import spelled
from virtune.flows.reports.report import page_html
from virtune.flows.run.tune import study_for
from virtune.model.evidence import Changeover, InForce, TrialRecord
from virtune.model.reason import Reason
from virtune.model.remark import Remark, Weight
from virtune.model.search import Removed
from virtune.model.study import Trial
from virtune.model.study_options import StudyOptions
from virtune.model.tuning import Recommendation, Spelled, Tuning
from virtune.plan.codec import study_from_json, study_to_json
from virtune.plan.space import HostSupport
from virtune.probe.host import host_facts
from virtune.report.charts.tradeoff import pareto, race
from virtune.report.html.page import search_page
from virtune.report.json.host import probe_document
from virtune.report.json.tune import tuning_document
from virtune.report.markdown import tuning_markdown
from virtune.report.pages.brief import of_search
from virtune.report.pages.tune import arms_table, render, runner_rows, short_names
from virtune.report.pages.whole import plain_search
from virtune.report.reproduce import tune_again

RATES = {"base": 40_000.0, "fast": 80_000.0}


class Started(World):
    """Says in which process each trial ran."""

    def __init__(self, process: Callable[[], int | None]) -> None:
        super().__init__(RATES, noise=0.01)
        self.process = process

    def run(self, trial: Trial) -> TrialRecord:
        process = self.process()
        change = None if process is None else Changeover(swapped=None, seconds=0.1, process=process, why="made up")
        return replace(super().run(trial), in_force=InForce(changeover=change))


def page(known: Tuning) -> str:
    return shown(render(known))


def shown(part: RenderableType) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(part)
    return captured.get()


@pytest.mark.parametrize(
    ("process", "said", "count"),
    [
        (itertools.count(1).__next__, "6 new processes each", 6),
        (lambda: 4711, "6 new disks each, in one process", 1),
        (itertools.cycle([1, 1, 2, 2]).__next__, "6 new disks each, in 2 processes", 2),
        (lambda: None, "6 starts each", None),
    ],
)
def test_starts_are_called_what_they_were(process: Callable[[], int | None], said: str, count: int | None) -> None:
    found, _ = searched(study_of(list(RATES)), Started(process))
    assert found.confirmation is not None
    assert found.confirmation.processes == count
    text = page(found)
    assert said in text
    assert "restarts" not in text
    assert ("new processes" in text) == (count == 6)


def test_that_the_best_is_not_known_is_said_as_long_as_another_may_be_better() -> None:
    close = {"base": 40_000.0, "one": 80_000.0, "other": 79_000.0, "third": 80_500.0}
    noisy, _ = searched(study_of(list(close), budget_seconds=60.0), World(close, noise=0.2))
    assert noisy.finished
    assert "IOPS in the table: over all slices" in page(noisy), "values may differ by something else than is told"
    assert set(noisy.rivals) >= {"one", "other", "third"} - {noisy.standing.leader}
    said = "the best is undecided: " + ", ".join(noisy.rivals) + " may be better by more than 3.0 %"
    assert said in " ".join(page(noisy).split())
    sure, _ = searched(study_of(list(RATES)), World(RATES, noise=0.01))
    assert (sure.standing.certified, sure.rivals) == (True, ())
    assert "is undecided" not in page(sure)


HOST = HostSupport(answers={}, io_uring=True, cpus=4, memory_bytes=8 * 1024**3)


def asked_by(line: str) -> StudyOptions:
    """What a command line asks, by the program's own options."""
    words = shlex.split(line)
    assert words[:2] == ["virtune", "tune"]
    return read_options("tune", command.make_context("tune", words[2:]).params)


@pytest.mark.parametrize(
    "line",
    [
        "virtune tune",
        "virtune tune --vary disk.aio=threads,native --vary disk.format --fix disk.cache=none --seed 7",
        "virtune tune --rig vhost-user --minimize latency.p99 --mode certify --budget 10m --margin 0.05",
        "virtune tune --rig qemu --vary device.num_queues=1,2 --fix device.bus=virtio-blk --seconds 3 --span 64M",
        "virtune tune --workload rw=randwrite,bs=8k --soak 90s --confirm 8 --ramp 1 --confirm-seconds 2500ms",
        "virtune tune --baseline disk.aio=native,disk.cache=none --subject-to 'latency.p99<=1ms' --durability flush",
        "virtune tune --durability every-write --spread 5s --workload randread-4k --workload randwrite-4k",
    ],
)
def test_the_command_that_it_gives_searches_the_same_again(line: str) -> None:
    first = study_for(asked_by(line), lambda _: HOST)
    again = study_for(asked_by(tune_again(first)), lambda _: HOST)
    # a setting that was chosen by default is said at its place, and what is fixed before what varies
    meant = [[(arm.name, arm.stack, dict(arm.settings)) for arm in study.arms] for study in (first, again)]
    assert meant[0] == meant[1]
    assert again.search == first.search
    kept = ("baseline", "workloads", "seconds", "ramp_seconds", "seed", "scratch", "span_bytes", "metric", "margin")
    assert [getattr(again, name) for name in kept] == [getattr(first, name) for name in kept]


def test_a_search_that_does_not_know_what_was_asked_names_the_values_that_it_had() -> None:
    first = study_for(asked_by("virtune tune --vary disk.aio --vary disk.format=raw,qcow2"), lambda _: HOST)
    assert first.search is not None
    old = replace(first, search=replace(first.search, vary=None))
    again = study_for(asked_by(tune_again(old)), lambda _: HOST)
    assert again.arms == first.arms


def test_the_document_has_the_host_the_jobs_and_the_disturbed_trials_of_each_arm(tmp_path: Path) -> None:
    found, record = searched(study_of(list(RATES)), World(RATES, noise=0.01))
    remark = Remark(id="steal", weight=Weight.INVALID, text="others were at work")
    gone = [replace(one, measurement=replace(one.measurement, remarks=(remark,))) for one in record.trials[-2:]
            if one.measurement]  # fmt: skip
    failed = replace(record.trials[0], measurement=None, failure="made up")
    attempts = (failed, *gone, *(replace(one, attempt=2) for one in record.trials))
    known = tuning(replace(record, attempts=attempts))
    host = host_facts("/var/tmp/virtune", unpack("small-vm", tmp_path))
    facts = json.dumps(probe_document(host, judge_host(host)))
    document = json.loads(json.dumps(tuning_document(known, facts)))
    assert complaints("tune", document) == []
    assert (document["recommendation"], document["reason"]) == (known.recommendation, known.why.reason)
    judge, bare = validator("tune"), document | {"facts": None}
    assert [what for what, changed in invalid_variants(bare) if judge.is_valid(changed)] == []
    assert document["facts"] == json.loads(facts)
    assert document["study"]["jobs"] == [{"workload": "reads", "name": "reads", "options": {"rw": "randread"}}]
    assert document["basis"]["command"].startswith("virtune tune ")
    arms = {arm["name"]: arm for arm in document["arms"]}
    assert arms["base"]["failed"] == 1
    assert {name: arm["invalid"] for name, arm in arms.items()} == {name: {"steal": 1} for name in ("base", "fast")}
    assert sum(arm["attempts"] for arm in arms.values()) == len(attempts)
    assert "disturbed trials of base: CPU steal 1, failed 1, of " in page(known)
    assert "disturbed trials of" not in page(found)


NAMED = tuple(
    f"aio={aio}+cache=none+iothread={thread}" for aio in ("threads", "native", "io_uring") for thread in ("on", "off")
)


def at(known: Tuning, width: int) -> list[str]:
    console = Console(width=width, no_color=True)
    with console.capture() as captured:
        console.print(arms_table(known), crop=False)
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160])
def test_every_arm_can_be_told_from_the_others_and_keeps_its_interval(width: int) -> None:
    rates = {name: 40_000.0 + 4_000.0 * number for number, name in enumerate(NAMED)}
    found, _ = searched(study_of(list(rates)), World(rates, noise=0.01))
    lines = at(found, width)
    assert all(len(line) <= width for line in lines)
    assert "\u2026" not in "\n".join(lines)
    for name in NAMED:
        told = [line for line in lines if name.replace("+cache=none", "") in line.split()]
        assert len(told) == 1, name
    assert "the same in all of these: cache=none" in lines
    assert sum("leads" in line for line in lines) == 1
    assert sum(line.count(" % [") for line in lines) == len(NAMED) - 1
    assert any("●" in line for line in lines) == (width >= 80)


def test_names_that_share_nothing_and_a_lone_name_stay() -> None:
    assert short_names(["a=1+b=2", "a=1+b=3", "baseline"]) == (["b=2", "b=3", "baseline"], "a=1")
    assert short_names(["a=1", "b=3"]) == (["a=1", "b=3"], "")
    assert short_names(["baseline", "a=1"]) == (["baseline", "a=1"], "")
    assert short_names(["a=1+b=2", "a=1"]) == (["b=2", "a=1"], "a=1")


def test_a_search_has_a_page_in_markdown() -> None:
    found, _ = searched(study_of(list(RATES)), World(RATES, noise=0.01))
    text = tuning_markdown(
        found, "", [Spelled(program="libvirt", title="libvirt domain XML", text="<disk/>", notes=("a note",))]
    )
    assert text.startswith("### virtune: change to fast: ")
    for part in (
        "* winner  fast  IOPS ",
        "```text\n<disk/>\n```",
        "* a note",
        "virtune tune ",
        "* host not recorded",
    ):
        assert part in text, part


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("said", list(Recommendation))
def test_only_what_is_recommended_has_won(said: Recommendation, *, finished: bool) -> None:
    """While it is undecided nobody has, in every output, and there are no settings to copy."""
    found, kept = searched(study_of(list(RATES)), World(RATES, noise=0.01))
    known = replace(found, recommendation=said, finished=finished)
    lines = spelled(known)
    written: tuple[str, ...] = (page(known), shown(of_search(known, "")), tuning_markdown(known, "", lines),
               shown(plain_search(known, "", lines)),
               html.unescape(page_html(search_page(known, kept))))  # fmt: skip
    won = finished and said is not Recommendation.UNDECIDED
    for text in written:
        assert bool(re.search(r"winner\s+fast", text)) is won
        assert bool(re.search(r"ahead so far\s+fast", text)) is not won
        assert bool(re.search(r"settings\s+the rig's", text)) is won
        assert re.search(r"baseline\s+base: the rig's", text)
        assert ("<driver " in text and "-blockdev" in text) is (won and text in written[2:4])
    assert bool(spelled(known)) is won


def test_what_a_search_leaves_out_is_in_its_document_with_the_code_of_the_reason() -> None:
    found, _ = searched(study_of(list(RATES)), World(RATES, noise=0.01))
    assert found.study.search is not None
    left = (Removed(what="disk.aio=io_uring", count=None, why="it is missing", reason=Reason.NOT_SUPPORTED),)
    study = study_from_json(study_to_json(replace(found.study, search=replace(found.study.search, removed=left))))
    document = json.loads(json.dumps(tuning_document(replace(found, study=study), "")))
    assert complaints("tune", document) == []
    assert [one["reason"] for one in document["study"]["removed"]] == [Reason.NOT_SUPPORTED]


def test_the_picture_of_speed_and_cost_has_the_intervals_of_the_race() -> None:
    rates = {"base": 40_000.0, "near": 39_000.0, "fast": 41_000.0}
    known, kept = searched(study_of(list(rates)), World(rates, noise=0.05))
    chart = pareto(known, kept)
    assert chart is not None
    rows = {row["arm"]: row for row in chart.spec["data"]["values"]}
    leader = known.standing.leader
    assert leader is not None
    ratios = {arm: ratio for arm, _, _, ratio in runner_rows(known) if ratio is not None}
    assert ratios
    for arm, ratio in ratios.items():
        assert rows[arm]["iops_low"] == pytest.approx(rows[leader]["iops"] * ratio.low)
    assert "iops_low" not in rows[leader]
    assert f"intervals of the differences from {leader}" in chart.reading


def test_names_at_the_ends_of_a_race_do_not_cover_one_another() -> None:
    rates = {"base": 40_000.0, "near": 40_010.0, "same": 40_020.0}
    chart = race(*searched(study_of(list(rates)), World(rates, noise=0.05)))
    assert chart is not None
    ratios = [row["ratio"] for row in chart.spec["data"]["values"]]
    ends = chart.spec["layer"][-1]["data"]["values"]
    assert len(ends) == 3
    for one, other in itertools.combinations(ends, 2):
        if one["block"] == other["block"]:
            assert abs(one["label"] - other["label"]) >= 0.049 * (max(ratios) - min(ratios))
