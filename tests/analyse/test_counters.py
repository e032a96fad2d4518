# SPDX-License-Identifier: Apache-2.0
"""Counters read back, and what was used between two samples: known numbers, odd kernels, damaged files."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtune.analyse.trial.counters import SCHEMA, read_counters
from virtune.analyse.trial.usage import use
from virtune.model.errors import StoreError

HEADER = {"schema": SCHEMA, "ticks_per_second": 100, "cpus": 2, "devices": ["vda"]}
STAT = "4242 (fio (x) y) S " + " ".join(str(n) for n in range(4, 14)) + " {utime} {stime} 0 0 20 0 1 0 77"


def diskstats(**values: int) -> str:
    names = "reads rmerges rsectors rms writes wmerges wsectors wms inflight busy queued discards a b c flushes d"
    return "254 0 vda " + " ".join(str(values.get(name, 0)) for name in names.split())


def content(*samples: dict[str, Any], header: dict[str, Any] = HEADER) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in (header, *samples))


def sample(seconds: float, **more: Any) -> dict[str, Any]:
    return {"t": int(seconds * 1e9), "wall": 1.7e9 + seconds, **more}


def threads(**by_tid: tuple[str, int, int, int, int]) -> dict[str, Any]:
    return {"threads": {"daemon": {tid.removeprefix("t"): list(values) for tid, values in by_tid.items()}}}


def test_a_disk_is_latency_busy_and_depth() -> None:
    before = diskstats(reads=100, rsectors=800, rms=50, busy=10, queued=60)
    after = diskstats(reads=1100, rsectors=8800, rms=550, writes=10, wsectors=80, wms=100, busy=1010, queued=4060)
    found = use(read_counters(content(sample(1, diskstats=[before]), sample(3, diskstats=[after]))))
    disk = found.disk("vda")
    assert disk is not None
    assert (disk.reads, disk.read_bytes, disk.writes, disk.written_bytes) == (1000, 8000 * 512, 10, 80 * 512)
    assert disk.read_latency_us_mean == 500
    assert disk.write_latency_us_mean == 10_000
    assert disk.latency_us_mean == pytest.approx(600_000 / 1010)
    assert (disk.busy_percent, disk.queue_depth_mean) == (50, 2)
    assert found.seconds == 2


def test_an_idle_disk_has_no_latency() -> None:
    line = diskstats(reads=5, rms=7)
    disk = use(read_counters(content(sample(1, diskstats=[line]), sample(2, diskstats=[line])))).disk("vda")
    assert disk is not None
    assert (disk.reads, disk.latency_us_mean, disk.busy_percent) == (0, None, 0)


def test_disk_times_that_wrap_at_32_bits_go_on() -> None:
    before = diskstats(reads=1, rms=2**32 - 100, busy=2**32 - 1)
    after = diskstats(reads=11, rms=100, busy=9)
    disk = use(read_counters(content(sample(1, diskstats=[before]), sample(2, diskstats=[after])))).disk("vda")
    assert disk is not None
    assert (disk.read_latency_us_mean, disk.busy_percent) == (20_000, 1)


def test_a_replaced_disk_is_a_gap() -> None:
    counts = content(sample(1, diskstats=[diskstats(reads=9)]), sample(2, diskstats=[diskstats(reads=1)]))
    found = use(read_counters(counts))
    assert found.disks == ()
    assert found.gaps == ("the counters of vda ran backwards: the device was replaced",)


def test_disks_that_come_and_go_are_gaps() -> None:
    line = diskstats()
    came = use(read_counters(content(sample(1), sample(2, diskstats=[line]))))
    went = use(read_counters(content(sample(1, diskstats=[line]), sample(2))))
    assert "not there" in came.gaps[0]
    assert "was gone" in went.gaps[0]


def test_diskstats_of_old_kernels_have_fewer_fields() -> None:
    line = "8 0 sda 1 0 8 1 0 0 0 0 0 1 1"
    (disk,) = use(read_counters(content(sample(1, diskstats=[line]), sample(2, diskstats=[line])))).disks
    assert (disk.name, disk.flushes) == ("sda", 0)


def test_threads_that_come_later_count_from_zero_and_a_late_role_from_its_first_sample() -> None:
    found = use(
        read_counters(
            content(
                sample(1),
                sample(2, **threads(t10=("main", 0, 0, 5_000_000_000, 0))),
                sample(3, **threads(t10=("main", 0, 0, 6_000_000_000, 250_000_000), t11=("worker", 0, 0, 5, 0))),
                sample(4, **threads(t10=("main", 0, 0, 6_500_000_000, 500_000_000), t11=("worker", 0, 0, 10**9, 0))),
            )
        )
    ).role("daemon")
    assert found is not None
    assert (found.cpu_seconds, found.wait_seconds, found.ended) == (2.5, 0.5, 0)


def test_ended_threads_are_in_the_process_total() -> None:
    def processes(ticks: int) -> dict[str, Any]:
        stat = STAT.format(utime=ticks, stime=ticks)
        return {"processes": {"daemon": {"4242": {"stat": stat, "io": "read_bytes: 4096\nwrite_bytes: 0\n"}}}}

    found = use(
        read_counters(
            content(
                sample(1, **threads(t1=("m", 0, 0, 0, 0)), **processes(0)),
                sample(2, **threads(t1=("m", 0, 0, 10**8, 0), t2=("worker", 0, 0, 10**8, 0)), **processes(50)),
                sample(3, **threads(t1=("m", 0, 0, 2 * 10**8, 0)), **processes(100)),
            )
        )
    )
    role = found.role("daemon")
    assert role is not None
    assert (role.ended, role.cpu_seconds, role.user_seconds) == (1, 2.0, 1.0)
    assert (role.read_bytes, role.written_bytes) == (0, 0)
    assert "ended on the way" in found.gaps[0]


def test_an_old_number_on_a_new_thread_begins_at_zero() -> None:
    found = use(
        read_counters(
            content(
                sample(1, **threads(t1=("a", 0, 0, 9 * 10**9, 0))), sample(2, **threads(t1=("b", 0, 0, 10**9, 0)))
            )
        )
    ).role("daemon")
    assert found is not None
    assert found.cpu_seconds == 1


def test_without_schedstat_ticks_count() -> None:
    one = {"threads": {"load": {"7": ["fio", 100, 50, None, None]}}}
    two = {"threads": {"load": {"7": ["fio", 200, 100, None, None]}}}
    role = use(read_counters(content(sample(1, **one), sample(3, **two)))).role("load")
    assert role is not None
    assert (role.cpu_seconds, role.wait_seconds, role.read_bytes) == (1.5, None, None)


def test_host_cpu_is_shares_of_all_its_time() -> None:
    before, after = "cpu  100 0 50 800 10 0 0 0 0 0\ncpu0 1\n", "cpu  150 0 60 930 15 0 0 5 0 0\ncpu0 1\n"
    cpu = use(read_counters(content(sample(1, stat=before), sample(2, stat=after)))).cpu
    assert cpu is not None
    assert (cpu.busy_seconds, cpu.busy_percent) == pytest.approx((0.6, 30))
    assert (cpu.iowait_percent, cpu.steal_percent) == pytest.approx((2.5, 2.5))


def test_a_cpu_line_that_ends_early_is_zeroes() -> None:
    text = "cpu 1 1 1 1\n"
    cpu = use(read_counters(content(sample(1, stat=text), sample(2, stat=text)))).cpu
    assert cpu is not None
    assert cpu.busy_percent == 0


def test_pressure_throttling_swap_and_cache() -> None:
    def at(seconds: float, stall: int, cached: int) -> dict[str, Any]:
        text = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={stall}\nfull avg10=0 avg60=0 avg300=0 total=0\n"
        return sample(
            seconds,
            pressure={"io": text},
            throttle={
                "/a/cpu.stat": f"nr_throttled 1\nthrottled_usec {stall}\n",
                "/b/cpu.stat": "throttled_time 1000",
            },
            vmstat=[f"pswpin {stall}", "pswpout 2"],
            residency={"image": [cached, None]},
            loadavg="0.25 0.1 0.1 1/88 6384",
        )

    found = use(read_counters(content(at(1, 0, 4096), at(2, 250_000, 8192))))
    (pressure,) = found.pressure
    assert (pressure.resource, pressure.some_percent, pressure.full_percent) == ("io", 25, 0)
    assert (found.throttled_seconds, found.swapped_pages, found.load_1min) == (0.25, 250_000, 0.25)
    (cache,) = found.caches
    assert (cache.file, cache.end_bytes - cache.begin_bytes, cache.dirty_bytes) == ("image", 4096, None)


@pytest.mark.parametrize(
    ("begin", "end", "seconds"),
    [
        # as a kernel said, a second apart, of a group that was held back all the time
        ("nr_periods 1\nnr_throttled 1\nthrottled_time 0", "nr_periods 2\nnr_throttled 2\nthrottled_time 0", 1),
        ("nr_periods 10\nnr_throttled 0\nthrottled_usec 0", "nr_periods 20\nnr_throttled 2\nthrottled_usec 0", 0.2),
        ("nr_periods 10\nnr_throttled 9\nthrottled_usec 7", "nr_periods 20\nnr_throttled 9\nthrottled_usec 7", 0),
        (
            "nr_periods 3\nnr_throttled 3\nthrottled_time 0",
            "nr_periods 9\nnr_throttled 9\nthrottled_time 40000",
            4e-5,
        ),
        ("throttled_usec 5", "throttled_usec 100005", 0.1),
    ],
)
def test_a_group_that_lets_nothing_go_on_is_held_back_though_its_time_stands(
    begin: str, end: str, seconds: float
) -> None:
    lines = (
        sample(at, throttle={"/a/cpu.stat": text}, groups={"qemu": {"/a/cpu.stat": text}})
        | {"processes": {"qemu": {}}, "threads": {"qemu": {}}}
        for at, text in ((1, begin), (2, end))
    )
    found = use(read_counters(content(*lines)))
    assert found.throttled_seconds == pytest.approx(seconds)
    assert [one.held_back_seconds for one in found.roles] == [pytest.approx(seconds)]


def test_bytes_that_are_not_ours_have_a_share() -> None:
    def at(seconds: float, read: int, sectors: int) -> dict[str, Any]:
        one = {"stat": STAT.format(utime=0, stime=0), "io": f"rchar: 9\nread_bytes: {read}\nwrite_bytes: 0\n"}
        return sample(seconds, processes={"daemon": {"4242": one}}, diskstats=[diskstats(rsectors=sectors)])

    found = use(read_counters(content(at(1, 0, 0), at(2, 512 * 75, 100))))
    assert found.foreign_share("vda") == 0.25
    assert found.foreign_share("vda", ("load",)) is None
    assert found.foreign_share("nosuch") is None


def test_only_samples_inside_the_window_count() -> None:
    counters = read_counters(
        content(*(sample(n, mark=f"m{n}", diskstats=[diskstats(reads=n * n)]) for n in range(6)))
    )
    found = use(counters, begin_ns=counters.mark("m2"), end_ns=int(4.5e9))
    assert (found.begin_ns, found.end_ns) == (2 * 10**9, 4 * 10**9)
    assert found.disks[0].reads == 12
    assert counters.mark("none") is None


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (b"", "cut off"),
        (b"{}\n", "line 1"),
        (b"\xff\xfe\n", "line 1"),
        (content(sample(1))[:-5], "cut off"),
        (content(sample(1), header={**HEADER, "schema": "other/1"}), "'other/1'"),
        (content(sample(1), {"t": "x"}), "line 3: `t`"),
        (content(sample(1)) + b"garbage\n", "line 3"),
        (content(sample(2), sample(1)), "out of order"),
        (content(sample(1, diskstats=["254 0 vda 1 2"])), "line 2: a counter"),
        (content(sample(1, diskstats=["254 0 vda " + "x " * 17])), "line 2: a counter"),
        (content(sample(1, stat="cpu  1 2 x")), "line 2: a counter"),
        (content(sample(1, **threads(t1=("m", -1, 0, 0, 0)))), "line 2: `threads"),
    ],
)
def test_damage_is_one_sentence(damaged: bytes, message: str) -> None:
    with pytest.raises(StoreError) as caught:
        read_counters(damaged)
    assert message in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("samples", [(), (sample(1),), (sample(1), sample(1))])
def test_one_instant_is_no_window(samples: tuple[dict[str, Any], ...]) -> None:
    with pytest.raises(StoreError, match="two are the fewest"):
        use(read_counters(content(*samples)))


text = st.text(max_size=60) | st.from_regex(r"(cpu |[0-9]+ [0-9]+ vd[a-z] )([0-9]{1,12} ){0,20}", fullmatch=True)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=8,
)
fields = st.sampled_from(["stat", "diskstats", "threads", "processes", "pressure", "residency", "vmstat", "loadavg"])


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(damaged: bytes) -> None:
    for candidate in (damaged, content(sample(1)) + damaged, content(sample(1)) + damaged + b"\n"):
        with contextlib.suppress(StoreError):
            read_counters(candidate)


@given(st.dictionaries(fields, json_values | st.lists(text, max_size=3) | st.dictionaries(text, text, max_size=3)))
def test_any_values_are_read_or_refused(values: dict[str, Any]) -> None:
    try:
        counters = read_counters(content(sample(1, **values), sample(2, **values)))
    except StoreError:
        return
    use(counters)


@given(st.lists(st.tuples(*[st.integers(0, 2**40)] * 4), min_size=2, max_size=6))
def test_use_of_any_rising_counters_is_sound(rows: list[tuple[int, int, int, int]]) -> None:
    totals = [0, 0, 0, 0]
    samples = []
    for index, row in enumerate(rows):
        totals = [total + step for total, step in zip(totals, row, strict=True)]
        reads, sectors, run, wait = totals
        line = diskstats(reads=reads, rsectors=sectors)
        samples.append(sample(index + 1, diskstats=[line], **threads(t1=("m", 0, 0, run, wait))))
    found = use(read_counters(content(*samples)))
    assert found.disks[0].reads == sum(row[0] for row in rows[1:])
    assert found.disks[0].read_bytes == 512 * sum(row[1] for row in rows[1:])
    role = found.role("daemon")
    assert role is not None
    assert role.cpu_seconds == pytest.approx(sum(row[2] for row in rows[1:]) / 1e9, rel=1e-6, abs=1e-6)
