# SPDX-License-Identifier: Apache-2.0
"""What fio writes of a job that it ran as it was told: every option echoed, and figures that follow from them."""

import json
import time
from collections.abc import Mapping
from typing import Any

from virtune.fio.job import FioJob
from virtune.fio.options import SYNCHRONOUS, facts_of, milliseconds, size_of, whole
from virtune.model.workload import READING, WRITING, Job

EACH_NS = 100_000.0
"""How long each I/O takes."""


def told(job: FioJob, *, version: str = "fio-3.33") -> dict[str, Any]:
    """The result of a load that has just ended."""
    now = time.time()
    own = {"description": job.identity} if job.identity else {}
    entries = [entry for one in job.asked for entry in _entries(one)]
    for one in entries:
        if "description" in (said := own | one["job options"]):
            one["desc"] = said["description"]
    return {
        "fio version": version if job.program == "fio" else "virtune-load-0.1.0",
        "timestamp": int(now),
        "timestamp_ms": int(now * 1000),
        "global options": {"write_iops_log": "load", "log_avg_msec": "250"} | own,
        "jobs": entries,
    }


def told_output(job: FioJob) -> bytes:
    """The same as a program writes it."""
    return json.dumps(told(job)).encode()


def _entries(job: Job) -> list[dict[str, Any]]:
    options = job.as_dict()
    jobs = int(options.get("numjobs", "1"))
    grouped = options.get("group_reporting", "0") != "0"
    return [_entry(job.name, options, jobs)] if grouped else [_entry(job.name, options, 1) for _ in range(jobs)]


def _entry(name: str, options: Mapping[str, str], jobs: int) -> dict[str, Any]:
    facts = facts_of(options)
    depth = (1 if facts.engine in SYNCHRONOUS else facts.depth) * jobs
    number = whole(options.get("number_ios", ""))
    total = number * jobs if number else round(depth * milliseconds(options["runtime"]) * 1e6 / EACH_NS)
    if facts.rate_iops:
        total = min(total, round(facts.rate_iops * jobs * milliseconds(options["runtime"]) / 1000))
    seconds = total * EACH_NS / 1e9 / depth if number else milliseconds(options["runtime"]) / 1000
    reads = facts.pattern in READING
    writes = facts.pattern in WRITING and not facts.pattern.endswith("trim")
    share = 1.0 if not writes else 0.0 if not reads else _share(options)
    counts = {"read": round(total * share), "write": total - round(total * share)}
    if "trim" in facts.pattern:
        counts = {"write": total // 2 if writes else 0, "trim": total // 2 if writes else total}
    every = whole(options.get("fsync", "0")) or whole(options.get("fdatasync", "0"))
    flushes = counts.get("write", 0) // every if every else 0
    level = max(one for one in (1, 2, 4, 8, 16, 32, 64) if one <= depth // jobs)
    sides = {one: _side(ios, _mean_size(options, one), seconds) for one, ios in counts.items() if ios}
    return {
        "jobname": name,
        "groupid": 0,
        "error": 0,
        "job options": dict(options),
        "sync": {"total_ios": flushes, "lat_ns": _latency(flushes)},
        "job_runtime": round(seconds * 1000) * jobs,
        "usr_cpu": 2.0,
        "sys_cpu": 8.0,
        "iodepth_level": {("64" if one < 64 else ">=64") if one == 64 else str(one): 100.0 * (one == level)
                          for one in (1, 2, 4, 8, 16, 32, 64)},
        **sides,
    }  # fmt: skip


def _share(options: Mapping[str, str]) -> float:
    if "rwmixwrite" in options:
        return 1 - int(options["rwmixwrite"]) / 100
    return int(options.get("rwmixread", "50")) / 100


def _mean_size(options: Mapping[str, str], direction: str) -> float:
    name = next((one for one in ("bs", "bsrange", "bssplit") if one in options), "bs")
    parts = options.get(name, "4k").split(",")
    part = parts[min(("read", "write", "trim").index(direction), len(parts) - 1)]
    if name == "bssplit":
        pairs = [one.partition("/") for one in part.split(":")]
        return sum((size_of(size) or 0) * int(share) / 100 for size, _, share in pairs)
    sizes = [size_of(one) or 0 for one in part.split("-")]
    return sum(sizes) / len(sizes)


def _side(ios: int, size: float, seconds: float) -> dict[str, Any]:
    return {
        "io_bytes": round(ios * size),
        "io_kbytes": round(ios * size / 1024),
        "bw_bytes": round(ios * size / seconds),
        "iops": ios / seconds,
        "runtime": round(seconds * 1000),
        "total_ios": ios,
        "lat_ns": _latency(ios),
        "clat_ns": _latency(ios),
    }


def _latency(count: int) -> dict[str, Any]:
    each = EACH_NS if count else 0
    return {"min": each, "max": each, "mean": each, "stddev": 0.0, "N": count, "bins": {str(int(each)): count}}
