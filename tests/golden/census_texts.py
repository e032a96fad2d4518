# SPDX-License-Identifier: Apache-2.0
"""Subjects of the census that are typed or read: options of fio, job files, imports, and spaces."""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations, product

from tests.analyse.recordings import FOLDER, recorded
from tests.golden.census import flat
from tests.golden.turned import Answers, asked, kept, turned_text

from virtune.analyse.trial.measure import differing, parts_of, shape_of, slug_of, workload_of
from virtune.fio.consistency import contradictions
from virtune.fio.options import IN_FILES, SHAPING, canonical, check_together, facts_of, read_option
from virtune.fio.results import read_result
from virtune.fio.workloads import own_times, parse_workload, read_job_file
from virtune.flows.run.question import builtins, plan_text
from virtune.model.durability import Promise
from virtune.model.measurement import FioResult
from virtune.model.study_options import StudyOptions
from virtune.plan.goal import parse_goal
from virtune.plan.planfile import read_plan
from virtune.plan.space import HostSupport, effective, emulators_of, space_of

VALUES = (
    None, "", "0", "1", "7", "100", "101", "-1", "4k", "4k,8k", "4k-64k", "512", "1000", "1m", "50%", "10ms", "2s",
    "500", "randread", "randrw", "rw", "trimwrite", "libaio", "psync", "nbd", "0-3", "0,2", "4k/60:8k/40", "zipf:1.2",
    "random", "inline", "offload", "x", "1:2", "1000,500", "buffered", "1e3", "0.5",
)  # fmt: skip


def options() -> Answers:
    """What each option of fio may be, alone and beside another one, and what of a result contradicts it."""
    names = (*SHAPING, *IN_FILES, "buffered", "iodpeth", "exec_prerun", "filename")
    for name, value, in_file in product(names, VALUES, (True, False)):
        if kept(f"{name}{value}{in_file}", 2):
            yield [line.replace(name, "OPTION") for line in asked(_option, name, value, in_file)]
    taken = [
        (name, value)
        for name in SHAPING
        for value in VALUES
        if value and asked(_option, name, value, True)[:1] == [f"{name}={value}"]
    ]
    results = [
        read_result(recorded(name)) for name in ("randread.both", "clones.both", "fsync.both", "rate-met.both")
    ]
    chance = random.Random(1)
    for _ in range(1500):
        asks = dict(chance.sample(taken, chance.randint(1, 5)))
        yield asked(_together, asks)
        load = chance.choice(chance.choice(results).loads)
        whole = dict(load.options or ()) | asks
        yield asked(lambda: flat(tuple(contradictions(load, whole, jobs=chance.choice((1, 2, 4)), spent=2.0))))  # noqa: B023


def _option(name: str, value: str | None, in_file: bool) -> Iterator[str]:
    yield "=".join(read_option(name, value, where="job", in_file=in_file))


def _together(asks: Mapping[str, str]) -> Iterator[str]:
    check_together(asks, where="job")
    yield from flat(facts_of(canonical(asks.items())))


def files() -> Answers:
    """What is made of job files and plans of which one line or number is turned."""
    jobs = [path.read_text() for path in sorted((FOLDER.parent / "fio-versions").glob("*.fio"))]
    jobs.append(
        "[global]\nrw=randread\nbs=4k\nruntime=5\n[one]\niodepth=8\n[two]\nstonewall\nrw=write\nnumjobs=2\nramp_time=1s\n"
    )
    for text in jobs:
        for _, other in [("", text), *turned_text(text)]:
            yield asked(_job_file, other)
    for one in builtins():
        text = plan_text(one.name, cpus=4)
        for way, other in turned_text(text):
            if kept(f"{one.name}{way}", 1 + len(text) // 150):
                yield asked(lambda other=other: flat(read_plan(other)))
    for words in ("rw=randread,bs=4k,iodepth=8", "oltp,vdi", "rw=randrw,rwmixread=70,bs=8k + rw=write,numjobs=2"):
        for at in range(len(words)):
            yield asked(lambda words=words, at=at: flat(parse_workload(words[:at] + words[at + 1 :])))
    goals = (
        ("iops", None),
        (None, "latency.p99"),
        ("p99", None),
        (None, "iops"),
        ("iops", "p99"),
        (None, None),
        ("x", None),
    )
    for (most, least), limits in product(
        goals, ((), ("latency.p99 < 2ms",), ("iops > 5k", "p50 < 1ms"), ("iops < 3",))
    ):
        yield asked(lambda most=most, least=least, limits=limits: flat(parse_goal(most, least, limits)))


def _job_file(text: str) -> Iterator[str]:
    workload = read_job_file(text, "w.fio")
    yield from (*flat(workload), *flat(own_times(workload)))


def imports() -> Answers:
    """The workloads that results of several jobs have, and in what two of them differ."""
    results = [read_result(recorded(name)) for name in ("sections.both", "sections-group.both", "clones.both",
               "randrw-group.both", "two-clients.json", "rate-met.both", "mmap.both")]  # fmt: skip
    made = [other for result in results for other in _with_options(result)]
    parts = [part for result in made for part in parts_of(result)]
    for part in parts:
        workload = workload_of(part, "w", {"direct": "1"})
        shapes = [shape_of(workload, complete=complete) for complete in (True, False)]
        yield list(flat((part, workload, shapes, [slug_of(one) for one in (part.shape, *shapes)])))
    for one, other in combinations(parts[::3], 2):
        yield list(flat(differing(one.shape, other.shape)))


def _with_options(result: FioResult) -> Iterator[FioResult]:
    """A result, and the same with one option of its first job gone or with another one."""
    yield result
    first, *rest = result.loads
    for name, value in (
        *(first.options or ()),
        ("direct", "0"),
        ("fsync", "4"),
        ("iodepth", "32"),
        ("rw", "randwrite"),
    ):
        less = tuple(one for one in first.options or () if one[0] != name)
        yield replace(result, loads=(replace(first, options=less), *rest))
        yield replace(result, loads=(replace(first, options=(*less, (name, value + "0"))), *rest))
    for changes in (
        {"options": None},
        {"depth": None},
        {"group": 7},
        {"direct": None},
        {"block_size": None},
        {"jobs": 3},
    ):
        yield replace(result, loads=(replace(first, **changes), *rest))


def spaces() -> Answers:
    """The configurations of a search, by what is varied and held, what is promised, and what the host has."""
    varied = (
        "disk.aio=threads,native,io_uring", "disk.cache=none,writeback,unsafe", "device.iothread=none,io1",
        "iothread.poll_max_ns=0,32768", "disk.format=raw,qcow2", "disk.aio", "disk.export=fuse,vhost-user-blk",
        "disk.cluster_size=65536,131072", "device.bus=virtio-blk,virtio-scsi", "disk.aio", "disk.speed=1,2",
    )  # fmt: skip
    hosts = (
        HostSupport(answers={}),
        HostSupport(answers={}, io_uring=False, cpus=4, memory_bytes=2**30),
        HostSupport(answers={}, io_uring=True, cpus=16),
    )
    rigs, promises = (None, "qemu", "metal", "vhost-user"), (None, *Promise)
    for number, (vary, rig, promise) in enumerate(
        product((*((one,) for one in varied), *combinations(varied, 2)), rigs, promises)
    ):
        if kept(f"{vary}{rig}{promise}", 4):
            fix = ("disk.cache=none",) if number % 3 == 0 else ()
            wish = StudyOptions(rig=rig, vary=vary, fix=fix, durability=promise, span=2**30 << number % 5)
            yield asked(_space, wish, hosts[number % 3])


def _space(wish: StudyOptions, host: HostSupport) -> Iterator[str]:
    found = space_of(wish, host)
    yield from flat(found)
    yield from flat(emulators_of(wish))
    yield from (repr(effective(arm.stack) == arm.stack) for arm in found.arms)


TYPED: Mapping[str, Callable[[], Answers]] = {
    "options": options, "files": files, "imports": imports, "spaces": spaces,
}  # fmt: skip
