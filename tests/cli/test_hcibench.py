# SPDX-License-Identifier: Apache-2.0
"""HCIBench's folders, one file a VM: VMs that ran at the same time are one run, and several runs are repeats."""

import json
import re
from pathlib import Path

import pytest
from tests.analyse.vdbench_reports import RUN, as_table
from tests.cli.kept_results import Capture, Kept, result

LATENCIES = (0.5, 1.0, 2.0)
"""Of three VMs, in ms."""


@pytest.fixture
def kept(tmp_path: Path, capsys: Capture) -> Kept:
    return Kept(tmp_path, capsys)


def run_of(folder: Path, *, more: float = 1.0, vms: int = 3) -> Path:
    """Write what HCIBench leaves of a run of Vdbench: a file a VM, the workload, its configuration, a summary."""
    folder.mkdir(parents=True)
    for vm, latency in enumerate(LATENCIES[:vms]):
        resp = {"read": latency / more, "write": latency / more}
        text = as_table(RUN | {"rate": 8000 * more / latency, "resp": resp})
        (folder / f"hci-vdb-datastore-2004-0-{vm + 1}.txt").write_text(text)
    (folder / "vdbench.cfg").write_text("wd=wd1,sd=(sd*),xfersize=(4096,100),rdpct=70,seekpct=100\n")
    (folder / "hcibench.cfg").write_text("tool: vdbench\nnumber_vm: 3\n")
    folder.with_name(f"{folder.name}-res.txt").write_text("VMs\t\t= 3\nIOPS\t\t= 28000.0 IO/S\n")
    return folder


def test_vms_are_one_run_whose_rates_add_up_and_whose_latency_is_that_of_all_ios(kept: Kept, tmp_path: Path) -> None:
    kept("explain", "import", str(run_of(tmp_path / "4k-1600000000")))
    assert "3 VMs of HCIBench, which ran at the same time, are one run" in kept.err
    (arm,) = kept.document("last")["arms"]
    (trial,) = arm["rounds"]
    values = trial["measurement"]["values"]
    rates = [8000 / latency for latency in LATENCIES]
    assert values["iops"] == pytest.approx(sum(rates), rel=1e-4)
    assert values["bandwidth"] == pytest.approx(sum(rates) * 4096, rel=1e-4)
    # HCIBench's own summary has the mean of the three means, 1.17 ms; there were twice as many fast I/Os
    assert values["latency.mean"] == pytest.approx(1e6 * 3 * 8000 / sum(rates), rel=1e-3)
    assert "latency.p99" not in {name for name, value in values.items() if value is not None}
    each = kept("explain", "last")
    assert all(f"(trial 1, VM {vm})" in each for vm in (1, 2, 3))


def test_runs_of_one_load_are_repeats_and_both_sides_are_compared(kept: Kept, tmp_path: Path) -> None:
    for side, more in (("before", 1.0), ("after", 1.5)):
        for number in range(4):
            run_of(tmp_path / side / f"4k-160000000{number}", more=more * (1 + number / 500))
    said = kept("compare", str(tmp_path / "before"), str(tmp_path / "after"))
    assert re.search(r"after +better +\+(?:49\.\d|50\.\d) %", said), said
    kept("explain", "import", str(tmp_path / "before"))
    assert kept.err.count("3 VMs of HCIBench") == 4
    (arm,) = kept.document("last")["arms"]
    assert len(arm["rounds"]) == 4


def test_a_side_of_fewer_vms_did_not_have_the_same_load(kept: Kept, tmp_path: Path) -> None:
    sides = [str(run_of(tmp_path / name, vms=vms).parent / name) for name, vms in (("before", 3), ("after", 2))]
    kept("compare", *sides, status=2)
    assert "numjobs is 3 and 2" in kept.err


def test_a_vm_that_did_not_come_to_its_end_is_left_out_and_said(kept: Kept, tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run")
    cut = folder / "hci-vdb-datastore-2004-0-2.txt"
    cut.write_text(cut.read_text().partition("avg_2-30")[0])
    kept("explain", "import", str(folder))
    assert re.search(r"left out .*: this Vdbench result ends before the average of run run1", kept.err)
    assert "2 VMs of HCIBench" in kept.err


def test_vms_that_ran_fio_are_one_run_too_and_those_elsewhere_are_said_to_be_none(kept: Kept, tmp_path: Path) -> None:
    for vm in range(3):
        result(tmp_path / "run", f"hci-fio-datastore-2004-0-{vm}.json", scale=1 + vm / 10)
    kept("explain", "import", str(tmp_path / "run"))
    assert "ran at the same time: they are no repeats of each other" in kept.err
    assert len(kept.document("last")["arms"][0]["rounds"]) == 3
    (tmp_path / "run" / "hcibench.cfg").write_text("tool: fio\n")
    kept("explain", "import", str(tmp_path / "run"))
    (trial,) = kept.document("last")["arms"][0]["rounds"]
    read = json.loads((tmp_path / "run" / "hci-fio-datastore-2004-0-0.json").read_text())["jobs"][0]["read"]
    alone = read["lat_ns"]["N"] / read["runtime"] * 1000
    assert trial["measurement"]["values"]["iops"] == pytest.approx(alone * 3.3, rel=1e-3)
    assert "no repeats of each other" not in kept.err
