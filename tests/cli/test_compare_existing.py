# SPDX-License-Identifier: Apache-2.0
"""Comparing what exists already, with conditions: verdicts, exit codes, Markdown and JUnit, and what is refused."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped, TestSuite
from markdown_it import MarkdownIt
from tests.analyse.recordings import FOLDER
from tests.cli.kept_results import BENCH, Capture, Kept, result
from tests.guide import EXAMPLES
from tests.published import complaints, strictly

from virtune.analyse.trial.measure import differing, shape_of
from virtune.cli import run
from virtune.model.durability import Promise
from virtune.model.search import Goal, Search
from virtune.model.study import StudyKind
from virtune.model.workload import Job, Workload
from virtune.plan.goal import parse_condition
from virtune.report.markdown import FOLD, FOLD_END
from virtune.store.store import Store

MARKDOWN = MarkdownIt("gfm-like", {"linkify": False})


@pytest.fixture
def kept(tmp_path: Path, capsys: Capture) -> Kept:
    return Kept(tmp_path, capsys)


def repeats(folder: Path, name: str, *, speed: float, runs: int = 6, noise: float = 0.01, **changes: object) -> Path:
    """Runs of one job that a real result was made into: its count of I/Os is what is planted."""
    chance = Random(name)
    for number in range(1, runs + 1):
        scale = speed * (1 + chance.gauss(0, noise))
        result(folder / name, f"run-{number}.json", scale=scale, **dict(changes))
    return folder / name


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return repeats(tmp_path, "before", speed=1.0)


@pytest.fixture
def slower(tmp_path: Path) -> Path:
    return repeats(tmp_path, "slower", speed=0.9)


def outcomes(document: dict[str, Any]) -> list[str]:
    assert complaints("result", document) == []
    return [one["outcome"] for one in document["conditions"]]


def test_a_planted_tenth_breaches_what_it_breaches_and_holds_the_rest(kept: Kept, before: Path, slower: Path) -> None:
    words = ("compare", str(before), str(slower), "--json")
    found = strictly(kept(*words, "--fail-if", "iops < -3%", status=4))
    assert outcomes(found) == ["breached"]
    (verdict,) = found["comparisons"]
    assert (verdict["verdict"], verdict["rounds"]) == ("worse", 6)
    assert verdict["ratio"]["low"] < 0.9 < verdict["ratio"]["high"]
    assert found["study"]["paired"] is False
    assert outcomes(strictly(kept(*words, "--fail-if", "iops < -20%", status=0))) == ["held"]
    assert outcomes(strictly(kept(*words, "--fail-if", "iops < -10%", status=5))) == ["undecided"]
    both = ("--fail-if", "iops < -10%", "--fail-if", "iops < -3%")
    assert outcomes(strictly(kept(*words, *both, status=4))) == ["undecided", "breached"]
    assert outcomes(strictly(kept(*words, "--fail-if", "iops > +3%", status=0))) == ["held"]
    # the other way round a tenth slower is a ninth faster
    assert outcomes(strictly(kept("compare", str(slower), str(before), "--json", "--fail-if", "iops < -3%"))) == [
        "held"
    ]


def test_runs_appended_to_one_file_are_repeats_and_two_of_them_are_two_arms(
    kept: Kept, before: Path, slower: Path, tmp_path: Path
) -> None:
    files = []
    for folder in (before, slower):
        runs = sorted(folder.iterdir())
        files.append(tmp_path / f"{folder.name}.json")
        # each run as fio writes it when it begins after the one before
        parts = [json.loads(one.read_text()) for one in runs]
        for number, part in enumerate(parts):
            part["timestamp_ms"] += number * 60_000
        files[-1].write_text("\n".join(map(json.dumps, parts)))
    found = strictly(kept("compare", *map(str, files), "--json"))
    assert "6 runs, taken as repeats" in kept.err
    (verdict,) = found["comparisons"]
    assert (verdict["verdict"], verdict["rounds"]) == ("worse", 6)
    found = strictly(kept("compare", f"{files[0]}:2", f"{files[0]}:5", "--json"))
    assert [arm["name"] for arm in found["arms"]] == ["before.json:2", "before.json:5"]
    assert found["comparisons"][0]["rounds"] == 1
    kept("compare", str(files[0]), status=2)
    assert "FILE:1 FILE:2" in kept.err
    kept("explain", "import", *map(str, files), "--quiet")
    assert len(kept.document("last")["arms"][1]["rounds"]) == 6


def test_conditions_hold_together_so_their_intervals_are_wider(kept: Kept, before: Path, slower: Path) -> None:
    words = ("compare", str(before), str(slower), "--json", "--fail-if", "iops < -20%")
    one = strictly(kept(*words))["conditions"]
    two = strictly(kept(*words, "--fail-if", "latency.p99 > +50%", status=5))["conditions"]
    assert (one[0]["confidence"], two[0]["confidence"]) == (pytest.approx(0.95), pytest.approx(0.975))
    assert two[0]["low"] < one[0]["low"]
    assert "exactly the same value" in two[1]["why"]  # which the planted runs have in common


def test_one_run_each_shows_the_difference_and_is_undecided(kept: Kept) -> None:
    files = (str(FOLDER / "study1-before.txt"), str(FOLDER / "study1-after.txt"))
    shown = " ".join(kept("compare", *files, "-v", "--fail-if", "iops < -3%", status=5).split())
    assert "undecided, IOPS +14.8 % [too few runs to tell]; one run each cannot decide" in shown
    assert "iops < -3%: undecided for study1-after against study1-before" in shown
    assert "by the times in their files, order not known: the differences include" in shown


def test_a_condition_shows_no_interval_where_the_table_shows_none(kept: Kept, before: Path, tmp_path: Path) -> None:
    few = repeats(tmp_path, "few", speed=0.9, runs=3)
    shown = kept("compare", str(before), str(few), "-v", "--fail-if", "iops < -3%", status=5)
    assert shown.count("[too few runs to tell]") >= 2
    (_, condition) = shown.split("--fail-if conditions")
    assert "[too few runs to tell]" in " ".join(condition.split())


def test_an_interval_across_a_limit_is_narrowed_by_runs_where_there_are_no_rounds(
    kept: Kept, before: Path, slower: Path
) -> None:
    shown = " ".join(kept("compare", str(before), str(slower), "--fail-if", "iops < -10%", status=5).split())
    assert "the interval crosses the limit; more runs narrow it" in shown


def test_the_seed_of_a_run_is_no_other_option(kept: Kept) -> None:
    runs = [EXAMPLES / "before" / f"run-{number}.json" for number in (1, 2)]
    seeds = {json.loads(run.read_text())["jobs"][0]["job options"]["randseed"] for run in runs}
    assert len(seeds) == 2
    shown = kept("compare", *map(str, runs), "-v")
    assert "by the times in their files, one after the other: the differences include" in shown
    assert "randseed" not in shown


def test_other_jobs_are_refused_or_compared_with_a_warning(kept: Kept, tmp_path: Path) -> None:
    one = repeats(tmp_path, "one", speed=1.0)
    deep = repeats(tmp_path, "deep", speed=1.0, iodepth="64")
    kept("compare", str(one), str(deep), status=2)
    assert "job is not the same job in one and deep: iodepth is 8 and 64" in kept.err
    shown = " ".join(kept("compare", str(one), str(deep), "--different-jobs", "-v").split())
    assert "warning: the jobs differ, so a difference may be theirs" in shown
    assert "job: iodepth (one: 8, deep: 64)" in shown.replace("; ", ", ")
    engine = repeats(tmp_path, "engine", speed=1.0, ioengine="io_uring")
    shown = " ".join(kept("compare", str(one), str(engine), "-v").split())
    assert "the arms differ in other options: ioengine" in shown
    assert "warning:" not in shown
    assert "ioengine (one: libaio, engine: io_uring)" in " ".join(kept("compare", str(one), str(engine)).split())
    small = repeats(tmp_path, "small", speed=1.0, size="1M")
    shown = " ".join(kept("compare", str(one), str(small), "-v").split())
    assert "warning: the jobs differ, so a difference may be theirs and not the arms': size (one:" in shown


JOB = """[global]
ioengine=libaio
filename=disk
size=1M
rw=randread
bs=4k
iodepth={depth}
time_based=1
runtime=0.3
numjobs=3
[job]
"""


@pytest.mark.real
def test_options_that_a_job_file_has_for_all_jobs_are_those_of_each(kept: Kept, tmp_path: Path) -> None:
    for depth in (1, 4):
        job, out = tmp_path / f"{depth}.fio", tmp_path / f"{depth}.json"
        job.write_text(JOB.format(depth=depth))
        words = ["fio", str(job), "--output-format=json", f"--output={out}", "--disk_util=0"]
        subprocess.run(words, check=True, cwd=tmp_path, timeout=60)
        assert '"job options"' not in out.read_text(), "fio has them in `global options` alone"
    kept("compare", str(tmp_path / "1.json"), str(tmp_path / "4.json"), status=2)
    assert "iodepth is 1 and 4" in kept.err
    assert run(["explain", str(tmp_path / "4.json")]) == 0
    said = kept.capsys.readouterr().out
    assert "job: randread of 4 KiB by libaio, 3 jobs, depth 12 in all, buffered" in said, said


def test_how_long_each_run_took_by_itself_is_no_option(kept: Kept, tmp_path: Path) -> None:
    one, other = (repeats(tmp_path, name, speed=1.0, runtime="9") for name in ("one", "other"))
    for file in other.iterdir():
        document = json.loads(file.read_text())
        document["jobs"][0]["read"]["runtime"] += 2
        file.write_text(json.dumps(document))
    assert "differ in other options" not in kept("compare", str(one), str(other), "-v")


def test_workloads_match_by_name_and_what_only_one_has_is_left_out_and_said(kept: Kept, tmp_path: Path) -> None:
    for arm in ("a", "b"):
        result(tmp_path / arm, "reads.json", jobname="reads")
        result(tmp_path / arm, "more.json", jobname="more")
    result(tmp_path / "b", "alone.json", jobname="alone")
    shown = kept("compare", str(tmp_path / "a"), str(tmp_path / "b"), "-v")
    assert "left out: alone is not in all of them" in kept.err
    assert shown.count("one run each cannot decide") == 2
    named = result(tmp_path, "named.json", jobname="otherwise")
    kept("compare", str(tmp_path / "a" / "reads.json"), str(named))
    assert "compared with one another: otherwise, reads" in kept.err
    kept("compare", str(tmp_path / "a"), str(named), status=2)
    assert "no workload is in all of them" in kept.err
    assert "named has otherwise" in kept.err


def test_what_is_in_the_store_is_compared_too_and_arms_of_one_import_stay_unpaired(
    kept: Kept, tmp_path: Path, before: Path, slower: Path
) -> None:
    kept("explain", "import", str(before), str(slower), "--quiet")
    found = strictly(kept("compare", "last:before", "last:slower", "--json", "--fail-if", "iops < -3%", status=4))
    assert found["study"]["paired"] is False
    assert outcomes(found) == ["breached"]
    shown = strictly(kept("show", "last", "--json", "--fail-if", "iops < -3%", status=4))
    assert outcomes(shown) == ["breached"]
    mixed = strictly(kept("compare", str(before), "last:slower", "--json", "--fail-if", "iops < -3%", status=4))
    assert [arm["name"] for arm in mixed["arms"]] == ["before", "slower"]
    kept("compare", "last", str(before), status=2)
    assert "has 2 arms" in kept.err
    assert "last:before, last:slower" in kept.err
    first = strictly(kept("show", "last", "--json"))["study"]["id"]
    kept("explain", "import", str(before), str(slower), "--quiet")
    kept("compare", first, "last", status=2)
    for arm in ("before", "slower"):
        assert f"`virtune compare {first}:{arm} last:{arm}`" in " ".join(kept.err.split())
    kept("explain", "import", str(slower), str(before.rename(before.parent / "old")), "--quiet")
    kept("compare", first, "last", status=2)
    assert f"`virtune compare {first}:slower last:slower`" in " ".join(kept.err.split())
    assert ":before" not in kept.err, "which is not in both"
    before = (before.parent / "old").rename(before)
    kept("compare", "last:slower", "last:nobody", status=2)
    kept("compare", "nosuch", str(before), status=2)
    assert "no file, folder or study 'nosuch'" in kept.err
    kept("compare", str(before), status=2)
    kept("compare", str(before), str(slower), "--rounds", "3", status=2)
    assert "--rounds is for what is measured now" in kept.err


def test_another_name_of_a_run_is_not_another_run(kept: Kept, before: Path) -> None:
    runs = sorted(before.iterdir())
    link = before / "latest.json"
    link.symlink_to(runs[0].name)
    for other in (f"{runs[0]}:1", str(link), str(before)):
        kept("compare", str(runs[0]), other, status=2)
        assert "the same run is given twice" in kept.err, other
    assert f"{len(runs)} of {len(runs)} results" in kept("explain", "import", str(before)), (
        "a link is none of its own"
    )


def test_a_run_is_compared_with_another_one_only(kept: Kept, before: Path, slower: Path) -> None:
    kept("explain", "import", str(before), str(slower), "--quiet")
    for twice in (("last:before", "last:before"), ("last:before", "last:before", str(slower)), (str(slower),) * 2):
        kept("compare", *twice, status=2)
        assert "given twice" in kept.err
    with Store(kept.store) as store:
        study = store.find("last")
        kept("compare", "last:before", f"{study}:before", str(slower), status=2)
        assert "the same run is given twice" in kept.err
        record = store.get(study)
        store.add_study(replace(record.study, id="unrun"), facts="{}")
    for other in (str(slower), "last:slower"):
        kept("compare", "last:before", other, status=2)
        assert "has no trial of arm 'before' yet" in kept.err


def test_long_names_that_end_alike_stay_two_arms(kept: Kept, tmp_path: Path) -> None:
    long = "x" * 74
    files = [str(result(tmp_path / name, f"{long}.json")) for name in ("before", "after")]
    kept("explain", "import", *files, "--quiet")
    names = [arm["name"] for arm in kept.document("last")["arms"]]
    assert names == ["x" * 64, "x" * 62 + "~2"]
    assert [arm["name"] for arm in strictly(kept("compare", *files, "--json"))["arms"]] == names


def test_a_job_in_the_store_that_makes_no_sense_is_compared_as_far_as_it_does() -> None:
    odd = Workload(name="w", meaning="", jobs=(Job(name="j", options=(("iodepth", "abc"), ("bs", "9" * 500))),))
    plain = Workload(name="w", meaning="", jobs=(Job(name="j", options=(("rw", "read"), ("fsync", "0"))),))
    assert [name for name, _, _ in differing(shape_of(odd, complete=True), shape_of(plain, complete=True))] == ["bs"]
    assert differing(shape_of(odd, complete=False), shape_of(plain, complete=False)) == []


def test_a_plan_is_still_a_plan_and_a_result_alone_is_none(kept: Kept, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text("wrokload = 1\n")
    kept("compare", str(plan), status=2)
    assert "wrokload" in kept.err
    kept("compare", str(BENCH / "ssd/4k/randread-8-1.json"), status=2)
    assert "has nothing to be compared with" in kept.err
    kept("compare", str(tmp_path / "missing.toml"), status=2)
    assert "cannot read" in kept.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("latency.p9 > +5%", "did you mean `latency.p"),
        ("iosp < -3%", "did you mean `iops`?"),
        ("iops < 3%", "`iops < -3%`?"),
        ("iops < -100%", "could never fail"),
        ("iops -3%", "not a condition"),
        ("latency.p99 > 1", "is not a value"),
        ("latency.p99 > 1MB/s", "is not a value"),
        ("iops < 0", "a limit of 0"),
        ("latency.p99 > +1ms", "not a condition"),
        ("device.util > +5%", "is a share of time"),
        ("iops < -3..1%", "not a condition"),
        ("p98 > +3%", "no metric 'p98'"),
        ("iops < -.%", "not a condition"),
        ("\x1b[31m", "not a condition"),
    ],
)
def test_a_condition_that_cannot_be_read_is_said_before_anything_is_done(kept: Kept, text: str, said: str) -> None:
    kept("show", "--fail-if", text, status=2)
    assert said in kept.err
    assert "\x1b" not in kept.err


def test_conditions_are_written_again_as_they_are_meant() -> None:
    assert parse_condition(" latency.p99>+5 % ").text == "latency.p99 > +5%"
    found = parse_condition("iops < -2.5%")
    assert found.relation == "<"
    assert found.limit == pytest.approx(0.975)
    assert parse_condition("iops < 0%").limit == 1
    assert parse_condition("iops < -3%").limit == pytest.approx(0.97)
    assert parse_condition("iops > +3%").limit == pytest.approx(1.03)
    assert parse_condition("p99 > +5%").text == "latency.p99 > +5%"
    limit = parse_condition("LAT.p99 > 2 ms")
    assert (limit.metric, limit.text, limit.value, limit.limit) == ("latency.p99", "latency.p99 > 2ms", 2e6, 1.0)
    assert parse_condition("bw<200MB/s").value == 2e8
    assert parse_condition("write.iops < 5k").value == 5000


def test_junit_is_what_dashboards_read(kept: Kept, tmp_path: Path, before: Path, slower: Path) -> None:
    path = tmp_path / "junit.xml"
    conditions = [word for text in ("iops < -3%", "iops < -10%", "iops < -20%") for word in ("--fail-if", text)]
    kept("compare", str(before), str(slower), *conditions, "--junit", str(path), status=4)
    xml = JUnitXml.fromfile(str(path))
    (suite,) = list(xml)
    assert isinstance(suite, TestSuite)
    assert (suite.tests, suite.failures, suite.skipped, suite.errors) == (3, 1, 1, 0)
    cases = {case.name: case for case in suite}
    assert {case.classname for case in cases.values()} == {"job.slower"}
    (failure,) = cases["iops < -3%"].result
    assert isinstance(failure, Failure)
    assert not isinstance(failure, Error)
    assert "slower against before (job): IOPS -" in str(failure.message)
    (skipped,) = cases["iops < -10%"].result
    assert isinstance(skipped, Skipped)
    assert cases["iops < -20%"].result == []
    kept("show", "--junit", str(path), status=2)
    assert "--junit needs at least one --fail-if" in kept.err


def test_hostile_names_are_text_in_markdown_and_junit(kept: Kept, tmp_path: Path) -> None:
    name = "</td><script>|`*[x](http://evil)* @everyone ]]> & \x1b[31m\ud800 #1"
    one = repeats(tmp_path, "a|b <img>", speed=1.0, runs=2, jobname=name)
    other = repeats(tmp_path, "www.x.y", speed=0.9, runs=2, jobname=name)
    page, report = tmp_path / "page.md", tmp_path / "junit.xml"
    asked = ("--fail-if", "iops < -3%", "--markdown", str(page), "--junit", str(report))
    kept("compare", str(one), str(other), *asked, status=5)
    assert len(list(JUnitXml.fromfile(str(report)))) == 1
    tokens = MARKDOWN.parse(page.read_text())
    inline = [child for token in tokens for child in token.children or ()]
    kinds = {token.type for token in [*tokens, *inline]}
    assert not kinds & {"html_inline", "link_open", "image", "code_inline", "em_open"}
    assert [token.content.strip() for token in tokens if token.type == "html_block"] == [FOLD, FOLD_END]
    assert {"table_open", "bullet_list_open"} <= kinds
    shown = "".join(child.content for child in inline)
    assert "</td><script>|`*[x](http:" in shown
    assert "@everyone" not in shown  # a space without width stands in it
    assert "\x1b" not in page.read_text()
    rows = [row for row in page.read_text().splitlines() if row.startswith("| fails if")]
    assert len(rows) == 1


def test_markdown_on_stdout_stands_alone(kept: Kept, before: Path, slower: Path) -> None:
    page = kept("compare", str(before), str(slower), "--markdown", "-", "--fail-if", "iops < -3%", status=4)
    assert page.startswith("### FAILED: 1 of 1 condition breached\n\n**▼ slower measured worse than before, ")
    assert "**breached**" in page
    assert "slower measured worse than before, IOPS" in page.replace("\\", "")
    kept("compare", str(before), str(slower), "--markdown", "-", "--json", status=2)
    assert "both write to stdout" in kept.err
    kept("compare", str(before), str(slower), "--markdown", "/nowhere/x.md", status=3)
    assert json.dumps("cannot write /nowhere/x.md")[1:-1] in kept.err


def test_no_output_is_sure_of_runs_that_were_not_in_turn(
    kept: Kept, before: Path, slower: Path, tmp_path: Path
) -> None:
    """What changed between the runs is in no interval, so a verdict's confidence has a condition everywhere."""
    words = ("compare", str(before), str(slower), "--fail-if", "iops < -3%")
    pages = [tmp_path / "x.html", tmp_path / "x.txt", tmp_path / "x.md"]
    asked = ("--report", str(pages[0])), ("--report", str(pages[1])), ("--markdown", str(pages[2]))
    shown = [kept(*words, *more, status=4) for more in (*asked, ("-v",), ("--json",))]
    texts = [*(unescape(re.sub(r"<[^>]+>", "", page.read_text())) for page in pages), *shown]
    for text in (" ".join(one.split()) for one in texts):
        assert "confidence this verdict is right" not in text
        assert "with 95 % confidence all" not in text
    for text in (" ".join(one.split()) for one in texts[:-1]):
        assert "if nothing but the change differed between the runs" in text


def test_arms_of_a_search_are_not_compared_as_if_nobody_had_chosen_among_them(
    kept: Kept, before: Path, slower: Path
) -> None:
    kept("explain", "import", str(before), str(slower), "--quiet")
    asked = Search(goal=Goal(), mode="quick", promise=Promise.FLUSH, ranked=("before", "slower"))
    with Store(kept.store) as store:
        record = store.get(store.find("last"))
        store.replace_study(replace(record.study, kind=StudyKind.TUNE, paired=True, seconds=1.0, search=asked))
    for names in (("last:before", "last:slower"), ("last:before", str(slower))):
        kept("compare", *names, status=2)
        assert "is a search, which measured the better arms longer" in kept.err
        assert "`virtune show last` says how they stand" in kept.err


def kinds(folder: Path, name: str, *, speed: float, total: float | None = None, runs: int = 6) -> Path:
    """Runs with bins of completion latency, as most fio results have them, and of `total` times that where given."""
    chance = Random(name)
    for number in range(1, runs + 1):
        path = result(folder / name, f"run-{number}.json")
        document = json.loads(path.read_text())
        read = document["jobs"][0]["read"]
        for kind, factor in (("clat_ns", speed), ("lat_ns", None if total is None else speed * total)):
            read[kind].pop("percentile", None)
            if factor is not None:
                longer = factor * (1 + chance.gauss(0, 0.01))
                read[kind]["bins"] = {str(round(ns * longer)): 100 for ns in range(10_000, 110_000, 1000)}
        path.write_text(json.dumps(document))
    return folder / name


def test_completion_latency_stands_for_total_latency_and_says_so(kept: Kept, tmp_path: Path) -> None:
    fast, slow = (kinds(tmp_path, name, speed=speed) for name, speed in (("fast", 1.0), ("slow", 1.3)))
    words = ("compare", str(fast), str(slow), "--metric", "p99")
    found = strictly(kept(*words, "--json", "--fail-if", "latency.p99 > +5%", status=4))
    assert outcomes(found) == ["breached"]
    assert {one["measured_as"] for one in (*found["comparisons"], *found["conditions"])} == {"clat.p99"}
    assert {one["metric"] for one in found["comparisons"]} == {"latency.p99"}
    (workload,) = found["arms"][0]["workloads"]
    assert workload["values"]["latency.p99"]["measured_as"] == "clat.p99"
    assert workload["values"]["latency.mean"]["measured_as"] is None
    shown = kept(*words, "-v", "--fail-if", "latency.p99 > +5%", status=4)
    assert "verdicts on clat p99" in shown
    assert "latency p99" not in shown
    assert "latency mean" in shown
    assert "clat p99" in kept(*words, "--markdown", "-")


def test_two_kinds_of_latency_are_never_compared_with_one_another(kept: Kept, tmp_path: Path) -> None:
    """One of the arms has both kinds, and both arms are compared with one another by the kind that they share."""
    both, only = kinds(tmp_path, "both", speed=1.0, total=2.0), kinds(tmp_path, "only", speed=1.0)
    found = strictly(kept("compare", str(both), str(only), "--metric", "latency.p99", "--json"))
    (verdict,) = found["comparisons"]
    assert verdict["measured_as"] == "clat.p99"
    assert verdict["change"] == pytest.approx(1.0, abs=0.03)
    other = kinds(tmp_path, "other", speed=1.0, total=3.0)
    (verdict,) = strictly(kept("compare", str(both), str(other), "--metric", "latency.p99", "--json"))["comparisons"]
    assert verdict["measured_as"] is None
    assert verdict["change"] == pytest.approx(1.5, abs=0.03)


def test_an_absolute_limit_is_compared_with_every_arm(kept: Kept, before: Path, slower: Path) -> None:
    words = ("compare", str(before), str(slower), "--json")
    found = strictly(kept(*words))
    values = [arm["workloads"][0]["values"]["iops"]["value"] for arm in found["arms"]]
    between = round((values[0] + values[1]) / 2)
    held = strictly(kept(*words, "--fail-if", f"iops < {between}", status=4))
    assert complaints("result", held) == []
    assert [(one["candidate"], one["outcome"]) for one in held["conditions"]] == [
        ("before", "held"), ("slower", "breached"),
    ]  # fmt: skip
    assert {(one["limit"], one["value"], one["baseline"]) for one in held["conditions"]} == {(None, between, None)}
    assert outcomes(strictly(kept(*words, "--fail-if", f"iops > {round(values[0])}", status=5)))[0] == "undecided"
    shown = " ".join(kept("compare", str(before), str(slower), "--fail-if", f"iops < {between}", status=4).split())
    assert f"iops < {between}: breached for slower (job): IOPS" in shown
    assert "slower against" not in shown.partition("--fail-if conditions")[2]
    one = kept(
        "compare", *(str(folder / "run-1.json") for folder in (before, slower)), "--fail-if", "iops < 1", status=5
    )
    assert "1 run; 4 are the minimum for a verdict" in " ".join(one.split())


def test_a_percentile_that_too_few_ios_lie_beyond_says_how_many_it_needs(kept: Kept, tmp_path: Path) -> None:
    folders = [repeats(tmp_path, name, speed=1.0) for name in ("one", "two")]
    for path in (path for folder in folders for path in folder.iterdir()):
        document = json.loads(path.read_text())
        clat = document["jobs"][0]["read"]["clat_ns"]
        clat["bins"] = {"1000": 300, "2000": 100}
        path.write_text(json.dumps(document))
    shown = " ".join(kept("compare", *map(str, folders), "--fail-if", "latency.p99 > +5%", status=5).split())
    assert "p99 needs 2,000 I/Os a run, and these have 400 at most: let each run 5 times as long (--seconds," in shown


def test_percentiles_of_results_without_distributions_are_shown_as_those_of_the_middle_one(kept: Kept) -> None:
    """A condition on p99 was judged, and the table above it had no p99 at all: fio's JSON has no bins to add."""
    folders = [EXAMPLES / name for name in ("before", "after")]
    (arm, _) = strictly(kept("compare", *map(str, folders), "--json"))["arms"]
    value = arm["workloads"][0]["values"]["latency.p99"]
    each = [json.loads(path.read_text())["jobs"][0]["read"]["lat_ns"] for path in folders[0].iterdir()]
    assert value["value"] == median(one["percentile"]["99.000000"] for one in each)
    assert (value["rounds"], value["resolved"], value["low"]) == (len(each), False, None)
    assert "| latency p99 | ~" in kept("compare", *map(str, folders), "--markdown", "-")


def test_copies_of_one_arm_do_not_count(kept: Kept, tmp_path: Path) -> None:
    arms = [repeats(tmp_path, "one", speed=1.0), repeats(tmp_path, "two", speed=0.5)]
    for arm in arms:
        first, second, *rest = sorted(arm.iterdir())
        for one in rest:
            one.unlink()
        for number, one in enumerate((first, second)):
            shutil.copy(one, arm / f"copy-{number}.json")
    ran = kept("compare", *map(str, arms))
    assert "4 of 8 runs count" in ran
    assert "undecided" in ran


def test_copies_are_no_second_run(kept: Kept, before: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(before, copy)
    words = ("compare", str(before), str(copy))
    found = strictly(kept(*words, "--json"))
    remarks = [one for arm in found["arms"] for one in arm["workloads"][0]["remarks"] if one["id"] == "copy"]
    assert [one["rounds"] for one in remarks] == [6]
    assert "byte for byte the same" in " ".join(kept(*words, "-v").split())
    assert "copy" not in json.dumps(
        [
            one["id"]
            for one in strictly(kept("compare", str(before), str(repeats(tmp_path, "other", speed=1.0)), "--json"))[
                "arms"
            ][0]["workloads"][0]["remarks"]
        ]
    )


def test_an_import_of_different_jobs_says_how_they_are_compared(kept: Kept, tmp_path: Path) -> None:
    files = [result(tmp_path / name, "run.json", iodepth=depth) for name, depth in (("before", "8"), ("after", "32"))]
    kept("explain", "import", *map(str, files))
    assert "no two arms ran the same job (iodepth is 8 and 32)" in kept.err
    assert "--different-jobs" in kept.err
    same = [result(tmp_path / name, "run.json", iodepth="8") for name in ("b", "a")]
    kept("explain", "import", *map(str, same))
    assert "--different-jobs" not in kept.err


def test_one_run_far_from_seven_leaves_it_undecided_by_the_runs_that_were_named(kept: Kept, tmp_path: Path) -> None:
    for number in range(8):
        result(tmp_path / "before", f"{number}.json", scale=1.0 + number / 1000)
        result(tmp_path / "after", f"{number}.json", scale=0.3 if number == 4 else 0.98 - number / 1000)
    said = kept("compare", str(tmp_path / "before"), str(tmp_path / "after"))
    assert "the runs are too few, or lie too far apart, to tell it from chance" in " ".join(said.split())
