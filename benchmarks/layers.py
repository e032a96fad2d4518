# SPDX-License-Identifier: Apache-2.0
"""Is the limit named that was planted? Fourteen kinds at two doses each, and loads with nothing planted.

    python benchmarks/layers.py run DIRECTORY [--minutes N] [--trials N] [--only KIND] [--seconds S] [--shares N]
    python benchmarks/layers.py again DIRECTORY     judge all kept trials by the rules of today
    python benchmarks/layers.py report DIRECTORY    the confusion matrix

Each trial is diagnosed as `virtune diagnose --run STUDY:TRIAL` does, appended to DIRECTORY/trials.jsonl, and kept
with its evidence in DIRECTORY/layers.sqlite. So a run may be interrupted at any time and goes on where it stopped,
and after a change of the rules nothing has to be measured again. Blocks of trials come in random order. Needs root (a
control group, a loop device). `--shares` runs all of it in a control group with so many CPU shares (1024 is what
everybody has), so that others on the machine disturb less; hogs that are planted are in the same group.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from scipy.stats import t as student

from virtune.analyse.trial.counters import read_counters
from virtune.analyse.trial.usage import use, used_by
from virtune.fio.workloads import parse_workload
from virtune.flows.live.diagnose import diagnose_study
from virtune.flows.run.preconditions import Leave
from virtune.flows.run.study import new_study, prepared
from virtune.flows.run.trial import run_trial
from virtune.model.bottleneck import Cause, Diagnosis
from virtune.model.evidence import TrialRecord
from virtune.model.metric import Boundary
from virtune.model.study import Study, StudyKind
from virtune.plan.arms import base_stack, make_arm
from virtune.store.store import Store

HOG = "while True: pass"
SPAN, CACHED = 256 << 20, 32 << 20
"""How much is loaded; what is to come from the page cache must be there soon."""

BUSY_CPUS = 0.2
"""From this many CPUs that others than the rig, the load and planted hogs used, the host counts as busy."""

EXPORT = ("rig=vhost-user", "disk.backend=null-co", "export.iothread=on")
DAEMON = ("rig=storage-daemon", "disk.backend=null-co")
DAEMON_FILE = ("rig=storage-daemon", "disk.cache=none")
COPYING = ("rig=vhost-user", "disk.cache=none", "disk.aio=native", "export.iothread=on")
"""On a file in memory the IOThread copies every block itself."""

BARE = ("rig=qemu", "guest.system=bare", "device.iothread=iothread0")
GUEST = (*BARE, "disk.backend=null-co")
PINNED = (*GUEST, "vcpu.pin=0", "iothread.pin=1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """One dose of a kind: the settings and the load, what is planted beside them, and what must be named.

    `hogs` are CPUs, each with how many hogs run there. `read_iops` is the limit of a control group on the disk,
    `loop_ns` the latency of a loop device over a FUSE file, `neighbour` the depth of another load on the same disk.
    `word` must be in the evidence, `span` is how much of the disk is loaded, in a file in
    `memory` or on the disk. `size_ns` is the planted time and `at`
    the layer that must show it.
    """

    kind: str
    causes: tuple[Cause, ...]
    settings: tuple[str, ...]
    load: str
    hogs: tuple[tuple[int, int], ...] = ()
    read_iops: int | None = None
    loop_ns: int | None = None
    neighbour: int | None = None
    word: str = ""
    span: int = SPAN
    memory: bool = False
    size_ns: float | None = None
    at: Boundary = "backend"

    @property
    def name(self) -> str:
        """The kind with its dose, the same in every run."""
        beside = [f"hogs={count}@{cpu}" for cpu, count in self.hogs]
        others = {"read_iops": self.read_iops, "loop_ns": self.loop_ns, "neighbour": self.neighbour}
        beside += [f"{name}={value}" for name, value in others.items() if value]
        return " ".join((self.kind, *(one for one in self.settings if one not in GUEST), self.load, *beside))


def latency(microseconds: int) -> str:
    """The setting of a null-co that answers after so long."""
    return f"disk.null_latency_ns={microseconds * 1000}"


def reads(depth: int, more: str = "") -> str:
    """Random reads of 4 KiB."""
    return f"rw=randread,bs=4k,iodepth={depth}{more}"


PLANTED: tuple[Planted, ...] = (
    Planted(kind="null-co latency", causes=(Cause.DEVICE,), settings=(*GUEST, latency(500)), load=reads(4),
            size_ns=5e5),
    Planted(kind="null-co latency", causes=(Cause.DEVICE,), settings=(*GUEST, latency(5000)), load=reads(8),
            size_ns=5e6),
    Planted(kind="throttle", causes=(Cause.THROTTLE,), settings=(*DAEMON, "disk.throttle_iops=500"), load=reads(8)),
    Planted(kind="throttle", causes=(Cause.THROTTLE,), settings=(*GUEST, "disk.throttle_iops=2000"), load=reads(16)),
    Planted(
        kind="cgroup limit", causes=(Cause.THROTTLE,), settings=("rig=metal",), load=reads(8), read_iops=200,
        word="control group",
    ),
    Planted(
        kind="cgroup limit", causes=(Cause.THROTTLE,), settings=("rig=metal",), load=reads(16), read_iops=1500,
        word="control group",
    ),
    Planted(
        kind="slow loop device", causes=(Cause.DEVICE,), settings=("rig=metal",), load=reads(4), loop_ns=1_000_000,
    ),
    Planted(kind="slow loop device", causes=(Cause.DEVICE,), settings=DAEMON_FILE, load=reads(4), loop_ns=5_000_000),
    Planted(
        kind="IOThread beside a hog", causes=(Cause.HOST_CPU,), settings=PINNED, load=reads(8), hogs=((1, 1),),
        word="IO iothread0",
    ),
    Planted(
        kind="IOThread beside a hog", causes=(Cause.HOST_CPU,), settings=PINNED, load=reads(8), hogs=((1, 3),),
        word="IO iothread0",
    ),
    Planted(
        kind="IOThread saturated", causes=(Cause.IOTHREAD,), settings=COPYING, load="rw=randread,bs=64k,iodepth=16",
        span=CACHED, memory=True,
    ),
    Planted(
        kind="IOThread saturated", causes=(Cause.IOTHREAD,), settings=COPYING, load="rw=randread,bs=256k,iodepth=8",
        span=CACHED, memory=True,
    ),
    Planted(
        kind="worker pool of 1", causes=(Cause.WORKERS,),
        settings=(*BARE, "disk.aio=threads", "iothread.thread_pool_max=1"), load=reads(8),
    ),
    Planted(
        kind="worker pool of 1", causes=(Cause.WORKERS,),
        settings=(*BARE, "disk.aio=threads", "iothread.thread_pool_max=1"), load=reads(32),
    ),
    Planted(
        kind="vCPU beside a hog", causes=(Cause.HOST_CPU,), settings=PINNED, load=reads(8), hogs=((0, 1),),
        word="CPU 0",
    ),
    Planted(
        kind="vCPU beside a hog", causes=(Cause.HOST_CPU,), settings=PINNED, load=reads(8), hogs=((0, 3),),
        word="CPU 0",
    ),
    Planted(kind="guest at 100 % CPU", causes=(Cause.VCPU,), settings=GUEST,
            load="rw=randwrite,bs=64k,iodepth=8,refill_buffers=1"),
    Planted(kind="guest at 100 % CPU", causes=(Cause.VCPU,), settings=GUEST,
            load="rw=randwrite,bs=256k,iodepth=32,refill_buffers=1"),
    Planted(kind="depth 1", causes=(Cause.DEPTH,), settings=(*EXPORT, latency(500)), load=reads(1)),
    Planted(kind="depth 1", causes=(Cause.DEPTH,), settings=(*GUEST, latency(5000)), load=reads(1)),
    Planted(
        kind="client-bound", causes=(Cause.LOAD,), settings=EXPORT,
        load="rw=randwrite,bs=64k,iodepth=8,refill_buffers=1",
    ),
    Planted(
        kind="client-bound", causes=(Cause.LOAD,), settings=EXPORT,
        load="rw=randwrite,bs=256k,iodepth=16,refill_buffers=1",
    ),
    Planted(
        kind="qcow2 L2 cache", causes=(Cause.BACKEND,), load=reads(8), word="table",
        settings=(*DAEMON_FILE, "disk.format=qcow2", "disk.cluster_size=4k", "disk.l2_cache_size=8k"),
    ),
    Planted(
        kind="qcow2 L2 cache", causes=(Cause.BACKEND,), load=reads(8), word="table",
        settings=(*DAEMON_FILE, "disk.format=qcow2", "disk.cluster_size=4k", "disk.l2_cache_size=64k"),
    ),
    Planted(
        kind="page cache", causes=(Cause.PAGE_CACHE,), settings=("rig=storage-daemon", "disk.cache=writeback"),
        load=reads(4), span=CACHED,
    ),
    Planted(
        kind="page cache", causes=(Cause.PAGE_CACHE,), settings=("rig=storage-daemon", "disk.cache=writeback"),
        load=reads(16), span=CACHED,
    ),
    Planted(
        kind="noisy neighbour", causes=(Cause.DEVICE,), settings=DAEMON_FILE, load=reads(4), neighbour=16,
        word="other",
    ),
    Planted(
        kind="noisy neighbour", causes=(Cause.DEVICE,), settings=("rig=metal",), load=reads(4), neighbour=64,
        word="other",
    ),
    Planted(kind="nothing", causes=(Cause.NOT_BOUND, Cause.UNDECIDED), settings=(*EXPORT, latency(100)),
            load=reads(4, ",rate_iops=200")),
    Planted(kind="nothing", causes=(Cause.NOT_BOUND, Cause.UNDECIDED), settings=(*GUEST, latency(100)),
            load=reads(4, ",rate_iops=500")),
)  # fmt: skip


@contextlib.contextmanager
def hogs(planted: Planted) -> Iterator[list[int]]:
    """Run the planted hogs; yields their process ids."""
    children = []
    try:
        for cpu, count in planted.hogs:
            words = f"import os; os.sched_setaffinity(0, {{{cpu}}})\n{HOG}"
            children += [subprocess.Popen([sys.executable, "-c", words]) for _ in range(count)]
        yield [child.pid for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()


@contextlib.contextmanager
def group(controller: str, values: dict[str, str]) -> Iterator[None]:
    """Be in a control group (version 1) of that name while the block runs; what is started meanwhile stays in it."""
    root = Path("/sys/fs/cgroup") / controller
    mine = root / f"layers-{os.getpid()}"
    mine.mkdir()
    try:
        for name, value in values.items():
            (mine / name).write_text(value)
        (mine / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        for pid in (mine / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (root / "cgroup.procs").write_text(pid)
        mine.rmdir()


def loop_device(directory: Path, latency_ns: int) -> contextlib.AbstractContextManager[Path]:
    """Yield a loop device over a FUSE file that is a null-co of that latency."""
    return looped(directory, f"null-co,size={SPAN},latency-ns={latency_ns}", SPAN)


@contextlib.contextmanager
def looped(directory: Path, node: str, size: int) -> Iterator[Path]:
    """Yield a loop device over a FUSE file that is this node of a storage daemon."""
    file = directory / "slow"
    file.touch()
    words = ["qemu-storage-daemon", "--blockdev", f"{node},node-name=n"]
    words += ["--export", f"fuse,id=e,node-name=n,mountpoint={file},writable=on"]
    with subprocess.Popen(words) as daemon:
        try:
            until = time.monotonic() + 20
            while file.stat().st_size < size and time.monotonic() < until:
                time.sleep(0.02)
            words = ["losetup", "--find", "--show", "--direct-io=on", str(file)]
            said = subprocess.run(words, check=True, capture_output=True, text=True)
            try:
                yield Path(said.stdout.strip())
            finally:
                subprocess.run(["losetup", "--detach", said.stdout.strip()], check=False)
        finally:
            daemon.terminate()


@contextlib.contextmanager
def neighbour(directory: Path, depth: int) -> Iterator[None]:
    """Load another file on the same disk while the block runs."""
    file = directory / "neighbour"
    if not file.exists():
        words = ["--name=fill", "--rw=write", "--bs=1M", "--size=256M", "--direct=1", f"--filename={file}"]
        subprocess.run(["fio", *words], check=True, capture_output=True)
    words = ["--name=n", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=libaio", f"--iodepth={depth}"]
    words += ["--size=256M", f"--filename={file}", "--time_based", "--runtime=600"]
    with subprocess.Popen(["fio", *words], stdout=subprocess.DEVNULL) as child:
        try:
            time.sleep(0.5)
            yield
        finally:
            child.terminate()


def cpu_seconds(pids: list[int]) -> float:
    """What processes have used."""
    found = 0.0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        found += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def study_of(planted: Planted, directory: Path, trials: int, seconds: float, target: Path | None) -> Study:
    """The study of one block of trials."""
    stack, settings = base_stack(planted.settings)
    arm = make_arm("planted", (), stack, settings=settings)
    study = Study(
        id="",
        created="",
        kind=StudyKind.MEASURE,
        arms=(arm,),
        baseline=arm.name,
        workloads=parse_workload(planted.load),
        rounds=trials,
        seconds=seconds,
        ramp_seconds=0.2,
        seed=random.randrange(1_000_000),
        scratch=str((Path("/dev/shm") / f"layers-{os.getpid()}") if planted.memory else directory / "scratch"),
        span_bytes=planted.span,
        target=None if target is None else str(target),
        title=planted.name,
    )
    return new_study(study)


def block(planted: Planted, directory: Path, trials: int, seconds: float) -> None:
    """Run some trials of one dose, in one session, and append what was found."""
    with contextlib.ExitStack() as ends:
        target = None
        if planted.loop_ns is not None:
            target = ends.enter_context(loop_device(directory, planted.loop_ns))
        study = study_of(planted, directory, trials, seconds, target)
        Path(study.scratch).mkdir(exist_ok=True)
        if planted.memory:
            ends.callback(shutil.rmtree, study.scratch)
        store = ends.enter_context(Store(directory / "layers.sqlite"))
        tools = ends.enter_context(prepared(study, lambda _: None, Leave()))
        store.add_study(study, facts="{}")
        if planted.neighbour is not None:
            ends.enter_context(neighbour(directory, planted.neighbour))
        if planted.read_iops is not None:
            disk = directory.stat().st_dev
            limit = f"{os.major(disk)}:{os.minor(disk)} {planted.read_iops}"
            ends.enter_context(group("blkio", {"blkio.throttle.read_iops_device": limit}))
        beside = ends.enter_context(hogs(planted))
        for trial in study.trials:
            begun, used = time.monotonic(), cpu_seconds(beside)
            record, captures = run_trial(study, trial, tools)
            hogged = (cpu_seconds(beside) - used) / (time.monotonic() - begun)
            store.add_trial(study.id, record, captures)
            line = {"planted": planted.name, "study": study.id, "trial": trial.number, "wall": time.time()}
            line |= {"hogged": round(hogged, 2), "took": round(time.monotonic() - begun, 2)}
            line |= found_in(store, planted, record, study.id)
            with (directory / "trials.jsonl").open("a") as kept:
                print(json.dumps(line), file=kept)


def found_in(store: Store, planted: Planted, record: TrialRecord, study_id: str) -> dict[str, object]:
    """What is named, with its evidence, the state of the host and the size of the planted layer."""
    if record.measurement is None:
        return {"cause": "failed", "evidence": [record.failure]}
    one = diagnose_study(store, study_id, record.trial.number)[0]
    parts = {found.name: found.content for found in store.captures(study_id, record.trial.number)}
    used = used_by(parts, store.get(study_id).study.arms[0].stack) or use(read_counters(parts["counters.jsonl"]))
    return {
        "cause": one.found.cause.value,
        "evidence": list(one.found.evidence),
        "pressure": next((one.some_percent for one in used.pressure if one.resource == "cpu"), None),
        "foreign": used.foreign_cpus,
        "size": size_of(one, planted.at),
    }


def size_of(one: Diagnosis, at: Boundary) -> float | None:
    """The time of the layer that begins at a boundary, in ns."""
    if one.layers is None:
        return None
    return next((layer.mean_ns for layer in one.layers.layers if layer.boundary == at), None)


def lines_of(directory: Path) -> list[dict[str, object]]:
    """All trials that are kept."""
    file = directory / "trials.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def run(directory: Path, asked: argparse.Namespace) -> None:
    """Run blocks of what has the fewest trials until each dose has enough, or the time is over."""
    until = time.monotonic() + 60 * asked.minutes
    wanted = [one for one in PLANTED if asked.only in one.kind]
    with group("cpu", {"cpu.shares": str(asked.shares)}) if asked.shares else contextlib.nullcontext():
        while time.monotonic() < until:
            count = Counter(str(line["planted"]) for line in lines_of(directory) if line["cause"] != "failed")
            left = [one for one in wanted if count[one.name] < asked.trials]
            if not left:
                break
            fewest = min(count[one.name] for one in left)
            one = random.choice([one for one in left if count[one.name] == fewest])
            begun = time.monotonic()
            try:
                block(one, directory, min(asked.block, asked.trials - count[one.name]), asked.seconds)
            except Exception as error:  # noqa: BLE001 - the other kinds go on
                print(f"{one.name}: {error!r}", flush=True)
                wanted.remove(one)
            print(f"{time.monotonic() - begun:5.1f} s {one.name}", flush=True)


def again(directory: Path) -> None:
    """Judge all kept trials anew."""
    by_name = {one.name: one for one in PLANTED}
    lines = lines_of(directory)
    with Store(directory / "layers.sqlite", reading=True) as store:
        for number, line in enumerate(lines):
            planted = by_name.get(str(line["planted"]))
            if planted is None or line["cause"] == "failed":
                continue
            name = str(line["study"])
            record = next(one for one in store.get(name).attempts if one.trial.number == line["trial"])
            lines[number] = line | found_in(store, planted, record, name)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (directory / "trials.jsonl").write_text(text)


def verdict(planted: Planted, line: dict[str, object]) -> str:
    """right, undecided, busy (host-cpu on a host that others used), failed or wrong."""
    evidence, cause = line.get("evidence"), str(line["cause"])
    said = " ".join(map(str, evidence)) if isinstance(evidence, list) else ""
    if cause == "failed":
        return cause
    if cause in planted.causes and planted.word in said:
        return "right"
    others = float(str(line.get("foreign") or 0)) - float(str(line.get("hogged") or 0))
    if cause == Cause.HOST_CPU and others >= BUSY_CPUS:
        return "busy"
    return "undecided" if cause in (Cause.UNDECIDED, Cause.NOT_BOUND) else "wrong"


def report(directory: Path) -> None:
    """Print the confusion matrix as a table, and the sizes."""
    lines = lines_of(directory)
    print("| planted | trials | right | wrong | undecided | host busy | named |\n|---|---|---|---|---|---|---|")
    for kind in dict.fromkeys(one.kind for one in PLANTED):
        mine = [(one, line) for one in PLANTED if one.kind == kind for line in lines if line["planted"] == one.name]
        verdicts = Counter(verdict(one, line) for one, line in mine)
        named = Counter(str(line["cause"]) for _, line in mine)
        cells = [str(verdicts[name]) for name in ("right", "wrong", "undecided", "busy")]
        told = ", ".join(f"{name} {count}" for name, count in named.most_common())
        print(f"| {kind} | {len(mine)} | {' | '.join(cells)} | {told} |")
    print("\n| planted | size | measured, 95 % interval | trials |\n|---|---|---|---|")
    for one in PLANTED:
        sizes = [float(str(line["size"])) for line in lines if line["planted"] == one.name and line.get("size")]
        if one.size_ns is None or len(sizes) < 3:
            continue
        radius = student.ppf(0.975, len(sizes) - 1) * stdev(sizes) / len(sizes) ** 0.5
        low, high = (fmean(sizes) + sign * radius for sign in (-1, 1))
        print(f"| {one.name} | {one.size_ns / 1e3:.0f} us | [{low / 1e3:.0f}, {high / 1e3:.0f}] us | {len(sizes)} |")
    pressures = [float(str(line["pressure"])) for line in lines if line.get("pressure") is not None]
    if pressures:
        print(f"\nCPU pressure (some) over all trials: mean {fmean(pressures):.0f} %, at most {max(pressures):.0f} %")


def main() -> None:
    """Run, judge again or report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("run", "again", "report"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--trials", type=int, default=10, help="of each dose")
    parser.add_argument("--block", type=int, default=5, help="trials in a session")
    parser.add_argument("--only", default="", help="only kinds with this in their name")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--shares", type=int, default=0)
    asked = parser.parse_args()
    directory: Path = asked.directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    if asked.verb == "run":
        run(directory, asked)
    elif asked.verb == "again":
        again(directory)
    report(directory)


if __name__ == "__main__":
    main()
