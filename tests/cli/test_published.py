# SPDX-License-Identifier: Apache-2.0
"""What others published: complete, with its source, and compared with this host's measurements."""

from pathlib import Path

import pytest

from virtune.cli import run
from virtune.fio.workloads import parse_workload
from virtune.flows.reports.report import conditions_of, figures, published_study, service_levels
from virtune.flows.run.question import builtin, builtins
from virtune.model.errors import UsageError
from virtune.model.metric import BY_ID
from virtune.plan.goal import parse_conditions


def test_every_figure_says_its_conditions_and_its_source() -> None:
    assert [one.number for one in figures()] == list(range(1, 61))
    for one in figures():
        assert all(len(part) > 2 for part in (one.compares, one.result, one.conditions, one.source)), one


def test_the_authors_values_are_of_arms_workloads_and_metrics_that_there_are() -> None:
    for study in builtins():
        authors = published_study(study.name)
        assert authors is not None, study.name
        arms = {arm[0] for arm in builtin(study.name).plan.arms}
        workloads = [one.name for word in study.plan.workloads for one in parse_workload(word)]
        for one in authors.figures:
            assert one.metric in BY_ID
            assert not one.arm or one.arm in arms, one
            assert not one.of or one.of in arms, one
            assert any(name.startswith(one.workload) for name in workloads), one


def test_the_first_study_has_the_values_that_its_author_printed() -> None:
    authors = published_study("io-engine")
    assert authors is not None
    values = {(one.arm, one.metric): one.value for one in authors.figures}
    assert values["after", "iops"] / values["before", "iops"] == pytest.approx(1.1476, abs=1e-3)
    assert values["before", "bandwidth"] == pytest.approx(32.1 * 2**20, rel=1e-3)


def test_a_service_level_stands_for_its_conditions() -> None:
    assert conditions_of(("etcd-fsync", "iops < 5k")) == ("sync.p99 > 10ms", "iops < 5k")
    for level in service_levels():
        (condition, *_) = parse_conditions(level.conditions)
        assert condition.value is not None
        assert parse_workload(level.workload)
        assert level.source


def test_a_name_that_is_no_service_level_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(UsageError) as caught:
        conditions_of(("etcd-fsnc",))
    assert "etcd-fsync" in (caught.value.hint or "")


def test_a_service_level_decides_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--rig", "simulated", "--rounds", "6", "-q", "--store", str(tmp_path / "store.sqlite"))
    kept = run(["compare", "measure", *words, "--workload", "oltp-8k-70-30", "--fail-if", "vdi"])
    said = capsys.readouterr()
    assert kept == 0, said.err
    assert "latency.mean > 20ms" in said.out
    deep = "rw=randrw,bs=4k,iodepth=2048"  # 40,000 a second: 51 ms
    assert run(["compare", "measure", *words, "--workload", deep, "--fail-if", "vdi"]) == 4


def test_the_authors_percentiles_are_beside_ours_of_the_same_kind() -> None:
    authors = published_study("io-engine")
    assert authors is not None
    kinds = {one.metric.partition(".")[0] for one in authors.figures if ".p" in one.metric}
    assert kinds == {"clat"}, "fio prints those of clat unless it is told otherwise"


def test_a_study_ends_in_its_authors_values_beside_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--rig", "simulated", "--quick", "--rounds", "6", "-q", "--store", str(tmp_path / "store.sqlite"))
    assert run(["compare", "study", "run", "io-engine", *words]) == 0
    said = capsys.readouterr().out
    at = said.index("what the authors printed, and this host")
    row = next(line for line in said[at:].splitlines() if line.lstrip().startswith("before") and "IOPS" in line)
    assert "8,213" in row
    assert "published: a blog, 2025" in said[at:]
    assert "the figures here are invented" in said[at:]
    assert "by what is shown the new engine was not in use there (inferred;" in " ".join(said[at:].split())


def test_figures_are_found_by_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", "study", "figures", "IOThread", "QD1"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "46,424" in said
    assert run(["compare", "study", "figures", "zzz"]) == 2
    assert run(["compare", "study", "figures"]) == 0
    assert "etcd-fsync" in capsys.readouterr().out
