# SPDX-License-Identifier: Apache-2.0
"""A recorded trial, and the same with other counters."""

import json
from collections.abc import Callable
from typing import Any

from tests.analyse.recordings import recorded

from virtune.analyse.trial.counters import SCHEMA
from virtune.analyse.trial.derive import derive
from virtune.fio.workloads import parse_workload
from virtune.model.measurement import Measurement
from virtune.model.remark import Weight
from virtune.model.stack import Disk, Stack
from virtune.model.workload import Workload

BANDWIDTH = 238_241_455
"""What the recorded fio did in its 2 s, in bytes a second."""

STACK = Stack(disk=Disk(aio="native"))
WORKLOAD = parse_workload("rw=randread,bs=4k,iodepth=8")[0]
HEADER = {"schema": SCHEMA, "ticks_per_second": 100, "drive_limits": {"/hwmon0/temp1_input": 80_000}}

Edit = Callable[[dict[str, Any], dict[str, Any]], None]


def stat(pid: int, *, majflt: int = 0, user: int = 0) -> str:
    return f"{pid} (fio) S 1 1 1 0 -1 0 9 0 {majflt} 0 {user} 0 0 0 20 0 1 0 77"


def sample(second: int, mark: str) -> dict[str, Any]:
    """Counters of a host with two CPUs and nobody else on it: the load takes one of them, and all the disk moves."""
    moved = BANDWIDTH * second
    return {
        "t": second * 10**9,
        "wall": 1.7e9 + second,
        "mark": mark,
        "stat": f"cpu {100 * second} 0 2 {100 * second} 0 0 0 0 0 0\n",
        "diskstats": [f"254 0 vda {second * 58000} 0 {moved // 512} 0 0 0 0 0 8 {second * 1000} {second * 8000}"],
        "threads": {"load": {"7": ["fio", 100 * second, 0, second * 10**9, second * 10**7]}},
        "processes": {
            "load": {"7": {"stat": stat(7, user=100 * second), "io": f"read_bytes: {moved}\nwrite_bytes: 0"}}
        },
        "pressure": {"cpu": f"some avg10=0.00 avg60=0.00 avg300=0.00 total={second * 10_000}"},
        "vmstat": ["pswpin 5", "pswpout 6"],
        "throttle": {"/cg/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_usec 7"},
        "residency": {"image": [0, 0]},
        "clock_source": "tsc",
        "heat": {"/cpu0": "3"},
        "frequency": {"/cpu0": "3000000", "/cpu1": "1200000"},
        "drives": {"/hwmon0/temp1_input": "51000"},
    }


def trial(edit: Edit | None = None, *, fio: str = "randread.both", header: dict[str, Any] = HEADER,
          workload: Workload = WORKLOAD, stack: Stack = STACK) -> Measurement:  # fmt: skip
    begin, stop = sample(1, "begin"), sample(3, "stop")
    if edit is not None:
        edit(begin, stop)
    lines = b"".join(json.dumps(line).encode() + b"\n" for line in (header, begin, stop))
    return derive({"fio.json": recorded(fio).encode(), "counters.jsonl": lines}, stack=stack, workload=workload)


def said(found: Measurement) -> dict[str, Weight]:
    return {remark.id: remark.weight for remark in found.remarks}


def at(**values: Any) -> Edit:
    def edit(begin: dict[str, Any], stop: dict[str, Any]) -> None:
        stop.update(values)

    return edit


def edited(name: str, **values: float) -> dict[str, bytes]:
    text = recorded(name)
    start, end = text.index("\n{\n"), text.index("\n}\n") + 2
    document = json.loads(text[start:end])
    job = document["jobs"][0]
    for key, value in values.items():
        if key == "lat":
            job["read"]["lat_ns"]["mean"] *= value
        else:
            job[key] = value
    return {"fio.json": json.dumps(document).encode(), "counters.jsonl": b""}
