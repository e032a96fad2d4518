# SPDX-License-Identifier: Apache-2.0
"""Subjects of the census that are judged from series: a host's fitness, alarms over looks, knees, periods,
histograms; and job files and names of users.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from tests.analyse.host_records import host
from tests.analyse.swept_disks import run as swept_disk
from tests.analyse.verdict_runs import asked_of
from tests.analyse.verdict_runs import run as judged_run
from tests.golden.census import flat
from tests.golden.turned import Answers, asked, kept, turned_text
from tests.live_samples import BINS, frames

from virtune.analyse.study.offered_load import knee_of
from virtune.analyse.study.summarise import fitness_of, summarise
from virtune.analyse.trial.usage import operation_times, period_remarks, strongest_period
from virtune.analyse.watch import Alarms, looks_of, slow_windows
from virtune.dialects.languages import LANGUAGES
from virtune.dialects.libvirt.disk import plug_xml
from virtune.dialects.qemu.guest import GuestMachine, machine_argv
from virtune.dialects.text.anonymous import Anonymous
from virtune.fio.generator import Clients
from virtune.fio.job import fio_job
from virtune.fio.workloads import read_job_file
from virtune.model.bottleneck import DiskFrame, DiskLook, TopFrame, WatchRule
from virtune.model.domain import SettingChange
from virtune.model.evidence import StudyRecord, TrialRecord
from virtune.model.live import LatencyBins, OperationKind
from virtune.model.remark import GATE_BY_ID as BY_GATE
from virtune.model.remark import GATES, Gate, Remark
from virtune.model.result import LoadPoint, Neighbour
from virtune.model.search import SweepPlan
from virtune.model.stack import (
    BareTarget,
    Disk,
    FileTarget,
    GuestTarget,
    Machine,
    NbdTarget,
    Stack,
    Target,
    VhostUserTarget,
)
from virtune.model.study_options import Pairs
from virtune.model.text import Bytes
from virtune.plan.goal import LIVE_METRICS, parse_limit, parse_rule

LIMITS = {one.id: tuple(at for at in (one.flag, one.invalid) if at is not None) for one in GATES}


def disturbed(chance: random.Random, one: TrialRecord) -> TrialRecord:
    """The trial with readings at and beside their limits and what is said of them, and with fewer windows or none."""
    if one.measurement is None or chance.random() < 0.1:
        return replace(one, measurement=None)
    gates = tuple(
        (gate.id, chance.choice(LIMITS[gate.id]) * chance.choice((0.4, 0.8, 0.81, 1.0, 1.01, 1.9, 2.1)))
        for gate in GATES
        if LIMITS[gate.id] and chance.random() < 0.3
    )
    said = (remarked(BY_GATE[name], f"{name} {value:.3f}") for name, value in gates)
    kept_to = one.measurement.profile[: chance.choice((0, 3, 4, 8, 16, 16, 16, 16))]
    profile = (
        tuple(chance.choice((value, value, value, 0.0)) for value in kept_to) if chance.random() < 0.1 else kept_to
    )
    return replace(one, measurement=replace(one.measurement, gates=gates, remarks=tuple(said), profile=profile))


def remarked(gate: Gate, text: str) -> Remark:
    return gate.remark(text=text, weight=gate.weights[0])


def fitnesses() -> Answers:
    """What checks show of their hosts: noise, memory, drift, gates at and beside their limits, a neighbour."""
    for seed in range(90):
        chance = random.Random(seed)
        record = host(
            sd=chance.choice((0.001, 0.05, 0.4)), rho=chance.choice((0.0, 0.9)), drift=chance.choice((0.0, 0.1)),
            rounds=chance.choice((1, 2, 3, 4, 9)), seed=seed,
        )  # fmt: skip
        often = chance.choice((0.1, 1.0))  # where each is disturbed nothing is promised
        record = replace(
            record,
            trials=tuple(disturbed(chance, one) if chance.random() < often else one for one in record.trials),
        )
        if seed % 5 == 4:
            first = record.trials[: len(record.trials) // 2]
            record = replace(record, attempts=tuple(disturbed(chance, one) for one in first) + record.trials)
        near = (Neighbour(pid=7, name="fio", cpus=chance.random(), bandwidth_bps=None),) if seed % 3 else None
        findings = [remarked(gate, "found") for gate in GATES if gate.weights and chance.random() < 0.5]
        yield asked(fitness, record, near, findings)


def fitness(record: StudyRecord, near: tuple[Neighbour, ...] | None, findings: Sequence[Remark]) -> Iterator[str]:
    return flat(fitness_of(record, neighbours=near, findings=findings))


def looked(chance: random.Random, found: TopFrame, at: float, long: float) -> TopFrame:
    """The frame with other times of its requests, and now and then without a VM, or without a VM's disks."""

    def changed(one: DiskFrame) -> DiskFrame:
        layers = one.path.layers
        if layers is None:
            return one
        slower = replace(layers, total_ns=layers.total_ns * chance.choice((0.1, 1, 1, 8, 40)))
        rates = replace(one.rates, seconds=long)
        path = replace(one.path, layers=slower, iops=one.path.iops * chance.choice((0, 1, 3)))
        if chance.random() < 0.2:
            path = replace(
                path, layers=None, iops=0.0, held=chance.choice((None, 3)), held_seconds=chance.choice((0.5, 40))
            )
        every: tuple[OperationKind, ...] = ("read", "write", "flush")
        some = (LatencyBins(BINS.boundaries_ns, tuple(chance.choice((0, 5, 90)) for _ in BINS.bins)) for _ in every)
        times = dict(zip(chance.sample(every, chance.choice((0, 1, 2))), some, strict=False))
        return replace(one, path=path, rates=rates, histograms=times)

    vms = tuple(
        replace(vm, disks=() if chance.random() < 0.1 else tuple(map(changed, vm.disks)))
        for vm in found.vms
        if chance.random() > 0.1
    )
    return replace(found, vms=vms, wall_seconds=at, seconds=long)


def rule(chance: random.Random, lasting: str) -> WatchRule:
    metric = chance.choice((*sorted(LIVE_METRICS), "oldest", "cpu_per_io", "latency.mean", "iops"))
    values = {"iops": ("1", "9000"), "bandwidth": ("1MB/s", "60MB/s")}.get(metric.rpartition(".")[2])
    return parse_rule(
        f"{metric} {chance.choice('<>')} {chance.choice(values or ('1us', '90us', '20ms', '500ms', '1s'))}{lasting}"
    )


def alarms() -> Answers:
    """What rules say of looks, and what is kept of them and told afterwards."""
    every = frames(9)
    for seed in range(60):
        chance = random.Random(seed)
        rules = [rule(chance, lasting) for lasting in ("", " for 2s", " for 4s") for _ in range(2)]
        judged, told, looks, at = Alarms(rules), list[str](), list[DiskLook](), 100.0
        for number in range(16):
            long = chance.choice((0.5, 1, 1, 2))
            at += long * chance.choice((1, 1, 1, 2.9, 3, 3.1, 9))
            now = looked(chance, every[number % len(every)], at, long)
            told += flat(tuple(judged.look(now)))
            looks[:0] = looks_of(now)  # the newest first
        yield [*told, *flat(judged.raised), *flat(slow_windows(looks)), *flat(tuple(looks[-3:]))]


def knees() -> Answers:
    """Where the knee of made-up curves is: few loads and many, one of two tops, a limit that is passed or missed."""
    for seed in range(400):
        chance = random.Random(seed)
        top, rounds = chance.randrange(6), chance.choice((1, 2, 3, 9))
        points = []
        for at in range(chance.choice((2, 3, 4, 6, 8))):
            offered = 1000.0 * (at + 1)
            power = [-0.3 * abs(at - top) + chance.gauss(0, chance.choice((0.01, 0.3))) for _ in range(rounds)]
            points.append(LoadPoint(
                workload=f"w{at}", offered=offered, achieved=(offered * chance.choice((0.7, 1.0)),),
                met=chance.random() < 0.7, latency_ns=1e5 * (at + 1), power=tuple(power),
                excess=tuple(one - 0.5 for one in power) if seed % 2 else (),
            ))  # fmt: skip
        yield list(flat(knee_of(points)))


def periods() -> Answers:
    """What repeats in the latencies of single I/Os, and what is read of logs of which one line is another."""
    for seed, (every, count) in enumerate(product((2, 3, 7, 40), (10, 60, 240))):
        chance = random.Random(seed)
        times = [
            int(1000 * (1 + (number % every == 0) * chance.choice((0, 3))) + chance.random() * 50)
            for number in range(count)
        ]
        log = "\n".join(f"{number}, {one}, 0, 4096, 0" for number, one in enumerate(times))
        yield list(
            flat((strongest_period(times), operation_times(log.encode()), tuple(period_remarks(log.encode()))))
        )
        if count == 10:
            yield from (list(flat(operation_times(other.encode()))) for _, other in turned_text(log))


def bins() -> Answers:
    """Percentiles of histograms as QEMU keeps them, and what two together are."""
    for seed in range(60):
        chance = random.Random(seed)
        ends = tuple(sorted(chance.sample(range(1, 9), chance.choice((1, 2, 4)))))
        one, other = (LatencyBins(ends, tuple(chance.choice((0, 0, 1, 9, 90)) for _ in (*ends, 0))) for _ in range(2))
        told = [one.percentile_ns(percent) for percent in (0, 1, 50, 90, 99, 99.9, 100)]
        shifted = replace(other, boundaries_ns=tuple(end + seed % 2 for end in ends))
        yield list(flat((tuple(told), one.plus(other), one.plus(other, -1), one.plus(shifted))))


JOB_FILE = """[global]
ioengine=libaio
direct=1
bs=8k
size=64m
runtime=2
[reads]
rw=randread
iodepth=16
[log]
rw=write
fsync=1
offset=1m
number_ios=9
description=mine
zero_buffers=1
"""
TARGETS: tuple[Target, ...] = (
    FileTarget(path="/srv/a.raw", size_bytes=2**30), NbdTarget(socket="/run/s", export="e", size_bytes=2**30),
    GuestTarget(path="/dev/vda", size_bytes=2**30), BareTarget(size_bytes=2**30, bus="virtio-blk"),
    VhostUserTarget(socket="/run/s", size_bytes=2**30, queues=2),
)  # fmt: skip
IN_PLACE = {
    "ioengine=libaio": ("ioengine=nbd", "ioengine=psync", "thread=1"), "direct=1": ("direct=0", "fdatasync=1"),
    "size=64m": ("size=50%", "loops=3", "io_size=1m"), "runtime=2": ("runtime=3s", "runtime=1500ms", "ramp_time=1"),
    "rw=write": ("rw=randrw", "rw=read", "rw=trim"), "number_ios=9": ("rate_iops=9", "numjobs=4"),
}  # fmt: skip
"""What stands in place of an option of the job file."""


def job_files() -> Answers:
    """How a user's own job file is run on each target, with one or two of its lines another or gone."""
    clients = Clients(engines=frozenset({"io_uring", "libaio", "psync", "nbd", "libblkio"}), installed=True)
    texts = dict.fromkeys(
        [JOB_FILE, *(JOB_FILE.replace(word, new) for word, some in IN_PLACE.items() for new in some)]
    )
    texts |= dict.fromkeys(
        other for text in list(texts) for way, other in turned_text(text) if kept(f"{text}{way}", 8)
    )
    for target, text in product(TARGETS, texts):
        yield asked(run_on, text, target, clients)


def run_on(text: str, target: Target, clients: Clients) -> Iterator[str]:
    job = fio_job(
        read_job_file(text, "/j.fio"), target, seconds=2.0, ramp_seconds=0.0, seed=7, clients=clients, identity="i"
    )
    return flat(job)


def names() -> Answers:
    """What stands for names and addresses in a document, many of each kind, and the same ones again."""
    cleaner = Anonymous()
    document = {
        "hosts": [{"ip": f"10.{at // 200}.{at % 7}.{at % 251}", "mac": f"aa:bb:cc:00:{at % 256:02x}:{at // 256:02x}"}
                  for at in range(600)],
        "disks": [{"path": f"/srv/{at}/vm.qcow2", "uuid": f"deadbeef-0000-4000-8000-{at:012x}", "serial": f"S3{at}X"}
                  for at in range(20)],
        "image": {"born_ns": 5, "device": "naa.5001 8:0 /dev/sda", "name": "web1"},
        "net": ["fe80::1", "2a01:4f8::9", "::1", "192.168.0.7", "localhost", "db.example.com"],
        "pool": "tank/vms", "number": 5, "none": None,
    }  # fmt: skip
    cleaner.learn_value(document)
    for one in (document, document["net"], {"again": "10.0.0.0 and 10.0.1.1", "source": "/srv/3/vm.qcow2"}):
        yield list(flat(cleaner.cleaned_value(one)))
    yield [json.dumps(cleaner.cleaned_value(document))]


def sweeps() -> Answers:
    """What sweeps of a simulated disk end in, with a limit or without, few loads or a search for them."""
    limits = (None, "latency.mean < 1ms", "latency.p99 < 3ms", "latency.p99 < 1us", "iops > 1000")
    for seed, (limit, loads, noise) in enumerate(product(limits, ((), ("20%", "60%", "90%", "130%")), (0.005, 0.2))):
        plan = SweepPlan(limit=None if limit is None else parse_limit(limit), loads=loads)

        def told(plan: SweepPlan = plan, seed: int = seed, noise: float = noise) -> Iterator[str]:
            return flat(swept_disk(plan, seed=seed, noise=noise))

        yield asked(told)


def summaries() -> Answers:
    """What comparisons of made-up arms say: dips, levels that last, a slow first trial, rounds that failed."""
    for seed in range(110):
        chance = random.Random(seed)
        arms = chance.choice(("ab", "ab", "abc", "abcd"))
        count = chance.choice((1, 2, 3, 5, 8, 14, 30))
        odd = {(arm, number): factor for arm in arms for number, factor in oddities(chance, count)}
        pairs: Pairs = chance.choice(("all", "baseline"))
        question = asked_of(arms, pairs=pairs, rounds=max(count, chance.choice((1, 8, 40))))
        if seed % 4 == 3:
            question = replace(question, sequential=False, metric=chance.choice(("iops", "latency.p99")))
        better, noise = chance.choice((1.0, 1.0, 1.02, 1.3)), chance.choice((0.002, 0.03, 0.3))
        record = judged_run(question, count, better=better, noise=noise, seed=seed, odd=odd)
        again = tuple(replace(one.trial, restart=chance.random() < 0.5) for one in record.trials)
        made = [replace(one, trial=trial) for one, trial in zip(record.trials, again, strict=True)]
        if seed % 3 == 1:
            made = [replace(one, measurement=None, failure="broke") if chance.random() < 0.1 else one for one in made]
        record = replace(record, study=replace(record.study, trials=again), trials=tuple(made), attempts=tuple(made))
        yield asked(summary, record)


def oddities(chance: random.Random, count: int) -> list[tuple[int, float]]:
    """Rounds in which an arm does something else: a dip, a level that lasts, the first one slow, a drift."""
    kind = chance.randrange(6)
    rounds = range(1, count + 1)
    if kind == 0:
        return [(number, 0.3) for number in rounds if chance.random() < 0.2]
    if kind == 1:
        return [(number, 1.4) for number in rounds if number // 5 % 2]
    if kind == 2:
        return [(1, chance.choice((0.5, 1.6)))]
    return [(number, 1 + number / 20) for number in rounds] if kind == 3 else []


def summary(record: StudyRecord) -> Iterator[str]:
    return flat(summarise(record))


PLACES = ("vda", "sda", "sdg", "hda", "hdc", "sdh", "sdp", "sdq", "sdz", "sdab", "vdzz", "xvda", "sdc1", "a", "fda")
BUS_NAMES = ("scsi", "sata", "ide", "virtio", "usb")


def plugs() -> Answers:
    """How a disk is plugged into a domain, by every name and bus, and which machine a test guest is."""
    text = """<domain type='kvm'><name>a</name><memory>1048576</memory><os><type>hvm</type></os><devices>
<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='/a'/><target dev='{}' bus='{}'/></disk>
<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='/b'/><target dev='sdb' bus='{}'/></disk>
<controller type='scsi' index='0' model='virtio-scsi'/><controller type='scsi' index='2' model='virtio-scsi'/>
</devices></domain>"""
    for name, bus, other in product(PLACES, BUS_NAMES, BUS_NAMES):
        for to in ("virtio-scsi", "sata", "virtio-blk", "ide"):
            if kept(f"{name}{bus}{other}{to}", 2):
                turn = SettingChange(knob="device.bus", at=name, value=to)
                yield asked(moved, text.format(name, bus, other).encode(), turn)
    for stack, writable in product((Stack(), replace(Stack(), disk=Disk(cache="none", aio="native"))), (True, False)):
        yield asked(plugged, stack, writable)
    for kernel, kvm, vcpus, agent, file, resumes in product(
        ("/k/vmlinux", "/k/bzImage"), (True, False), (1, 4), (None, 9), (None, 11), (True, False)
    ):
        for machine in (Machine(), Machine(type="pc"), Machine(type="microvm"), Machine(memory=Bytes(2**31))):
            guest = GuestMachine(
                kernel=kernel, initramfs="/k/i", console="/c", channels=(5, 6)[: vcpus - 1], monitor=7, kvm=kvm,
                agent=agent, vcpus=vcpus, asked=machine, memory_file=file, resumes=resumes,
            )  # fmt: skip
            yield asked(booted, guest)


def booted(machine: GuestMachine) -> Iterator[str]:
    yield " ".join(machine_argv("/q", machine))  # as one line: which option goes with which counts


def moved(text: bytes, turn: SettingChange) -> Iterator[str]:
    (language,) = (one for one in LANGUAGES if one.name == "libvirt")
    yield from language.alter(text, turn).decode().splitlines()


def plugged(stack: Stack, writable: bool) -> Iterator[str]:
    for target in ("vda", "sdb"):
        yield from plug_xml(stack, image="/i", target=target, name="n", writable=writable).splitlines()


JUDGED: Mapping[str, Callable[[], Answers]] = {
    "fitnesses": fitnesses, "alarms": alarms, "knees": knees, "periods": periods, "bins": bins,
    "job_files": job_files, "names": names, "sweeps": sweeps, "summaries": summaries, "plugs": plugs,
}  # fmt: skip
