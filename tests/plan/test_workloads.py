# SPDX-License-Identifier: Apache-2.0
"""Workloads by name and in fio's words: what is read, and why the rest is refused."""

import shlex

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from virtune.fio.options import ALIASES, IN_FILES, REFUSED, SHAPING
from virtune.fio.workloads import GROUPS, PROFILES, parse_workload
from virtune.model.errors import PlanError
from virtune.model.study import Study, StudyKind
from virtune.plan.arms import arm_from_text
from virtune.report.reproduce import command_again


def only(text: str) -> dict[str, str]:
    (workload,) = parse_workload(text)
    (job,) = workload.jobs
    return job.as_dict()


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_has_a_meaning_and_can_be_asked_for(name: str) -> None:
    (workload,) = parse_workload(name)
    assert workload.name == name
    assert workload.meaning
    assert workload.jobs[0].pattern
    assert workload.depth >= 1


def test_four_corners_are_four_workloads() -> None:
    corners = parse_workload("four-corners")
    assert [w.name for w in corners] == ["randread-4k", "randwrite-4k", "seqread-1m", "seqwrite-1m"]
    assert len(parse_workload("fio-engines")) == 6
    assert all(set(names) <= set(PROFILES) for names in GROUPS.values())


def test_the_log_flushes_after_every_write() -> None:
    assert only("log-sync-16k") == {"rw": "write", "bs": "16k", "iodepth": "1", "fsync": "1"}


def test_a_profile_may_be_changed() -> None:
    (workload,) = parse_workload("randread-4k,iodepth=8,norandommap")
    assert workload.name == "randread-4k-iodepth-8-norandommap-1"
    assert "iodepth=8" in workload.meaning
    assert workload.jobs[0].as_dict() == {"rw": "randread", "bs": "4k", "iodepth": "8", "norandommap": "1"}
    names = [w.name for w in parse_workload("mine: four-corners,iodepth=1")]
    assert names == ["mine-randread-4k", "mine-randwrite-4k", "mine-seqread-1m", "mine-seqwrite-1m"]


def test_fios_words_are_read() -> None:
    assert only("rw=randread,bs=4k,iodepth=32,numjobs=1") == {
        "rw": "randread",
        "bs": "4k",
        "iodepth": "32",
        "numjobs": "1",
    }


def test_a_comma_before_a_digit_belongs_to_the_value() -> None:
    assert only("rw=randrw,bs=4k,8k,iodepth=4")["bs"] == "4k,8k"
    assert only("rw=read,cpus_allowed=0,2-3")["cpus_allowed"] == "0,2-3"
    assert only("rw=randrw,bssplit=4k/60:8k/40,16k/100")["bssplit"] == "4k/60:8k/40,16k/100"
    assert only("rw=rw,rate_iops=500,200")["rate_iops"] == "500,200"


def test_other_names_of_an_option_are_folded_into_one() -> None:
    assert only("readwrite=randread,blocksize=8k") == {"rw": "randread", "bs": "8k"}


@pytest.mark.parametrize("separator", [" + ", ";", "+", " ; "])
def test_several_jobs_run_together(separator: str) -> None:
    (workload,) = parse_workload(f"mix: name=reader,rw=randread{separator}rw=write,bs=64k")
    assert workload.name == "mix"
    assert [job.name for job in workload.jobs] == ["reader", "job2"]
    assert workload.writes
    assert workload.reads


def test_different_words_give_different_names() -> None:
    texts = ["rw=read", "rw=read,direct=0", "rw=read,bs=8k", "rw=read,numjobs=2", "rw=read + rw=write,bs=8k"]
    assert len({parse_workload(text)[0].name for text in texts}) == len(texts)
    long = ",".join(f"{name}=1" for name in ("fsync", "fdatasync", "invalidate", "rate_iops", "thinktime", "lockmem"))
    assert len(parse_workload(f"rw=write,{long}")[0].name) <= 64


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("randraed-4k", "no workload profile", "randread-4k"),
        ("", "no workload profile", "four-corners"),
        ("bs=4k", "needs rw=", "rw=randread"),
        ("rw=randread,iodept=3", "not a fio option", "iodepth"),
        ("rw=randread,bs", "bs needs a value", "bs="),
        ("rw=randread,bs=100", "512", None),
        ("rw=randread,bs=128m", "512..64M", None),
        ("rw=randread,bs=4k,4k,4k,4k", "bs=", None),
        ("rw=randread,bs=1000", "multiples of 512", None),
        ("rw=read,write", "not a flag|needs a value|not a fio option", None),
        ("rw=randread,iodepth=0", "1..65536", None),
        ("rw=randread,iodepth=1k", "whole number", None),
        ("rw=randread,numjobs=5000", "1..4096", None),
        ("rw=rw,rwmixread=101", "0..100", None),
        ("rw=read,rate_iops=0", "outside", None),
        ("rw=read,ioengine=libiao", "not an engine", None),
        ("rw=read,ioengine=exec", "not an engine", None),
        ("rw=read,ioengine=external:/tmp/x.so", "not an engine", None),
        ("rw=read,ioengine=psync,sqthread_poll", "belongs to ioengine=io_uring", "leave"),
        ("rw=read,ioengine=mmap,direct=1", "page cache", None),
        ("rw=read,rw=write", "given twice", None),
        ("rw=read,iodepth=2,iodepth_batch=4", "larger than iodepth", None),
        ("rw=write,zero_buffers,refill_buffers", "together", None),
        ("rw=read,runtime=5", "not part of a workload", "--seconds"),
        ("rw=read,size=$ncpus", "size=", None),
        ("rw=read,mem=mmap:/etc/passwd", "mem=", None),
        ("name=a,rw=read + name=a,rw=write", "same name", None),
        ("rw=read,name=a b", "cannot be the name", "letters"),
        ("../x: rw=read", "cannot be the name", "letters"),
        ("rw=read\n[x]", "one printable line", None),
        ("rw=read" + "+rw=read" * 64, "more than 64", "numjobs"),
        ("rw=read," + "x" * 5000, "one printable line", None),
    ],
)
def test_what_is_wrong_is_refused_with_the_reason(text: str, message: str, hint: str | None) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        parse_workload(text)
    if hint is not None:
        assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("option", REFUSED)
def test_dangerous_options_are_refused_with_the_reason(option: str) -> None:
    if option == "name":
        return
    with pytest.raises(PlanError, match="refuses the fio option") as caught:
        parse_workload(f"rw=read,{option}=1")
    assert caught.value.hint == REFUSED[option]


def test_the_tables_do_not_overlap() -> None:
    assert not set(SHAPING) & set(IN_FILES)
    assert not (set(SHAPING) | set(IN_FILES)) & set(REFUSED)
    assert not set(ALIASES) & set(SHAPING)
    assert set(ALIASES.values()) <= set(SHAPING) | set(IN_FILES)


words = st.sampled_from(
    [*SHAPING, *IN_FILES, *REFUSED, *PROFILES, "=", ",", "+", ";", ":", "4k", "0", "1", "-", "%", " "]
)


@given(st.one_of(st.text(), st.lists(words, max_size=12).map("".join)))
@example("bs=4k-,rw=read")
@example("rw=read,bs=-4k")
@example("rw=read,iodepth=" + "9" * 400)
@example("rw=read,iodepth=٣")
def test_only_plan_errors_come_out(text: str) -> None:
    try:
        workloads = parse_workload(text)
    except PlanError:
        return
    for workload in workloads:
        assert workload.depth >= 1
        assert all(job.block_size > 0 for job in workload.jobs)


@pytest.mark.parametrize(
    "asked", ["randread-4k", "randread-4k,iodepth=8", "mine: randread-4k", "x: rw=randrw,bs=4k,rate_iops=700,300"]
)
def test_a_study_s_workload_can_be_asked_for_again(asked: str) -> None:
    (workload,) = parse_workload(asked)
    arm = arm_from_text("a:rig=metal")
    study = Study(
        id="s", created="", kind=StudyKind.MEASURE, arms=(arm,), baseline="a", workloads=(workload,), rounds=1,
        seconds=1, ramp_seconds=0, seed=1, scratch="/s", span_bytes=2**24,
    )  # fmt: skip
    words = shlex.split(command_again(study))
    (again,) = parse_workload(words[words.index("--workload") + 1])
    assert (again.name, again.jobs[0].options) == (workload.name, workload.jobs[0].options)


def test_binary_prefixes_mean_thousands_to_fio_and_are_refused() -> None:
    for words in ("rw=randread,bs=64KiB", "rw=randread,size=1MiB", "rw=randread,bsrange=4Ki-8Ki"):
        with pytest.raises(PlanError, match="reads 64KiB as 64000 bytes; write 64k"):
            parse_workload(words)
