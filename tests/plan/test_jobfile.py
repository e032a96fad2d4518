# SPDX-License-Identifier: Apache-2.0
"""Job files of users: read as fio reads them, refused for what they must not do, kept unchanged."""

from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from virtune.fio.options import IN_FILES, REFUSED, SHAPING
from virtune.fio.workloads import REASONS_MAX, own_times, parse_workload, read_job_file
from virtune.model.errors import PlanError

TEXT = """\
; a database, roughly
[global]
ioengine=libaio   # as the application does
direct=1
blocksize=8k

[reader one]
readwrite=randread
iodepth=16
norandommap

[global]
bs=16k
[log]
rw =write
fsync=1
"""


def test_a_job_file_is_read_with_its_globals_folded_in() -> None:
    workload = read_job_file(TEXT, "/home/me/my db.fio")
    assert workload.name == "my_db"
    assert workload.verbatim == TEXT
    assert [(job.name, job.as_dict()) for job in workload.jobs] == [
        (
            "reader_one",
            {"ioengine": "libaio", "direct": "1", "bs": "8k", "rw": "randread", "iodepth": "16", "norandommap": "1"},
        ),
        ("log", {"ioengine": "libaio", "direct": "1", "bs": "16k", "rw": "write", "fsync": "1"}),
    ]
    assert workload.writes
    assert workload.depth == 17


def test_lines_may_end_as_on_windows() -> None:
    assert read_job_file("[j]\r\nrw=randread\r\n", "j").jobs[0].pattern == "randread"


@pytest.mark.parametrize(
    ("name", "label"),
    [("a.fio", "a"), ("../../etc/x.job", "x"), ("..", "job-file"), ("", "job-file"), ("C:\\jobs\\é.fio", "job-file")],
)
def test_the_file_names_the_workload(name: str, label: str) -> None:
    assert read_job_file("[j]\nrw=read\n", name).name == label


def test_a_file_may_say_its_own_times() -> None:
    assert own_times(read_job_file("[j]\nrw=read\nruntime=60\nramp_time=500ms\n", "j")) == (60, 0.5)
    assert own_times(read_job_file("[j]\nrw=read\n", "j")) == (None, None)
    with pytest.raises(PlanError, match="different runtimes"):
        own_times(
            read_job_file("[a]\nrw=read\nruntime=60\n[b]\nrw=read\nruntime=1m\nramp_time=1\n[c]\nruntime=30", "j")
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no job"),
        ("[global]\nrw=read\n", "has no job"),
        ("rw=read\n", "before any section"),
        ("[]\n", "is no section"),
        ("[j\n", "is no section"),
        ("[j]x\n", "is no section"),
        ("[j ; x]\n", "is no section"),
        ("[global2]\nrw=read\n", r"may take \[global2\] for \[global\]"),
        ("[Global]\nrw=read\n", r"may take \[Global\]"),
        ("[j]\nrw= read\n", "takes the blank after rw="),
        ("[j]\nrw:read\n", "not option=value"),
        ("[j]\n=read\n", "not option=value"),
        ("[j]\nrw=raed\n", "line 2: rw='raed' is not an access pattern"),
        ("[j]\nrwx=1\n", "not a fio option"),
        ("[j]\nbs\n", "bs needs a value"),
        ("[j]\nrw=read\n[j]\nrw=write\n", "two jobs named j"),
        ("[j]\nsize=${SIZE}\n", "variables"),
        ("[j]\nsize=$ncpus\n", "variables"),
        ("[j]\nsize=`id`\n", "commands"),
        ("[j]\ninclude /etc/passwd\n", "include other files"),
        ("include /etc/passwd\n", "include other files"),
        ("[j]\nfilename=/dev/sda\n", "refuses the fio option filename"),
        ("[j]\nexec_prerun=id\n", "refuses the fio option exec_prerun"),
        ("[j]\nioengine=exec\n", "not an engine"),
        ("[j]\nioengine=external:./x.so\n", "not an engine"),
        ("[j]\nioengine=cpuio\n", "not an engine"),
        ("[j]\nstonewall\n", "refuses the fio option stonewall"),
        ("[j]\nthread=0\n", "must stay 1"),
        ("[j]\nmem=mmap:/etc/x\n", "mem="),
        ("[j]\nrw=read\x00\n", "line 2 has a NUL byte"),
        ("[j]\nrw=read\udcff\n", "no text in UTF-8"),
        ("[j]\nrw=read\x1b[2J\n", "cannot be printed"),
        ("[j]\n; " + "x" * 2000 + "\n", "line 2 is longer"),
        ("[j]\nrw=read\n" * 100_000, "longer than 1 MiB"),
        ("".join(f"[j{n}]\nrw=read\n" for n in range(65)), "65 jobs"),
    ],
)
def test_what_is_wrong_or_dangerous_is_refused(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        read_job_file(text, "mine.fio")


@pytest.mark.parametrize(
    "line",
    [
        "random_distribution=zoned:50/5:30/15:20/",
        "random_distribution=zoned_abs:60/20G:30/100G:10/500g",
        "rate=,12500k",
        "rate_iops=500,,100",
        "rw=read:-8k",
        "percentile_list=99:99.9999999",
        *("verify=0", "do_verify=0", "overwrite=0", "nrfiles=1", "gtod_reduce=0", "startdelay=0", "buffered=0"),
        "fallocate=none",
    ],
)
def test_what_fio_takes_and_harms_nothing_is_taken(line: str) -> None:
    (job,) = read_job_file(f"[j]\nrw=randread\n{line}\n", "j").jobs
    assert job.name == "j"
    assert not job.as_dict().keys() & REFUSED.keys()


@pytest.mark.parametrize(
    "line", ["verify=1", "nrfiles=2", "overwrite=1", "rate=,", "rate=,,", "rate=0", "rw=read:--8"]
)
def test_what_is_close_to_that_is_refused(line: str) -> None:
    with pytest.raises(PlanError, match="line 2"):
        read_job_file(f"[j]\n{line}\n", "j")


def test_buffered_is_the_opposite_of_direct() -> None:
    """fio: `buffered=0` is `direct=1`. To take one for the other is to measure the page cache."""
    assert read_job_file("[j]\nrw=read\nbuffered=0\n", "j").jobs[0].get("direct", "") == "1"
    assert read_job_file("[j]\nrw=read\nbuffered=1\n", "j").jobs[0].get("direct", "") == "0"
    assert read_job_file("[j]\nrw=read\nbuffered=1\ndirect=1\n", "j").jobs[0].get("direct", "") == "1"
    assert parse_workload("rw=read,buffered=0")[0].jobs[0].get("direct", "") == "1"


def test_a_job_may_be_named_inside_its_section() -> None:
    found = read_job_file("[global]\nname=all\n[a]\nrw=read\nname = my reader\n[b]\nrw=write\n", "j")
    assert [job.name for job in found.jobs] == ["my_reader", "all"]
    with pytest.raises(PlanError, match="two jobs named all"):
        read_job_file("[global]\nname=all\n[a]\nrw=read\n[b]\nrw=write\n", "j")
    with pytest.raises(PlanError, match="is no section"):
        read_job_file("[a]\nname=../x\n", "j")


def test_every_reason_is_named_with_its_line() -> None:
    text = "[global]\nfilename=/dev/sda\n[a\nrw=raed\niodepth=8\nstonewall\n"
    with pytest.raises(PlanError, match="for 4 reasons") as caught:
        read_job_file(text, "mine.fio")
    assert [line.partition(":")[0] for line in caught.value.details] == ["line 2", "line 3", "line 4", "line 6"]
    assert "--target" in caught.value.details[0]
    many = "[a]\n" + "filename=x\n" * 30
    with pytest.raises(PlanError, match="for 30 reasons") as caught:
        read_job_file(many, "mine.fio")
    assert len(caught.value.details) == REASONS_MAX + 1
    assert caught.value.details[-1] == "and 18 more"


@pytest.mark.parametrize(
    ("word", "guess"), [("iodpeth", "iodepth"), ("threads", "thread"), ("bufered", "buffered"), ("zonesize", None),
                        ("cpuload", None), ("zonemode", None)]
)  # fmt: skip
def test_only_what_is_nearly_the_same_word_is_guessed(word: str, guess: str | None) -> None:
    with pytest.raises(PlanError, match="not a fio option known") as caught:
        read_job_file(f"[a]\n{word}=1\n", "mine.fio")
    assert caught.value.hint == (f"did you mean `{guess}`?" if guess else None)


lines = st.sampled_from(
    [f"{name}={value}" for name in (*SHAPING, *IN_FILES, *REFUSED) for value in ("1", "4k", "", " x", "50%", "10ms")]
    + ["[j]", "[global]", "[k]", "norandommap", "; c", "# c", "", "\t", "[", "include x", "bs = 4k ; c"]
)


@given(st.one_of(st.text(), st.lists(lines, max_size=20).map("\n".join)), st.text(max_size=10))
@example("[j]\nbs=4k-,8k\n", "x")
@example("[j]\niodepth=" + "9" * 500, "x")
def test_only_plan_errors_come_out(text: str, name: str) -> None:
    with suppress(PlanError):
        workload = read_job_file(text, name)
        own_times(workload)
        assert workload.depth >= 1
        assert workload.verbatim == text
        assert all(job.block_size > 0 for job in workload.jobs)
