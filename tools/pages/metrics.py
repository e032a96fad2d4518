# SPDX-License-Identifier: Apache-2.0
"""The page of metrics: what is measured, in which unit, which way is better, where it comes from."""

from collections.abc import Iterator

from tools.pages.markdown import code, plain, table, whole
from virtune.model.metric import BOUNDARIES, DIRECTIONS, DISKS_MAX, METRICS, Metric
from virtune.model.result import Value
from virtune.report.json.parts import IN_WORDS

_WITHOUT_BINS = "Without bins as fio printed it, and only where there is a single direction of a single job."

_PERCENTILES: dict[str, str] = {
    "latency": f"fio's bins of total latency (lat), added over jobs and directions. {_WITHOUT_BINS}",
    "clat": f"fio's bins of completion latency (clat), added over jobs and directions. {_WITHOUT_BINS}",
    "sync": "fio: its bins of the latency of fsync and fdatasync, added over jobs.",
    **{
        f"{direction}.{kind}": f"fio's bins of the {words} latency of {direction}s, added over jobs."
        for direction in DIRECTIONS
        for kind, words in (("latency", "total"), ("clat", "completion"))
    },
}

_THREADS = {
    "vcpu": "QEMU's vCPU threads",
    "iothread": "its IOThreads",
    "main": "the first thread of QEMU or of the storage daemon",
    "worker": "its worker threads",
    "uring": "the kernel's io_uring workers",
    "kernel": "the kernel's threads for vhost and KVM",
    "other": "all other threads of QEMU or of the storage daemon",
    "load": "the load on this host",
}

SOURCES: dict[str, str] = {
    "iops": "fio: completed I/Os a second, added over jobs and directions.",
    "bandwidth": "fio: bytes a second, added over jobs and directions.",
    "latency.mean": "fio: total latency (lat), from handing over to completion, in the mean over all I/Os.",
    **{
        f"{direction}.{name}": f"fio: {words} of {direction}s alone."
        for direction in DIRECTIONS
        for name, words in (
            ("iops", "completed I/Os a second"),
            ("bandwidth", "bytes a second"),
            ("latency.mean", "the mean of the total latency"),
            ("clat.mean", "the mean of the completion latency"),
        )
    },
    "slat.mean": "fio: time in the call that hands an I/O over, in the mean over all I/Os. Not with engines that have"
    " no such call.",
    "clat.mean": "fio: completion latency (clat), from when that call returned to completion, in the mean over all"
    " I/Os.",
    "sync.mean": "fio: latency of fsync and fdatasync, in the mean over all of them. It is in no other latency.",
    "cpu.load.usr": "fio: user CPU time of its jobs, in % of one CPU, in the mean over the jobs.",
    "cpu.load.sys": "fio: kernel CPU time of its jobs, in % of one CPU, in the mean over the jobs.",
    "cpu.rig": "/proc: CPU time of qemu-storage-daemon in the measured time, in % of one CPU. None on metal.",
    "cpu_per_io": "/proc: CPU time of fio and qemu-storage-daemon together in the measured time, divided by the"
    " number of I/Os.",
    "device.util": "/proc/diskstats: share of the measured time in which the first device below the image had a"
    " request. A device with several queues may be busy all the time and still take more.",
    "latency.min": "fio: the least latency, of a load whose I/Os are recorded one by one.",
    "latency.max": "fio: the greatest latency, of a load whose I/Os are recorded one by one.",
    "guests.skew": "Several guests: time between the first I/O of the first and that of the last, by QEMU's counters."
    " They are asked one after another, which the figure may be too large by.",
    **{
        f"{kind}.{end}": f"fio: {words} of {said}."
        for kind, said in (("slat", "the submission latency"), ("clat", "the completion latency"))
        for end, words in (("min", "the least"), ("max", "the greatest"), ("stdev", "the standard deviation"))
    },
    "latency.stdev": "fio: the standard deviation of the total latency.",
    "iops.min": "fio: the least of its samples of IOPS over time, where one job did one kind of I/O.",
    "iops.max": "fio: the greatest of its samples of IOPS over time, where one job did one kind of I/O.",
    "iops.stdev": "fio: the standard deviation of its samples of IOPS, where one job did one kind of I/O.",
    "cpu.idle": "/proc: CPU time of QEMU or the storage daemon, without vCPUs, in a second after the load, in % of"
    " one CPU; where iothread.poll_max_ns is set.",
    "load.ctx": "fio: context switches of its jobs, a second.",
    "load.majf": "fio: page faults of its jobs that read from a disk, a second.",
    "load.minf": "fio: page faults of its jobs without a read, a second.",
    "device.writes": "`/proc/diskstats` of the host's device: writes a second, of all its users",
    "device.written_bytes": "`/proc/diskstats` of the host's device: bytes written a second, by all its users",
    "device.reached": "`device.written_bytes` in % of what the load wrote",
    "disk.merged": "fio: requests merged into others, in % of those made, at the first device that it names.",
    **{
        f"disk.{number}.{metric}": f"fio: the same as `{metric}`, of one of several disks (`disks.count`)."
        for number in range(1, DISKS_MAX + 1)
        for metric in ("iops", "latency.mean")
    },
    **{
        f"below.{boundary}": f"Mean time of a request from there down to its completion: {words}."
        for boundary, words in (
            ("guest", "/proc/diskstats of the guest"),
            ("ring", "the requests in the virtqueues, sampled from QEMU's memory or the load's, by Little's law"),
            ("backend", "QEMU's query-blockstats; of an export the requests that the daemon took off the virtqueues"),
            ("device", "/proc/diskstats of this host, the first device below the image"),
        )
    },
    **{
        f"requests.{boundary}": "Requests that were counted there for 100 I/Os of the load."
        for boundary in BOUNDARIES[1:]
    },
    **{
        f"cpu.io.{role}": f"/proc: CPU time of {words}, divided by the number of I/Os."
        for role, words in _THREADS.items()
    },
    **{
        f"switches.io.{role}": f"/proc: how often {words} went to sleep or were taken off their CPU, for each I/O."
        for role, words in _THREADS.items()
    },
    "exits.io": "QEMU's query-stats: how often KVM left the guests for the host, for each I/O.",
    **{
        f"wait.{role}": f"/proc: of the time in which {words} wanted a CPU, the part in which they waited for one."
        for role, words in _THREADS.items()
    },
    "cpu.host.usr": "/proc/stat: user time of all CPUs of this host, guests included, in % of them all.",
    "cpu.host.sys": "/proc/stat: kernel time of all CPUs of this host, in % of them all.",
    "disk.util": "fio in a guest: share of the run time in which the guest's own disk had a request; the mean of"
    " several guests.",
}
"""By metric, but the percentiles, which share one a distribution. A metric without words stops the generation."""


def page() -> str:
    """Return the page."""
    return whole("Metrics", _lines())


def _lines() -> Iterator[str]:
    yield "What `--metric` takes, and what JSON documents have under `metrics` and `values`. Base units"
    yield "throughout; tables write them as people read them. A metric that is missing was not measured: it is"
    yield "never 0 by default.\n"
    yield from table(("id", "label", "unit", "better", "where it comes from"), (_row(metric) for metric in METRICS))
    yield "## Total and completion latency\n"
    yield "`latency.*` is total latency, fio's `lat`: from when an I/O was handed over until it was done. `clat.*` is"
    yield "completion latency: it begins when the call that hands over has returned. Where that call blocks, the"
    yield "two are far apart. virtune's own loads measure both. Of results made elsewhere many have percentiles of"
    yield "completion latency only, since fio prints no others without `lat_percentiles=1`. Where one run of a"
    yield "workload has no percentiles of total latency, all runs of it are compared by completion latency. Tables"
    yield "then say `clat p99` for `latency.p99`, and JSON has `measured_as`.\n"
    yield "## Reads and writes\n"
    yield "`read.*` and `write.*` are of one direction. Tables show them of a load that does both; `--metric`,"
    yield "`--also` and `--fail-if` take them of any load.\n"
    yield "## Shorter words\n"
    yield "`bw` is `bandwidth`, `lat` is `latency.mean`, `p99` and `lat.p99` are `latency.p99`; the same behind"
    yield "`read.` and `write.`.\n"
    yield "## Over rounds\n"
    yield "- A rate or a time of an arm is the geometric mean of its rounds, which is what the ratios compare;"
    yield "  a share in % is the plain mean. A sweep compares none: its rates are the mean of all rounds' time, its"
    yield "  latencies and costs per I/O the mean of all rounds' I/Os."
    yield "- A percentile of an arm comes from the histograms of all its rounds, added, and never from a mean"
    yield "  of percentiles. It is marked (`~` in tables, `resolved: false` in JSON) when fewer than 100 I/Os"
    yield "  lie beyond it, and in a single round it is left out of comparisons when fewer than 20 do."
    yield f"- {plain(_spread())}"
    yield "- A round with a remark of weight **invalid** counts for no comparison ([remarks](remarks.md))."
    yield "- A pair of arms is judged on one metric (`--metric`, iops by default), with the errors of all pairs"
    yield "  and workloads bounded together. The other metrics are shown as differences to the baseline, each"
    yield "  for itself.\n"
    units = (f"{code(unit)} {words}" for unit, words in IN_WORDS.items())
    yield f"Units: {', '.join(units)}."


def _spread() -> str:
    sentences = " ".join((Value.__doc__ or "").split()).split(". ")
    return next(sentence for sentence in sentences if sentence.startswith("`spread`")).rstrip(".") + "."


def _row(metric: Metric) -> tuple[str, ...]:
    source = _PERCENTILES[metric.of] if metric.percent is not None else SOURCES[metric.id]
    return code(metric.id), metric.label, code(metric.unit), metric.better, plain(source)
