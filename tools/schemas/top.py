# SPDX-License-Identifier: Apache-2.0
"""The schema of `virtune top --once --json`."""

from tools.schemas.layers import layers
from tools.schemas.parts import identity, program_version
from tools.schemas.shape import Schema, maybe, number, rows, table, text, whole, word, written
from virtune.model.bottleneck import Cause
from virtune.model.threads import THREAD_ROLES
from virtune.report.json.top import SCHEMA


def schema() -> str:
    """Return the schema as text."""
    vm = table(
        "A running VM.",
        {
            "vm": text("Its name."),
            "disks": rows("Its disks.", _disk()),
            "threads": rows("The threads of its QEMU; none where they are not visible.", _thread()),
        },
    )
    body = table(
        "The disks of this host's running VMs over one interval.",
        {
            "schema": identity(SCHEMA),
            "virtune": program_version(),
            "time": number("When the interval ended, in seconds since 1970."),
            "seconds": number("How long it was.", exclusiveMinimum=0),
            "vms": rows("The running VMs.", vm),
            "host": _host(),
            "missing": rows("What could not be seen, and what it would add.", text("A sentence.")),
        },
    )
    return written(SCHEMA, "The disks of running VMs", body)


def _way(description: str) -> Schema:
    return table(
        description,
        {
            "iops": number("I/Os a second.", minimum=0),
            "bandwidth_bps": number("Bytes a second.", minimum=0),
        },
    )


def _disk() -> Schema:
    bottleneck = table(
        "What limits the disk.",
        {
            "cause": word("The cause; `undecidable` where nothing stands out.", Cause),
            "text": text("The cause in words."),
            "evidence": rows("By what it was seen.", text("A sentence.")),
            "experiment": text("What to try next."),
        },
    )
    return table(
        "A disk of a VM.",
        {
            "disk": text("Its target in the VM, or the id of its device."),
            "seconds": number("The time between the two counts of it.", exclusiveMinimum=0),
            "iops": number("Reads and writes a second.", minimum=0),
            "bandwidth_bps": number("Bytes a second, read and written.", minimum=0),
            "read": _way("Its reads."),
            "write": _way("Its writes."),
            "flushes_per_second": number("Flushes a second."),
            "latency_ns": maybe(
                number("Mean time of a request, from where it is first seen; null without requests.", minimum=0)
            ),
            "in_flight": number("Requests under way at a time, on average (Little's law).", minimum=0),
            "cpu_per_io_ns": maybe(
                number("CPU time of QEMU's threads for each I/O, without vCPUs; null where it is unknown.", minimum=0)
            ),
            "layers": layers(),
            "bottleneck": bottleneck,
        },
    )


def _thread() -> Schema:
    return table(
        "A thread of QEMU.",
        {
            "tid": whole("Its id.", minimum=0),
            "name": text("Its name."),
            "role": word("What it does.", THREAD_ROLES),
            "cpu_share": number("How much of a CPU it used, 0 to 1.", minimum=0),
            "user_share": number("User time as a share of a CPU, by clock ticks of 10 ms.", minimum=0),
            "system_share": number("Kernel time as a share of a CPU, by clock ticks of 10 ms.", minimum=0),
            "wait_share": maybe(number("Share of the time in which it could have run and had no CPU.", minimum=0)),
        },
    )


def _host() -> Schema:
    percent = {
        "busy_percent": "Of all CPUs together, busy.",
        "user_percent": "In user programs, guests included.",
        "system_percent": "In the kernel, interrupts included.",
        "iowait_percent": "Idle with I/O outstanding.",
        "steal_percent": "CPU steal: taken by other VMs on the physical host.",
    }
    pressure = table(
        "Stalls on a resource (PSI).",
        {
            "resource": text("cpu, io or memory."),
            "some_percent": maybe(number("Time in which some task was stalled.")),
            "full_percent": maybe(number("Time in which all tasks were stalled.")),
        },
    )
    device = table(
        "A block device below the disks.",
        {
            "name": text("Its name in /proc/diskstats."),
            "read": _way("Its reads."),
            "write": _way("Its writes."),
            "latency_ns": maybe(number("Mean time of a request; null without requests.", minimum=0)),
            "in_flight": number("Requests under way at a time, on average.", minimum=0),
            "busy_percent": number("Time with a request under way.", minimum=0),
        },
    )
    return table(
        "The host.",
        {
            **{name: maybe(number(words, minimum=0)) for name, words in percent.items()},
            "foreign_cpus": maybe(number("CPUs used by others than the QEMUs of these VMs.", minimum=0)),
            "load_1min": maybe(number("The load average over a minute.", minimum=0)),
            "pressure": rows("Pressure by resource.", pressure),
            "devices": rows("Block devices below the disks.", device),
        },
    )
