# SPDX-License-Identifier: Apache-2.0
"""Subjects of the census that are acted on: domains, tasks of a fleet, loads, questions, programs."""

import contextlib
import fcntl
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations, pairwise, product
from pathlib import Path

from tests.analyse.interim_studies import study, workload
from tests.analyse.recordings import FOLDER, recorded
from tests.apply.shelf import UUID, WEB, Shelf
from tests.golden.census import flat
from tests.golden.turned import Answers, asked, each, kept, turned_text
from tests.knob_values import EXAMPLES

from virtune.analyse.fleet import answer, drift_between
from virtune.apply.journal import Journal, Restart
from virtune.bench.verify import (
    Activity,
    Opened,
    RingOwners,
    Spent,
    cache_checks,
    direct_check,
    engine_check,
    engine_check_under_load,
    guest_checks,
    iothread_check_under_load,
    loops_of,
    mapping_check_under_load,
    spent_by,
    spent_by_crew,
)
from virtune.dialects.qemu import guest
from virtune.dialects.qemu.command import disks_of_argv
from virtune.dialects.qemu.qmp import undo_commands
from virtune.dialects.text.anonymous import Anonymous
from virtune.dialects.text.masking import masked
from virtune.fio.as_asked import load_checks, own_log_checks
from virtune.fio.generator import Clients
from virtune.fio.job import fio_job
from virtune.fio.results import read_result
from virtune.fio.workloads import PROFILES, parse_workload
from virtune.flows.domains.apply import Back, Means, apply, undo, ways_of
from virtune.flows.fleet.here import ended, line_of, place_of, progress_in, progress_of, require_words, said_by
from virtune.flows.fleet.run import RUNS, FleetPolicy, OpenTasks, left_seconds, plan_run
from virtune.flows.run.question import Question, builtins, plan_text, study_for
from virtune.flows.run.study import shows
from virtune.model.counters import thread_role
from virtune.model.domain import SettingChange
from virtune.model.finding import Advice
from virtune.model.fleet import FleetHost, HostEstimate, HostSummary, TaskProgress, TaskState
from virtune.model.knob import Change, Risk
from virtune.model.knobs import BY_ID
from virtune.model.reason import Reason
from virtune.model.stack import (
    BareTarget,
    FileTarget,
    GuestTarget,
    NbdTarget,
    Stack,
    Target,
    VhostUserTarget,
    with_setting,
)
from virtune.model.study import StudyKind
from virtune.model.verdict import Comparison, Interval, Verdict
from virtune.plan.trials import round_seconds, setup_seconds, trial_seconds
from virtune.probe.process import IO_URING, NATIVE, Rings, Thread
from virtune.store.progress import PairProgress, RunProgress

WHEN = datetime(2026, 1, 1, tzinfo=UTC)
AGENT = "<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel><console type='pty'/>"
ALIVE = WEB.replace("  </devices>", f"    {AGENT}\n  </devices>")
MENDED = ALIVE.replace("cache='writeback'", "cache='none'")
CACHE = SettingChange(knob="disk.cache", at="vdb", value="none")
LIMIT = SettingChange(knob="disk.throttle_iops", at="vdb", value="500")
POLLS = SettingChange(knob="iothread.count", at="", value="2")


OWN_NAME = re.compile(r"\b\d{8}-\d{6}-[0-9a-f]{4}\b")
"""A name that is made of the time and by chance."""


def changes() -> Answers:
    """What libvirt is told, and what is said, where a domain is changed and put back, however it misbehaves."""
    quick = Restart(healthy=("guest-agent",), timeout_seconds=0.0, force_off=False)
    ways = (Means(), Means(restart=quick), Means(restart=replace(quick, healthy=(), force_off=True)),
            Means(replug=("vdb",), replug_seconds=0.0), Means(replug=("vda", "vdz")))  # fmt: skip
    backs = (Back(), Back(restart=True, replug=True, replug_seconds=0.0), Back(force_off=True, restart=True))
    fails = ("", "define", "shutdown", "destroy", "start", "resume", "detach-device", "attach-device", "blkdeviotune",
             "iothreadadd", "qemu-agent-command", "domfsinfo")  # fmt: skip
    for means, refused, turns in product(ways, fails, ((CACHE,), (LIMIT, CACHE), (POLLS,))):
        for live, back in ((ALIVE, backs[0]), (None, backs[1]), (ALIVE.replace("destroy<", "restart<"), backs[2]),
                           (ALIVE, backs[1]), (MENDED, backs[2])):  # fmt: skip
            if kept(f"{means}{refused}{turns}{live}{back}", 4):
                yield changed(Shelf(xml=ALIVE, live=live, refused={refused}), means, turns, back)
    advice = Advice(
        turns=(CACHE, LIMIT), after=b"", diff="", effects=((Change.POWEROFF, Risk.NONE), (Change.LIVE, Risk.NONE))
    )
    yield from (ways_of(advice, means, running=running) for means in ways for running in (True, False))


def changed(shelf: Shelf, means: Means, turns: tuple[SettingChange, ...], back: Back) -> Sequence[str]:
    advice = Advice(turns=turns, after=MENDED.encode(), diff="", effects=())
    with tempfile.TemporaryDirectory() as place:
        journal = Journal(Path(place))
        done = asked(
            lambda: flat(apply(shelf, UUID, advice, ALIVE.encode(), journal=journal, when=WHEN, means=means))
        )
        told = [" ".join(shelf.verbs()), *done]
        for entry in journal.entries():
            told += [" ".join(entry.steps)] if hasattr(entry, "steps") else []
            shelf.refused = set()
            told += asked(lambda entry=entry: [undo(shelf, entry, journal=journal, anyway=False, back=back)])
        told += [" ".join(shelf.verbs()), str(shelf.live == ALIVE), str(shelf.xml == ALIVE), shelf.state_word]
    return [OWN_NAME.sub("NAME", line.replace(place, "PLACE")) for line in told]


def tasks() -> Answers:
    """How far a task of a fleet is on its host, by what lies in its directory, and what a run says of its tasks."""
    before = os.environ.get("XDG_DATA_HOME")
    with tempfile.TemporaryDirectory() as home:
        os.environ["XDG_DATA_HOME"] = home
        try:
            yield from ([OWN_NAME.sub("NAME", line.replace(home, "HOME")) for line in lines] for lines in _tasks())
        finally:
            os.environ.pop("XDG_DATA_HOME")
            if before is not None:
                os.environ["XDG_DATA_HOME"] = before


def _tasks() -> Answers:
    pair = PairProgress(
        workload="w", metric="iops", left="", baseline="a", candidate="b", verdict="better", difference="+3 %"
    )
    run = RunProgress(study="s", title="t", done=3, total=9, compared=1, pairs=(pair,))
    runs = (None, run, replace(run, compared=2, decided=1), replace(run, search="racing"), replace(run, pairs=()),
            replace(run, compared=0), replace(run, pairs=(replace(pair, difference=""),)))  # fmt: skip
    for number, (code, how, id_, held, words) in enumerate(
        product((None, 0, 1, 3, 4, 130), runs, ("", "s1"), (True, False), (True, False))
    ):
        place = place_of(f"run-{number}")
        place.path.mkdir(parents=True)
        if words:
            place.words.write_text('["check"]')
        place.study.write_text(id_)
        place.carrier.write_text("1" if id_ else "")
        with place.lock.open("w") as lock:
            if held:
                fcntl.flock(lock, fcntl.LOCK_EX)
            if code is not None:
                ended(f"run-{number}", code=code, said="x" * 2000, hint="h", run=how)
            yield list(flat(progress_of(f"run-{number}")))
    lost = line_of(TaskProgress(state=TaskState.LOST, left_seconds=3))
    wrong = (
        '{"state": "running", "done": -1}',
        '{"state":"failed","code":1e12}',
        '{"state": "killed", "study": "a b"}',
    )
    for text in ("", "{}", '{"state": "running"}', lost, *wrong):
        yield asked(lambda text=text: flat(progress_in(text)))
    for told in ((), ("check",), ("show",), ("compare", "--store", "x"), ("compare", "--store=x"), ("tune", "-q")):
        yield asked(refused, told)
    for log in ("", "a\nb\n", "virtune: error: no\nhint: do\n", "Error: x\n", "x\n\n"):
        yield list(said_by(log))
    yield from _runs()


def refused(words: Sequence[str]) -> Iterator[str]:
    require_words(words)
    yield "a fleet runs this"


def _runs() -> Answers:
    hosts = [FleetHost(name=name, target=name, labels=(("shares", "s"),) if name in "bc" else ()) for name in "abcd"]
    ways = product((1, 2, 9), (None, 2), ("", "a"), ("shares", "none"))
    for number, (at_once, batch, reference, shares) in enumerate(ways):
        policy = FleetPolicy(at_once=at_once, batch=batch, reference=reference, shares=shares, seed=3)
        run = plan_run(hosts, ("check",), policy, now=WHEN + timedelta(hours=number), virtune="v")
        noted = OpenTasks(run)
        yield list(flat(RUNS.find("last")))
        noted.begins(run.tasks[0])
        noted.begins(run.tasks[-1])
        noted.ended(run.tasks[0], TaskProgress(state=TaskState.FINISHED))
        again = OpenTasks(run)
        yield [f"{one in again} {again.is_new(one)}" for one in run.tasks]
        for seconds, done, state in product((None, 60.0), (0, 3, 10), TaskState):
            found = {run.tasks[0].name: TaskProgress(state=state, left_seconds=seconds, done=done, total=10)}
            expected = replace(run, tasks=tuple(replace(one, expected_seconds=30.0) for one in run.tasks))
            yield [f"left {left_seconds(one, found)}" for one in (run, expected)]
    yield asked(lambda: flat(plan_run(hosts, ("check",), FleetPolicy(reference="z"), now=WHEN, virtune="v")))
    for name in ("", "last", "2026", "x", "20260101-01"):
        yield asked(lambda name=name: flat(RUNS.find(name)))


TARGETS = (
    FileTarget(path="/srv/a.raw", size_bytes=2**30), FileTarget(path="/srv/a.raw", size_bytes=2**20, more=("/b",)),
    FileTarget(path="/a", size_bytes=2**30, keeps_cache=True), FileTarget(path="/a;b", size_bytes=2**30),
    GuestTarget(path="/dev/vda", size_bytes=2**30, more=("/dev/vdb",)), FileTarget(path="/a", size_bytes=5000),
    NbdTarget(socket="/run/s", export="e", size_bytes=2**30), BareTarget(size_bytes=2**30, bus="nvme", more=("ide",)),
    VhostUserTarget(socket="/run/s", size_bytes=2**30, queues=2), BareTarget(size_bytes=2**30, number=1),
)  # fmt: skip
SOME_JOBS = (
    "rw=randread,bs=4k,iodepth=8", "rw=randrw,rwmixread=70,numjobs=4,fsync=8", "rw=write,bs=1m,number_ios=100",
    "rw=randwrite,rate_iops=500,iodepth=4", "rw=read,direct=0", "rw=randread,ioengine=psync,numjobs=2",
    "rw=randwrite,sync=1", "rw=trim", "rw=randread,offset=4k,size=1m", "rw=randread,size=50%", "rw=read,loops=2",
    "rw=randread,thinktime=1ms,norandommap=1", "rw=randwrite,zero_buffers=1", "rw=randread,ioengine=nbd",
)  # fmt: skip


def loads() -> Answers:
    """The job that each workload is on each target, for each fio, and what its result is checked against."""
    clients = (
        Clients(engines=frozenset({"io_uring", "libaio", "psync", "nbd", "libblkio"}), installed=True),
        Clients(engines=frozenset({"psync"})), Clients(engines=frozenset({"libaio"}), alike=True, installed=True),
        Clients(engines=frozenset({"io_uring", "libblkio"}), described=True, installed=True),
    )  # fmt: skip
    outputs = [recorded(name).encode() for name in ("randread.both", "clones.both", "rate-met.both")]
    for words, target, (number, client) in product((*PROFILES, *SOME_JOBS), TARGETS, enumerate(clients)):
        if not kept(f"{words}{target}{number}", 3):
            continue

        yield asked(jobs_of, words, target, client, outputs if kept(words, 6) else [])
    result = read_result(recorded("randread.both"))
    told = sum(stream.ios or 0 for load in result.loads for stream in load.streams)
    seconds = max(stream.seconds or 0.0 for load in result.loads for stream in load.streams)
    lines = [f"{500 * (at + 1)}, {told / seconds:.0f}, 0, 4096, 0" for at in range(int(seconds * 2))]
    whole = "\n".join(lines)
    for log in ("", "0,5\n0,6", whole, *(other for _, other in turned_text(whole))):
        yield list(flat(tuple(own_log_checks(result, log.encode()))))


def jobs_of(words: str, target: Target, clients: Clients, outputs: Sequence[bytes]) -> Iterator[str]:
    for one in parse_workload(words):
        job = fio_job(one, target, seconds=1.5, ramp_seconds=0.5, seed=7, clients=clients, identity="i")
        yield from (*job.text.splitlines(), *job.arguments, *flat(job.chosen), str(sorted(job.engines)))
        yield f"{job.direct} {job.program} {job.identity}"
        yield from (line for output in outputs for line in flat(load_checks(job, output)))


def questions() -> Answers:
    """The study that is made of what is asked, for built-in studies and some of a user's own."""
    for one, rig, cpus in product(builtins(), (None, "qemu", "storage-daemon", "metal"), (4, 200)):
        yield asked(lambda one=one, rig=rig, cpus=cpus: plan_text(one.name, rig, cpus=cpus).splitlines())
        yield [f"{one.kind} {one.cells}", *one.compared, *one.rigs, str(one.without)]
    more: tuple[dict[str, object], ...] = (
        {}, {"rounds": 8}, {"budget": 60.0}, {"quick": True}, {"pairs": "all"}, {"at_load": ("50%", "90%")},
        {"metric": "latency.p99"}, {"baseline": "b"}, {"check_data": True}, {"restart": True}, {"seconds": 5.0},
        {"span": 2**20}, {"attempts": 1}, {"workloads": ("oltp", "vdi")}, {"workloads": ("randread-4k", "rw=read")},
        {"settings": ("guests.count=2",)}, {"title": "why"}, {"margin": 0.1, "confidence": 0.9}, {"ramp": 0.0},
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as place:
        varied: dict[str, object] = {"vary": ("disk.aio=threads,io_uring",)}
        arms: dict[str, object] = {"arms": (("a", ("rig=metal",)), ("b", ("disk.aio=native",)))}
        kinds, pairs = (StudyKind.COMPARE, StudyKind.MEASURE, StudyKind.CHECK), tuple(combinations(more, 2))
        for kind, base, (first, then) in product(kinds, ({}, varied, arms), pairs):
            words = base | first | then
            if kept(f"{kind}{words}", 40):
                question = {"kind": kind, "seed": 3, "scratch": Path(place), "rig": "simulated"} | words
                yield [line.replace(place, "PLACE") for line in asked(answered, question)]


def answered(question: Mapping[str, object]) -> Iterator[str]:
    found = study_for(Question(**question))  # type: ignore[arg-type]
    made = replace(found, id="", created="")
    yield from (*flat(made), *([shows(made, made.rounds)] if len(made.arms) > 1 else []))
    stacks = [arm.stack for arm in made.arms]
    yield f"takes {round_seconds(made):g} {setup_seconds(made, bytes_to_fill=2**30, bytes_to_read=2**30):g}"
    yield from (f"takes {trial_seconds(made, replace(stack, rig=rig), busy=2.0):g}" for stack in stacks
                for rig in ("qemu", "storage-daemon", "metal"))  # fmt: skip


def programs() -> Answers:
    """What QEMU is told for each stack and from one to the next, and what its process shows of it."""
    rigs = [replace(Stack(), rig="qemu"), Stack()]
    made = [stack for base in rigs for stack in _stacks(base)]
    for stack in made:

        def told(stack: Stack = stack) -> Iterator[str]:
            commands = (*guest.first_commands(stack, 2**30, read_only=False), *guest.attached(stack))
            threads = guest.thread_commands(stack)
            removed = undo_commands(threads)
            yield from flat((commands, threads, removed, guest.plugged(stack), guest.memory_words(stack.machine)))
            yield from guest.machine_arguments(stack)
            yield from loops_of(stack)

        yield asked(told)
    for old, new in pairwise(made):
        yield list(flat(guest.switch_method(old, new)))
        yield list(flat(guest.switch_method(new, old)))
    yield from _checks(made)


def _stacks(base: Stack) -> Iterator[Stack]:
    for knob, (value, needs) in sorted(EXAMPLES.items()):
        if knob != "machine.emulator":
            with contextlib.suppress(ValueError, TypeError):
                one = base
                for word in (*needs, f"{knob}={value}"):
                    name, _, text = word.partition("=")
                    one = with_setting(one, BY_ID[name], BY_ID[name].read(text))
                yield one


def _checks(made: Sequence[Stack]) -> Answers:
    rings = ((IO_URING, 3), (NATIVE, 4))
    for asks, moved, hidden, workers, io, alone, loops, flushes in product(
        ("threads", "native", "io_uring"), (None, 0, 5), (frozenset[str](), frozenset({NATIVE})),
        (0, 10**6, 10**8), (0, 10**9), (True, False), (True, False), (True, False),
    ):  # fmt: skip
        activity = Activity(moved={rings[asks == "native"]: moved}, hidden=hidden, workers_ns=workers, io_ns=io,
                            alone=alone, loop_rings=loops, flushes=flushes)  # fmt: skip
        yield list(flat(engine_check_under_load(asks, activity)))
    for asks, came in product(("threads", "native"), ((), rings[:1], rings)):
        yield list(flat(engine_check(asks, came, Rings(places={}))))
    seen = {
        "write_cache": "write back", "queues": "2", "features": "1" * 40, "scheduler": "[none]", "nr_requests": "9",
        "queue_depth": "31", "logical_block_size": "512", "physical_block_size": "4096",
    }  # fmt: skip
    threads = [Thread(tid=number, name=name, cpu_ns=10**8 * number) for number, name in
               enumerate(("qemu", "IO io1", "IO io2", "CPU 0/KVM", "worker", "iou-wrk-1"), 1)]  # fmt: skip
    spends = (spent_by(1, threads), spent_by(9, threads[1:3]), spent_by_crew(threads, {1}), Spent(by_role={}))
    yield list(flat(spends))
    yield [f"{thread_role(one.name, main=main)}" for one in threads for main in (True, False)]
    for stack in made:
        for writes, shown in ((True, seen), (False, {}), (True, {"features": "0" * 40})):
            yield list(flat(tuple(guest_checks(stack, shown, vcpus=4, writes=writes))))
        for spent in spends:
            yield list(flat((iothread_check_under_load(stack, spent), mapping_check_under_load(stack, spent))))
        for direct, flush in product(("on", "off", None), (True, False)):
            held, nodes = Opened(direct=direct, proof="p"), [{"node-name": "file0", "cache": {"no-flush": flush}}]
            yield list(flat((direct_check(stack.disk, held), *cache_checks(stack, held, nodes))))
    owners = RingOwners()
    owners.add(("main",), [rings[0]])
    yield list(flat((owners.of(("main", "io1")), owners.of(("io1",)))))
    node = {"driver": "file", "filename": "/a", "aio": "native", "cache": {"direct": True, "no-flush": False}}
    for flag, changed in product(("-blockdev", "-drive"), (*({**node, key: None} for key in node), node, [], 3)):
        yield list(flat(disks_of_argv(["qemu", flag, json.dumps(changed)])))


def secrets() -> Answers:
    """What is left of recorded files in which one line or word is turned, masked and anonymous."""
    names = [one for one in sorted(FOLDER.parent.rglob("*")) if one.suffix in (".xml", ".conf", ".yaml", ".vmx")]
    for path in names[::4]:
        text = path.read_text(errors="replace").replace("<uuid>", "<password>S3CR</password><uuid>")
        for way, other in turned_text(text):
            if kept(f"{path.name}{way}", 1 + len(text) // 60):
                words = Anonymous((("host", "web1"),), ours=("libvirt",))
                words.learn(other)
                yield [line.strip() for line in masked(words.cleaned(other)).splitlines()]


def fleets() -> Answers:
    """What hosts of a fleet say together, of estimates of which one thing is turned."""

    asked_of_all = study(workload("w"))
    base = {f"h{number}": summary(number) for number in range(9)}
    yield list(flat(answer(asked_of_all, base)))
    for host in list(base)[:3]:
        for other in each([base[host]], 1):
            yield asked(lambda other=other, host=host: flat(answer(asked_of_all, {**base, host: other})))
    for count in range(1, 6):
        yield asked(lambda count=count: flat(answer(asked_of_all, dict(list(base.items())[:count]))))
    first = estimate("a", 1.0, 0)
    for other in each([estimate("a", 1.1, 5)], 1):
        yield asked(lambda other=other: flat(drift_between(first, other, workload="w", metric="iops")))


def estimate(host: str, value: float, hours: float) -> HostEstimate:
    begun = WHEN + timedelta(hours=hours)
    return HostEstimate(host=host, value=value, error=0.01, df=7, begun=begun, ended=begun + timedelta(minutes=5))


def summary(number: int) -> HostSummary:
    change = 1.1 if number != 4 else 0.8
    found = Comparison(
        workload="w", metric="iops", baseline="a", candidate="b", rounds=8, noise=0.02 + number / 1000,
        ratio=Interval(estimate=change + number / 100, low=change - 0.02, high=change + 0.1, confidence=0.95),
        verdict=Verdict.BETTER, why="", reason=Reason.BETTER_SIDE,
    )  # fmt: skip
    level = estimate("", 9.0 + number / 50 - (number == 4), number / 10)
    facts = {"cpu": "old" if number == 4 else "new", "kernel": f"6.{number % 2}", "memory": "64 GiB"}
    return HostSummary(
        study=f"s{number}", source=f"{number}", begun=level.begun, ended=level.ended, verdicts=(found,),
        levels=(("w", level),), facts=facts, methods=(number % 2,),
    )  # fmt: skip


WORLDS: Mapping[str, Callable[[], Answers]] = {
    "changes": changes, "tasks": tasks, "loads": loads, "questions": questions, "programs": programs,
    "secrets": secrets, "fleets": fleets,
}  # fmt: skip
