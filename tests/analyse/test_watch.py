# SPDX-License-Identifier: Apache-2.0
"""Rules over looks at disks: read, judged without flapping; and when disks were slow in looks that were kept."""

from dataclasses import replace

import pytest
from tests.live_samples import BINS, UNPLUGGED, frames, kept_by_qemu, live, look

from virtune.analyse.layers.path import frame
from virtune.analyse.watch import CALM_LOOKS, Alarms, looks_of, slow_windows, tail_of, value_of
from virtune.model.bottleneck import Cause, DiskFrame, RuleEvent, TopFrame
from virtune.model.errors import VirtuneError
from virtune.plan.goal import LIVE_METRICS, parse_rule


def disk(found: TopFrame, name: str) -> DiskFrame:
    return next(one for one in found.disks if one.name == name)


def slowed(found: TopFrame, factor: float) -> TopFrame:
    """The same with every request of vda taking so many times as long."""

    def changed(one: DiskFrame) -> DiskFrame:
        layers = one.path.layers
        if one.disk != "vda" or layers is None:
            return one
        return replace(one, path=replace(one.path, layers=replace(layers, total_ns=layers.total_ns * factor)))

    return replace(found, vms=tuple(replace(vm, disks=tuple(map(changed, vm.disks))) for vm in found.vms))


def judged(alarms: Alarms, found: list[TopFrame]) -> list[tuple[int, bool, bool]]:
    """The look in which each event came, and whether the rule holds from then on, or the disk is gone."""
    return [(number, one.holds, one.gone) for number, each in enumerate(found) for one in alarms.look(each)]


@pytest.mark.parametrize(
    ("text", "metric", "value", "seconds"),
    [
        ("p99>20ms for 2min", "latency.p99", 20e6, 120), ("latency > 5ms for 1min", "latency.mean", 5e6, 60),
        ("iops<1k for 30 s", "iops", 1000, 30), ("oldest>10s", "oldest", 10e9, 0),
        ("write.bw < 2MB/s", "write.bandwidth", 2e6, 0), ("cpu_per_io > 20us", "cpu_per_io", 20e-6, 0),
    ],
)  # fmt: skip
def test_a_rule_is_a_condition_and_for_how_long(text: str, metric: str, value: float, seconds: float) -> None:
    found = parse_rule(text)
    assert (found.metric, found.seconds) == (metric, seconds)
    assert found.value == pytest.approx(value)
    assert parse_rule(found.text) == found


@pytest.mark.parametrize(
    "text",
    ["", "x > 1ms", "iops > +5%", "latency => 5ms", "latency == 5ms", "latency > 5", "wait.main > 3%",
     "latency > 5ms for ever", "for 5s", "oldest > 0s",
     "latency > 5ms for for 2s", "iops > 1\nfor 2s\n", "latency > -5ms", "\x1b[2J > 1ms",
     "p" * 10**5, "iops > " + " " * 10**4],
)  # fmt: skip
def test_what_is_no_rule_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(VirtuneError) as refused:
        parse_rule(text)
    assert len(str(refused.value)) < 200
    assert "\x1b" not in str(refused.value)


def test_every_metric_of_a_rule_is_read_of_a_disk_or_is_not_known() -> None:
    found = frame(kept_by_qemu(live(2), 1), kept_by_qemu(live(4), 3))
    assert found is not None
    vda = disk(found, "sql1:vda")
    known = {
        name: value_of(parse_rule(f"{name} > {'1' if 'iops' in name else '1B/s' if 'band' in name else '1ms'}"), vda)
        for name in LIVE_METRICS
    }
    unknown = {name for name, value in known.items() if value is None}
    assert unknown == {"oldest"} | {name for name in LIVE_METRICS if name.startswith(("write.latency", "sync"))}
    assert known["latency.mean"] == pytest.approx(400e3)
    assert known["read.iops"] == pytest.approx(vda.path.iops)


def test_a_percentile_lies_in_its_bin_and_is_not_invented() -> None:
    found = frame(kept_by_qemu(live(2), 1), kept_by_qemu(live(4), 3))
    assert found is not None
    vda = disk(found, "sql1:vda")
    assert tail_of(vda, None, 50) == (0, 1_000_000)
    assert tail_of(vda, "read", 99) == (20_000_000, 50_000_000)
    assert tail_of(vda, "write", 99) is None
    assert tail_of(disk(found, "mail:disk0"), None, 99) is None, "QEMU keeps none of it"
    assert value_of(parse_rule("p99 > 20ms"), vda) == 20_000_000, "it surely reaches that"
    assert value_of(parse_rule("p99 < 20ms"), vda) == 50_000_000, "it surely does not exceed that"
    for rule, holds in (("> 20ms", True), ("> 21ms", False), ("< 50ms", True), ("< 49ms", False), ("> 1us", True)):
        alarms = Alarms([parse_rule(f"read.p99 {rule}")])
        assert bool([*alarms.look(found)]) is holds, f"between 20 and 50 ms: {rule}"
    began_anew = frame(kept_by_qemu(live(2), 5), kept_by_qemu(live(4), 1))
    assert began_anew is not None
    assert disk(began_anew, "sql1:vda").histograms["read"] == BINS


def test_a_rule_holds_after_its_time_and_is_over_after_as_long() -> None:
    slow, fast = (slowed(one, factor) for factor in (100, 1) for one in frames(1))
    three = parse_rule("latency > 20ms for 3s")
    looks = [slow, slow, fast, *[slow] * 3, fast, fast, slow, *[fast] * 5]
    assert judged(Alarms([three]), looks) == [(5, True, False), (11, False, False)]
    at_once = Alarms([parse_rule("latency > 20ms")])
    assert judged(at_once, [slow, fast, slow, *[fast] * 4]) == [(0, True, False), (2 + CALM_LOOKS, False, False)]
    assert judged(at_once, [fast] * 9) == []


def test_an_event_has_the_layer_the_cause_and_the_evidence() -> None:
    (event, *_) = [
        one
        for each in frames(1)
        for one in Alarms([parse_rule("latency > 0.3ms"), parse_rule("iops > 1")]).look(each)
    ]
    assert isinstance(event, RuleEvent)
    assert (event.look.name, event.look.cause) == ("sql1:vda", Cause.DEVICE)
    assert event.look.layer == "host block layer and device"
    assert event.look.layer_share == pytest.approx(0.75)
    assert event.look.evidence


def test_a_disk_that_is_gone_ends_its_alarm_and_a_vm_that_was_not_seen_does_not() -> None:
    alarms = Alarms([parse_rule("iops < 1")])
    found = frames(9)
    blind = replace(found[2], vms=tuple(replace(vm, disks=()) for vm in found[2].vms))
    assert judged(alarms, [found[0], blind, *found[1:]]) == [(0, True, False), (UNPLUGGED - 1, False, True)]


def test_the_worst_windows_of_a_vm_are_found_with_the_cause_of_then() -> None:
    quiet = [look(10.0 * one, 1.0) for one in range(1, 100)]
    quiet[20:23] = [look(210, 40), look(220, 90), look(230, 30)]
    quiet[50] = look(510, None, waiting=12.0)
    quiet[70] = look(710, 1.9)
    found = slow_windows([*reversed(quiet), *(look(10.0 * one, 2.0, disk="vdb") for one in range(1, 100))])["sql1"]
    assert [(one.begin_seconds, one.end_seconds, one.worst.wall_seconds) for one in found] == [
        (500, 510, 510), (200, 230, 220),
    ]  # fmt: skip
    assert found[0].latency_ns is None
    assert found[1].latency_ns == pytest.approx(160e6 / 3)
    assert found[1].usual_ns == pytest.approx(1e6)
    assert found[1].worst.evidence == ("it takes long",)


def test_what_is_slow_all_the_time_is_one_window_and_what_is_fast_none() -> None:
    slow = [look(10.0 * one, 200.0) for one in range(1, 10)]
    assert [(one.begin_seconds, one.end_seconds) for one in slow_windows(slow)["sql1"]] == [(0, 90)]
    assert slow_windows([look(10.0 * one, 1.0) for one in range(1, 10)]) == {"sql1": ()}
    apart = [look(10, 200), look(1000, 200)]
    assert len(slow_windows(apart)["sql1"]) == 2, "nobody looked between them"


def test_of_a_frame_the_disks_are_kept_that_did_something() -> None:
    (found,) = frames(1)
    assert [one.name for one in looks_of(found)] == ["sql1:vda", "mail:disk0"]
