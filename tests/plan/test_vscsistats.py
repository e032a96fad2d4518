# SPDX-License-Identifier: Apache-2.0
"""What ESXi's vscsiStats counted of a virtual disk, as a load: its printouts, also changed, and fio that runs it."""

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plan.vscsi_printouts import printout

from virtune.fio.vscsistats import vscsi_workload
from virtune.flows.run.question import read_workloads
from virtune.model.errors import PlanError


def words(text: str) -> str:
    return vscsi_workload(text, "vm.csv").meaning.removeprefix("fio: ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (printout({4096: 70}, {4096: 30}), "rw=randrw,rwmixread=70,bs=4k,iodepth=4"),
        (printout({4096: 70}, {8192: 30}, waiting=1), "rw=randrw,rwmixread=70,bs=4k,8k,iodepth=1"),
        (printout({}, {65536: 50}, behind=50), "rw=write,bs=64k,iodepth=4"),
        (printout({4096: 60, 65536: 40}, {}, behind=35),
         "rw=randread,percentage_random=65,bssplit=4k/60:64k/40,iodepth=4"),
        (printout({4096: 1, 8192: 2}, {}), "rw=randread,bssplit=4k/33:8k/67,iodepth=4"),
        (printout({512: 999, 4096: 1}, {4096: 1000}), "rw=randrw,rwmixread=50,bs=512,4k,iodepth=4"),
        # a bucket between two sizes counts as its limit in whole sectors, what is beyond the last has the mean's rest
        (printout({4095: 1, 4096: 1}, {}), "rw=randread,bs=4k,iodepth=4"),
        (printout({4096: 50, -1: 50}, {}, mean=526336), "rw=randread,bssplit=4k/50:1024k/50,iodepth=4"),
    ],
)  # fmt: skip
def test_a_printout_is_a_load(text: str, expected: str) -> None:
    assert words(text) == expected
    assert words(text.replace("\n", "\r\n")) == expected
    assert words(re.sub("(ID),", r"\1 : ", text)) == expected, "older ones have a colon"


WHOLE = printout({4096: 70}, {4096: 30})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            WHOLE + printout({4096: 1}, {}, disk="8195 (scsi0:1)"),
            "has 2 disks: 8194 (scsi0:0) of world 2099979, 8195",
        ),
        (WHOLE + WHOLE, "several printouts of one disk"),
        (WHOLE[: WHOLE.index("Histogram: number")], "has no histogram 'number of outstanding IOs"),
        (printout({}, {}), "counted no I/O"),
        (WHOLE.replace("count,70", "count,71"), "is not what its buckets hold"),
        (WHOLE[: WHOLE.index("70,4096")], "is not what its buckets hold"),
        (WHOLE.replace("mean,4096", "mean,many", 1), "'mean,many' is no line of a histogram"),
        (WHOLE.replace(",virtual machine worldGroupID,", " for virtual machine worldGroupID : ", 1), "no head"),
        (WHOLE + "\nx" * 100_000, "more than 100000 lines"),
    ],
)
def test_what_is_no_whole_printout_of_one_disk_is_refused(text: str, message: str) -> None:
    with pytest.raises(PlanError) as refused:
        vscsi_workload(text, "vm.csv")
    assert message in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_files_are_read_as_windows_and_a_terminal_write_them(encoding: str, tmp_path: Path) -> None:
    copied = f"[root@esx1:~] vscsiStats -w 2099979 -p all -c\n{WHOLE}[root@esx1:~] \n"
    texts = {"vm.csv": WHOLE, "copied.txt": copied, "job.fio": "[a]\nrw=randread\n"}
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text.replace("\n", "\r\n").encode(encoding))
    vm, again, job = read_workloads(tuple(texts), tmp_path)
    assert vm.meaning == again.meaning == "fio: rw=randrw,rwmixread=70,bs=4k,iodepth=4"
    assert job.verbatim == "[a]\r\nrw=randread\r\n"
    (tmp_path / "job.fio").write_bytes("[a]\n".encode("utf-16")[:-1])
    with pytest.raises(PlanError, match="not text in UTF-16"):
        read_workloads(("job.fio",), tmp_path)


@given(st.integers(0, len(WHOLE)), st.integers(0, len(WHOLE)), st.text(max_size=20))
def test_any_change_is_a_load_or_refused(begin: int, end: int, put: str) -> None:
    try:
        found = vscsi_workload(WHOLE[: min(begin, end)] + put + WHOLE[max(begin, end) :], "vm.csv")
    except PlanError:
        return
    assert found.jobs[0].get("rw", "")


@pytest.mark.real
def test_fio_does_the_sizes_that_were_counted(tmp_path: Path) -> None:
    (tmp_path / "vm.csv").write_text(printout({512: 25, 4096: 75}, {-1: 100}, mean=600_000))
    (workload,) = read_workloads(("vm.csv",), tmp_path)
    (one,) = workload.jobs
    asked = [f"--{key}={value}" for key, value in one.options]
    asked += ["--name=x", "--filename=disk", "--size=64m", "--number_ios=2000", "--ioengine=psync"]
    told = subprocess.run(
        ["fio", *asked, "--output-format=json"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert '"bssplit" : "512/25:4k/75,586k/100"' in told.stdout
