# SPDX-License-Identifier: Apache-2.0
"""What Vdbench reports of runs, written as its sources print it: its tables, and its flatfile."""

from typing import Any

Facts = dict[str, Any]

RUN: Facts = {
    "name": "run1", "rate": 5000.0, "reads": 70, "resp": {"read": 1.25, "write": 2.5}, "size": 4096, "jitter": 0,
    "asked": None, "threads": 8, "seek": 100, "first": 2, "count": 30, "interval": 1, "begin": 36_000,
}  # fmt: skip
TITLES = {
    "50406": ("interval i/o MB/sec bytes read resp read write resp resp queue cpu% cpu%",
              "rate 1024**2 i/o pct time resp resp max stddev depth sys+u sys"),
    "50407": ("interval i/o MB/sec bytes read resp read write read write resp queue cpu% cpu%",
              "rate 1024**2 i/o pct time resp resp max max stddev depth sys+u sys"),
}  # fmt: skip
COLUMNS = (
    "Run Interval reqrate rate MB/sec bytes/io read% resp read_resp write_resp resp_max read_max write_max resp_std"
    " read_std write_std xfersize threads rdpct rhpct whpct seekpct lunsize version compratio dedupratio queue_depth"
    " cpu_used cpu_user"
)
HEAD = """Copyright (c) 2000, 2018, Oracle and/or its affiliates. All rights reserved.
Vdbench distribution: vdbench{} Tue June 05  9:49:29 MDT 2018
For documentation, see 'vdbench.pdf'.

10:00:00.001 input argument scanned: '-fparam'
10:00:00.002 All slaves are now connected
"""


def tod(seconds: float) -> str:
    whole = int(seconds) % 86_400
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}.{round(seconds % 1 * 1000):03}"


def figures(run: Facts, step: int | None) -> tuple[float, int, float]:
    """The rate, the mean size and the response time of an interval, or of the average (None)."""
    share = run["reads"] / 100
    mean = run["resp"]["read"] * share + run["resp"]["write"] * (1 - share)
    warm = step is not None and step < run["first"]
    size = run["size"] + run["jitter"] * (step % 3 if step else 1)
    return run["rate"] * (10 if warm else 1), size, mean


def as_table(*runs: Facts, version: str = "50407", html: bool = False, steps: bool = True) -> str:
    """What it prints, or with `html` its summary; `steps`: with the lines of the intervals, which totals lack."""
    lines = ["<title>Vdbench output/summary.html</title><pre>"] if html else [HEAD.format(version)]
    for run in runs:
        rate = "Uncontrolled MAX" if run["asked"] is None else run["asked"]
        whole = run["count"] * run["interval"]
        warm = (run["first"] - 1) * run["interval"]
        asked = f"elapsed={whole}" if run["first"] == 2 else f"elapsed={whole - warm} warmup={warm}"
        begin = f"{tod(run['begin'] + 0.004)} Starting RD={run['name']}; I/O rate: {rate}; {asked}; For loops: None"
        lines.append(f'<a name="_174290147"></a><i><b>{begin}</b></i>\n' if html else begin)
        first, second = TITLES[version]
        lines += [f"\nOct 09, 2019    {first}", f"              {second}"]
        for step in [*(range(1, run["count"] + 1) if steps else ()), None]:
            at = run["begin"] + (step or run["count"]) * run["interval"] + (0.044 if step else 0.163)
            lines.append(table_line(run, step, at, version))
    return "\n".join([*lines, "23:59:59.000 Vdbench execution completed successfully", ""])


def table_line(run: Facts, step: int | None, at: float, version: str) -> str:
    rate, size, mean = figures(run, step)
    resp = [run["resp"][way] if run["reads"] != none else 0.0 for way, none in (("read", 0), ("write", 100))]
    most = [f"{9 * one:8.2f}" for one in resp] if version == "50407" else [f"{9 * max(resp):8.3f}"]
    cells = [f"{rate:10.1f}", f"{rate * size / 2**20:8.2f}", f"{size:7}", f"{run['reads']:6.2f}", f"{mean:8.3f}"]
    cells += [
        *(f"{one:8.3f}" for one in resp),
        *most,
        f"{mean / 2:8.3f}",
        f"{rate * mean / 1000:6.1f}",
        "  2.1",
        "0.4",
    ]
    label = str(step or f"avg_{run['first']}-{run['count']}")
    return f"{tod(at)}{label:>12} {' '.join(cells)}"


def as_flat(*runs: Facts) -> str:
    lines = ["<title>Vdbench output/flatfile.html</title><pre>", "*", "* 'flatfile.html' contains ...", "* "]
    lines.append(f"         tod               timestamp {COLUMNS} ")
    for run in runs:
        for step in [*range(1, run["count"] + 1), None]:
            rate, size, mean = figures(run, step)
            at = tod(run["begin"] + (step or run["count"]) * run["interval"] + 0.05)
            resp = [run["resp"][way] if run["reads"] != none else 0 for way, none in (("read", 0), ("write", 100))]
            label = str(step or f" avg_{run['first']}-{run['count']}")
            cells = [
                at, f"10/09/2019-{at[:8]}-ICT", run["name"], label, run["asked"] or 9999988, rate,
                rate * size / 2**20, size, run["reads"], mean, *resp, 9 * max(resp), *(9 * one for one in resp),
                mean / 2, *(one / 2 for one in resp), run["size"], run["threads"], run["reads"], 0, 0, run["seek"],
                16, "n/a", 1, "n/a", rate * mean / 1000, 2.1, 0.4,
            ]  # fmt: skip
            lines.append(" ".join(f"{one:.4f}" if isinstance(one, float) else str(one) for one in cells))
    return "\n".join([*lines, ""])
