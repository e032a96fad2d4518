# SPDX-License-Identifier: Apache-2.0
"""The list of studies on a narrow terminal, and a check of invented figures."""

import gzip
from pathlib import Path

import pytest

from virtune.cli import run
from virtune.model.evidence import Listed
from virtune.report.pages.study import listing
from virtune.report.render.terminal import set_at
from virtune.store.store import Store

KEPT = Path(__file__).parents[1] / "store" / "data" / "older-method.sqlite.gz"


def listed(place: Path, width: int) -> list[str]:
    with Store(place, reading=True) as store:
        return set_at(width, listing(store.list(), store=str(place))).splitlines()


def test_a_terminal_of_80_columns_has_a_line_for_each_study(tmp_path: Path) -> None:
    place = tmp_path / "before.sqlite"
    place.write_bytes(gzip.decompress(KEPT.read_bytes()))
    wide, narrow = listed(place, 140), listed(place, 80)
    assert "created" in wide[0].split()
    assert narrow[0].split() == ["study", "kind", "arms", "workloads", "trials"]
    with Store(place, reading=True) as store:
        for one in store.list():
            assert isinstance(one, Listed)
            (line,) = (line for line in narrow if line.startswith(one.study.id))
            assert line.rstrip()[-1].isdigit(), "its trials stand in the same line"


def test_a_sweep_is_listed_with_its_workload_and_not_with_every_load(tmp_path: Path) -> None:
    place = tmp_path / "store.sqlite"
    words = ("--seconds", "1", "--rounds", "1", "--rig", "simulated", "--seed", "1", "-q", "--store", str(place))
    assert run(["sweep", "--loads", "9000iops,20000iops,60000iops", *words]) == 0
    said = "\n".join(listed(place, 140))
    assert "randread-4k at 3 loads" in said
    assert "9000iops" not in said


def test_a_check_of_a_simulated_disk_does_not_call_this_host_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ("--store", str(tmp_path / "store.sqlite"))
    assert run(["host", "check", "--rig", "simulated", "--seconds", "10s", "--seed", "1", "-q", *place]) == 0
    said = capsys.readouterr().out
    assert said.startswith("SIMULATED, and not this host: ")
    assert len(said.splitlines()) <= 12
