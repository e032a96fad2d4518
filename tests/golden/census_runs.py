# SPDX-License-Identifier: Apache-2.0
"""Subjects of the census that run or plan studies: simulated ones, searches, paces, likenesses, interventions."""

import itertools
import json
import random
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.advise.cases import CASES as AUDITED
from tests.analyse.planted_paths import PLANTED
from tests.analyse.threshold_studies import study as threshold_study
from tests.golden.census import flat
from tests.golden.turned import Answers, asked, each, kept
from tests.knob_values import EXAMPLES
from tests.live_samples import UNPLUGGED, live

from virtune.advise.audit import audit
from virtune.bench.live.domain import LiveSource, LiveView
from virtune.fio.job import checked, data_workload, difference_in, regions_of
from virtune.fio.workloads import parse_workload, rate_words, sequential_share, workload_words
from virtune.flows.domains.measured import measured
from virtune.flows.live.diagnose_live import look
from virtune.flows.live.top import Watch, samples
from virtune.flows.reports.export import measurements_csv
from virtune.flows.reports.metrics import exposition
from virtune.flows.run.preconditions import Leave
from virtune.flows.run.question import Question, study_for
from virtune.flows.run.study import resume_study, run_study
from virtune.flows.run.sweep import resume_sweep, run_sweep
from virtune.flows.run.trial import Pace, ReadingProgress, place_of, seconds_left
from virtune.flows.run.tune import resume_tuning, tune
from virtune.flows.run.tune import study_for as searched
from virtune.flows.stored.earlier_studies import Past
from virtune.model.bottleneck import Bottleneck, Cause, DataPath, Diagnosis
from virtune.model.errors import VirtuneError
from virtune.model.event import Event
from virtune.model.evidence import Listed
from virtune.model.finding import Subject
from virtune.model.live import DiskCount, DiskRates, LiveSample, LiveVm, Move
from virtune.model.search import SweepPlan
from virtune.model.study import Study, StudyKind
from virtune.model.study_options import ChosenOption, Provenance, StudyOptions
from virtune.plan import guests, trials
from virtune.plan.arms import make_arm
from virtune.plan.goal import parse_condition, parse_limit
from virtune.plan.interventions import intervention, knobs_of
from virtune.plan.like import Looked, carried, likeness
from virtune.plan.loads import sweep_study
from virtune.plan.space import HostSupport
from virtune.probe.cpu import cpu_facts
from virtune.store.store import Store

CLOCK = frozenset({"seconds", "seconds_left", "study"})
"""What of an event goes by the clock, or is as long as the study."""

BY_CLOCK = re.compile(r"known\.(elapsed|basis\.(drift|seconds))")


def told(event: Event) -> Iterator[str]:
    for one in fields(event):
        if one.name not in CLOCK:
            lines = flat(getattr(event, one.name), f"{type(event).__name__}.{one.name}")
            yield from (line for line in lines if not BY_CLOCK.search(line))


TWO, THREE = ("disk.aio=threads,io_uring",), ("disk.aio=threads,io_uring,native",)
QUESTIONS: tuple[tuple[str, dict[str, object]], ...] = (
    ("failing", {"vary": TWO, "rounds": 3}), ("lost", {"vary": TWO, "rounds": 2}),
    ("quiet", {"vary": TWO, "rounds": 8}), ("lost", {"rounds": 2, "kind": StudyKind.SWEEP}),
    ("noisy", {"vary": THREE, "rounds": 7, "conditions": (parse_condition("iops < -3%"),)}),
    ("failing", {"rounds": 2, "kind": StudyKind.MEASURE, "workloads": ("randread-4k", "rw=read,bs=64k")}),
    ("dipping", {"vary": TWO, "rounds": 2, "at_load": ("50%", "90%")}),
    ("quiet", {"vary": THREE, "rounds": 2, "restart": True}),
    ("failing", {"rounds": 2, "kind": StudyKind.CHECK, "arms": (("A", ()), ("B", ()))}),
    ("noisy", {"rounds": 2, "kind": StudyKind.SWEEP}),
    ("exact", {"rounds": 2, "kind": StudyKind.SWEEP, "loads": ("50%", "90%")}),
    ("quiet", {"rounds": 2, "kind": StudyKind.SWEEP, "subject_to": ("latency.p99 < 2ms",)}),
)  # fmt: skip
"""What is asked of the simulated rig, and how that disturbs it."""


def simulated() -> Iterator[Study]:
    for number, (scenario, asked_for) in enumerate(QUESTIONS):
        words: dict[str, Any] = {
            "kind": StudyKind.COMPARE,
            "seed": 3,
            "scratch": Path("/s"),
            "rig": f"simulated:{scenario}",
        }
        words |= asked_for
        made = study_for(Question(**words))
        if made.kind is StudyKind.SWEEP:
            limit = next(map(parse_limit, words.get("subject_to", ())), None)
            made = sweep_study(made, SweepPlan(limit=limit, loads=words.get("loads", ()), rounds=2))
        yield replace(made, id=f"s{number}", created="2026-01-01T00:00:00+00:00")
    host = HostSupport(answers={}, io_uring=True, cpus=4)
    for number, scenario in enumerate(("noisy", "failing")):
        options = StudyOptions(
            rig=f"simulated:{scenario}", vary=TWO, seed=3, confirm=2, soak=None, scratch=Path("/s")
        )
        yield replace(searched(options, lambda _: host), id=f"t{number}", created="2026-01-01T00:00:00+00:00")


def runs() -> Answers:
    """What simulated studies say while they run, what of each is stored, and what goes on after it was stopped."""
    for number, study in enumerate(simulated()):
        yield asked(run, study, 3 + 5 * number % 13 if number % 3 and study.search is None else None)


def run(study: Study, stop: int | None) -> Iterator[str]:
    """Run a study until it ends or is stopped at an event, and then the rest of it."""
    lines: list[str] = []
    heard = itertools.count(1)

    def say(event: Event) -> None:
        lines.extend(told(event))
        if next(heard) == stop:
            raise KeyboardInterrupt

    def begin() -> object:
        start = run_sweep if study.sweep else tune if study.search else run_study
        return start(study, store=store, say=say, leave=Leave(), facts="")

    def go_on() -> object:
        again = resume_sweep if study.sweep else resume_tuning if study.search else resume_study
        return again(store.get(study.id), store=store, say=say, leave=Leave())

    with tempfile.TemporaryDirectory() as place, Store(Path(place) / "s.db") as store:
        for step in (begin, go_on):
            try:
                step()
            except KeyboardInterrupt:
                lines.append("interrupted")
            except VirtuneError as error:
                lines.append(f"{type(error).__name__} {error} {error.hint}")
        record = store.get(study.id)
        lines += flat([(one.trial, one.failure, one.attempt) for one in record.attempts])
        lines += flat((record.finished, record.study.looks, record.study.trials, record.study.workloads))
    yield from lines


def paces() -> Answers:
    """How long what is left of a study takes by what its trials took, and where a trial stands."""
    chance, (first, *others) = random.Random(4), list(simulated())[:3]
    real = replace(
        first, arms=tuple(replace(one, stack=replace(one.stack, rig="qemu", domain=None)) for one in first.arms)
    )
    all_of_it = trials.trials([one.name for one in real.arms], ["randread-4k"], rounds=5, seed=1)
    once = replace(real, sequential=False, rounds=5, trials=all_of_it)
    for study, done, busy in itertools.product((real, once, *others), (0, 3), (True, False)):
        pace, lines = Pace(study, done=done, busy=busy), list[str]()
        for number in range(9):
            left = study.trials[number % len(study.trials) :]
            lines.append(f"left {pace.left(left):.1f} more {pace.left(left, rounds=2):.1f}")
            lines.append(f"all {seconds_left(study, left, pace):.1f} at {pace.rounds}")
            lines += flat(place_of(study, left[0], pace))
            pace.ran(left[0].arm, asked=2.5, took=chance.choice((2.5, 3.0, 9.0)), repeated=chance.random() < 0.4)
        yield lines
    for size, limit in itertools.product((10**6, 10**10), (1.0, 60.0)):
        lines = []
        shown = ReadingProgress(size, limit, lambda event: lines.extend(flat(event)))  # noqa: B023 - used at once
        for number in range(12):
            shown.heard(number / 11, number / 2)
        shown.end()
        yield lines


def costs() -> Answers:
    """The trials, looks, loads and times of studies of each rig and knob, and what those that ran took."""
    pasts: list[trials.TimedStudy] = []
    for number, base in enumerate(simulated()):
        for knob, (value, needs) in sorted(EXAMPLES.items()):
            rig = ("rig=qemu", "rig=storage-daemon")[number % 2]
            words = needs if any(one.startswith("rig=") for one in needs) else (rig, *needs)
            if kept(f"{number}{knob}", 3):
                yield asked(planned, base, (*words, f"{knob}={value}"), pasts)
    for count, busy, repeats in itertools.product(
        (0, 1, 40), (True, False), ((), (True,) * 8, (True, False, True), (False,) * 7 + (True,))
    ):
        yield [f"attempts {trials.attempts_for(count, repeats, busy=busy):.4f}"]


def planned(base: Study, words: Sequence[str], pasts: list[trials.TimedStudy]) -> Iterator[str]:
    arms = (make_arm("a", words), make_arm("b", words[:-1]))
    study = replace(base, arms=arms, baseline="a", span_bytes=2**30, check_data=len(words) % 2 == 0)
    study = replace(study, trials=trials.trials("ab", [one.name for one in study.workloads], rounds=2, seed=5))
    ends = [(one.arm, 5.0 + 3.1 * at + at % 3 + 300 * (at == 5)) for at, one in enumerate(study.trials * 2)]
    pasts.insert(0, trials.TimedStudy(study=study, attempts=tuple(ends), filled=len(pasts) % 2 == 0))
    seen = trials.seen_of(pasts)
    names = [one.name for one in study.workloads]
    for sequential, budget in ((True, None), (True, 90.0), (False, None)):
        one = replace(study, sequential=sequential, budget_seconds=budget, rounds=60)
        yield from flat(
            (trials.propose(one, rounds=2, workloads=names[:1], without=[("b", names[0])]), trials.most_rounds(one))
        )
        for share in (0.1, 0.3, 1.0):
            yield from flat(trials.looked_at(replace(one, looks=((1, 0.2),)), share).looks)
        yield f"done {trials.plan_done(one, 30.0)} read {trials.first_read_seconds_max(one)}"
    for known in (trials.NOTHING_SEEN, seen):
        yield f"data {trials.data_seconds(study, known)} round {trials.round_seconds(study)}"
        yield f"setup {trials.setup_seconds(study, bytes_to_fill=2**28, bytes_to_read=2**31, seen=known)}"
        yield from (f"trial {trials.trial_seconds(study, arm.stack, known, busy=1.7)}" for arm in arms)
    yield from (guests.system_words(study, built=built) or "" for built in (True, False))
    yield from flat([one.name for one in guests.with_system(study, built=False).arms])
    yield from guests.needs_linux(study)
    for arm, workload in itertools.product(arms, study.workloads):
        yield from flat(guests.share_of(workload, arm.stack).jobs)
        guests.require_possible(workload, arm.stack)


def likenesses() -> Answers:
    """What of a VM's disk is measured by each rig, of VMs of which one thing is turned."""
    subjects = [case.subject for pair in AUDITED.values() for case in pair]
    rigs = itertools.cycle(
        itertools.product(
            ("qemu", "vhost-user", "storage-daemon", "metal"), (True, False), ((), ("disk.cache=none",))
        )
    )

    def like(at: Looked, rig: str, target: bool, instead: Sequence[str]) -> Iterator[str]:
        found = likeness(at)
        yield from (*found.settings, *(one.text for one in found.left))
        there = carried(found, rig, target=target, instead=instead)
        yield from (f"{rig} {one}" for one in (*there.settings, *(one.text for one in there.left)))

    for subject in each(subjects, 5):
        for disk in subject.domain.disks[:1]:
            rig, target, instead = next(rigs)
            at = Looked(domain=subject.domain, disk=disk, image=subject.image(disk), emulator_here=target)
            yield asked(like, at, rig, target, instead)


def interventions() -> Answers:
    """What takes the place of each cause's layer in stacks of every rig, and the condition that this must keep."""
    paths = [path for _, path in PLANTED]
    loads = [*parse_workload("rw=randread,bs=4k,iodepth=8"), *parse_workload("rw=randrw,numjobs=3,rate_iops=500")]
    bases = (("rig=qemu",), ("rig=qemu", "device.iothread=io1"), ("rig=storage-daemon",), ("rig=vhost-user",),
             ("rig=qemu", "disk.cache=writeback", "machine.vcpus=1"), ("rig=storage-daemon", "disk.backend=null-co"),
             ("rig=storage-daemon", "disk.throttle_iops=500", "disk.discard=unmap"))  # fmt: skip
    for cause, words, (number, path) in itertools.product(Cause, bases, enumerate(paths)):
        if kept(f"{cause}{words}{number}", 6):
            found = Bottleneck(cause=cause, evidence=("planted",), experiment="")
            accused = Diagnosis(disk="a", workload="w", seconds=1.0, path=path, found=found, layers=path.layers)
            cannot = frozenset({(knob, "") for knob in knobs_of(cause)[:1]}) if number % 4 == 0 else frozenset()
            load = loads[number % len(loads)]
            arm = make_arm("a", words)
            made = partial(intervention, accused, arm, load, unavailable=cannot)
            yield [f"{cause} {line}" for line in asked(lambda made=made: flat(made()))]


def regions() -> Answers:
    """Where data is written to be checked, and the load that a disk's own counts are told as."""
    for size, seed in itertools.product((2**20, 2**21, 5 * 2**20, 2**24, 2**28 + 4096, 2**30, 10**12), (1, 2)):
        parts = regions_of(size, seed)
        yield [
            *flat(parts),
            checked(parts, size),
            *flat([[at for at, _ in one.blocks("12345678")][-1:] for one in parts]),
        ]
        yield list(flat([data_workload(step, parts, disks=2) for step in ("write", "read", "refill")]))
    for text in ("", "verify failed at file /a offset 512", "fio: verify type mismatch", "verify failed at offset 9"):
        yield [f"{difference_in(text)}"]
    chance = random.Random(2)
    for _ in range(250):
        reads, writes, flushes = (chance.choice((0, 1, 50, 3000)) for _ in range(3))
        sizes = chance.choice((512, 4096, 70_000)), chance.choice((512, 4096, 3 * 10**7))
        rates = DiskRates(
            seconds=chance.choice((0.5, 2.0)), reads=reads, writes=writes, flushes=flushes, flush_ns=0,
            read_bytes=reads * sizes[0], written_bytes=writes * sizes[1],
            read_ns=reads * 10 ** chance.randrange(4, 8), write_ns=writes * 10**6,
        )  # fmt: skip
        moves = [
            Move(requests=chance.choice((1, 4)), sectors=chance.choice((-9, 0, 8, 90, 10**6)))
            for _ in range(chance.choice((3, 40)))
        ]
        share = sequential_share(moves, rates)
        yield [
            f"sequential {share}",
            workload_words(rates, share),
            *(workload_words(rates, one) for one in (None, 1.0, 0.98, 0.05)),
        ]
        yield [rate_words(rates)]


HERE = json.dumps({"host": {"cpu": {"model": cpu_facts().model}}})
PAST = (
    (), ("disk.cache=writeback",), ("disk.aio=native",), ("disk.detect_zeroes=on", "disk.aio=native"),
    ("device.iothread=io1",), ("device.num_queues=4",), ("disk.cache=writeback", "device.iothread=io1"),
    ("disk.aio=io_uring", "device.num_queues=2"),
)  # fmt: skip
"""Settings of which two are compared in a study that is kept."""


def pasts() -> Answers:
    """What kept studies say of the advice of audits, what each carries into a VM, and what is exported of them."""
    subjects = [case.subject for pair in AUDITED.values() for case in pair]
    chance = random.Random(5)
    with tempfile.TemporaryDirectory() as place, Store(Path(place) / "s.db") as store:
        for number, (first, second) in enumerate(itertools.permutations(PAST, 2)):
            ratio = (1.5, 1.0, 0.8)[number % 3]
            levels = [[100 * by * (1 + chance.random() / 50) for _ in range(9)] for by in (1.0, ratio)]
            record = threshold_study(*levels)
            rig = ("rig=qemu",) if number % 5 else ("rig=qemu", "disk.format=qcow2")
            arms = make_arm("a", (*rig, *first)), make_arm("b", (*rig, *second))
            like = (ChosenOption(name="like", value="vm:vda (x)", source=Provenance.FLAG),) if number % 4 == 0 else ()
            made = replace(record.study, id=f"2026010{number % 8}-{number:06}-aaaa", arms=arms, options=like)
            facts = "" if number % 7 == 3 else HERE
            store.add_whole(
                replace(record, study=made, facts=facts, finished=number % 9 != 2), [[] for _ in record.trials]
            )
        path = Path(place) / "s.db"
        past = Past(path)
        for subject in (replace(one, host=replace(one.host, kernel=(6, 1))) for one in subjects):
            for finding in audit(subject):
                yield [f"{finding.rule.id} {one}" for one in past.says(finding, subject)]
        for number, id_ in enumerate(one.study.id for one in store.list() if isinstance(one, Listed)):
            subject = subjects[number % len(subjects)]
            for name in (id_, f"{id_}:b", f"{id_}:z") if number % 5 == 0 else (id_,):
                yield [line.replace(place, "PLACE") for line in asked(carried_over, path, name, subject)]
            if number % 8 == 0:
                yield measurements_csv(store, id_).splitlines()
        shown = exposition(store)[0].decode().splitlines()
        yield [line for line in shown if not line.startswith(("#", "virtune_build", "virtune_scrape"))]


def carried_over(path: Path, name: str, subject: Subject) -> Iterator[str]:
    found = measured(path, name)
    yield from (found.said, found.disk, *flat((found.before, found.after)))
    yield from flat(found.template(subject))


class Seen(LiveView):
    """A VM of another host, by its counts at two times."""

    def __init__(self, vm: LiveVm, before: LiveSample, after: LiveSample, exits: Sequence[int | str]) -> None:
        self.vm = vm
        self._counts = iter((before.counts[vm.name], after.counts[vm.name]))
        self._exits = iter(exits)

    def counts(self) -> Mapping[str, DiskCount]:
        return next(self._counts)

    def rings(self, target: str) -> str:
        return f"no virtqueue of {target}"

    def exits(self) -> int | str:
        return next(self._exits)


class Source(LiveSource):
    """VMs as they are in samples, one after the other."""

    def __init__(self, samples: Iterable[LiveSample]) -> None:
        self._samples = iter(samples)
        self._now = next(self._samples)

    def vms(self) -> tuple[LiveVm, ...]:
        return self._now.vms

    def counts(self) -> Mapping[str, Mapping[str, DiskCount]]:
        self._now = next(self._samples)
        return self._now.counts

    def rings(self, vm: str, target: str) -> str:
        return f"no virtqueue of {vm}'s {target}"

    def rest(self) -> None:
        return


def diagnosed(view: Seen, disk: str) -> Iterator[str]:
    for one in look(view, disk=disk, seconds=0.0):
        lines = flat(replace(one, guideline=None, path=DataPath(iops=one.path.iops, depth=0, latency_ns=0)))
        yield from (line for line in lines if ".unseen" not in line)  # which is as this host is
        yield str(one.guideline is None)


def looks() -> Answers:
    """What is diagnosed of a VM that is looked at, and how `top` goes from sample to sample."""
    exits: tuple[tuple[int | str, int | str], ...] = ((100, 5000), ("KVM hides them", 3), (3, "KVM hides them"))
    for number, after in enumerate(each((live(9), live(4)), 6)):
        for vm in live(2).vms:
            other = replace(vm, pid=None, disks=tuple(replace(one, devices=(), path=None) for one in vm.disks))
            view = Seen(other, live(2), after, exits[number % 3])
            yield asked(diagnosed, view, ("", vm.disks[0].target, "sdz")[number % 5 % 3])
    watch = Watch([Source([live(1), *map(live, range(1, UNPLUGGED + 3))])])
    with watch:
        for _ in range(UNPLUGGED + 2):
            one = watch.sample()
            yield list(flat((one.counts, one.rings, one.missing, [vm.name for vm in one.vms])))
        for interval, late in itertools.product((1.0, 0.5), (0.0, 0.3, 2.7)):
            clock = itertools.accumulate(itertools.chain([5.0], itertools.cycle((0.1, 0.1, late))))
            waits: list[float] = []
            again = Watch([Source([live(1)] * 12)])
            with again:
                for _ in zip(
                    range(9),
                    samples(again, interval_seconds=interval, wait=waits.append, now=clock.__next__),
                    strict=False,
                ):
                    pass
            yield [f"wait {one:.3f}" for one in waits]


RUNS: Mapping[str, Callable[[], Answers]] = {
    "runs": runs, "paces": paces, "costs": costs, "likenesses": likenesses, "interventions": interventions,
    "regions": regions, "pasts": pasts, "looks": looks,
}  # fmt: skip
