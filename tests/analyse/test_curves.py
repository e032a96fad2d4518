# SPDX-License-Identifier: Apache-2.0
"""What makes a request's time vary, and where it waits at the host's disk, from planted curves."""

import json
import random

import pytest

from virtune.analyse.layers.curves import disk_curve, host_queue, ring_curve, variance_shares
from virtune.model.live import DiskCurve, RingCurve

RATE = 1000
"""Requests in a window of 100 ms."""


def planted(
    windows: int, *, ring_us: tuple[float, float], backend_us: float, device_us: tuple[float, float], seed: int = 1
) -> tuple[RingCurve, DiskCurve]:
    """Curves of windows in which layers take a mean time with a spread."""
    chance = random.Random(seed)
    ring, disk = [(0, 0, 0.0, 0.0)], [(0, 0, 0, 0.0, 0.0)]
    for number in range(1, windows + 1):
        wait, device = (abs(chance.gauss(*one)) * 1e3 for one in (ring_us, device_us))
        whole = wait + backend_us * 1e3 + device
        _, done, offered, taken = ring[-1]
        ring.append((number * 10**8, done + RATE, offered + RATE * whole / 1e9, taken + RATE * (whole - wait) / 1e9))
        _, count, ms, inside, every = disk[-1]
        # sampled at quiet moments more often: both numbers are too low by the same part
        seen = 0.7 * RATE * device / 1e9
        disk.append((number * 10**8, count + RATE, ms + round(RATE * device / 1e6), inside + seen / 2, every + seen))
    return tuple(ring), DiskCurve(points=tuple(disk))


def test_the_layer_that_varies_has_the_variance_whatever_its_mean_is() -> None:
    ring, disk = planted(60, ring_us=(300, 100), backend_us=2_000, device_us=(5_000, 1))
    shares = variance_shares([ring], [disk])
    assert [one.label for one in shares] == [
        "wait in the virtqueue", "QEMU block layer and engine", "host block layer and device"
    ]  # fmt: skip
    assert sum(one.share for one in shares) == pytest.approx(1)
    assert shares[0].share > 0.98
    assert shares[0].low <= shares[0].share <= shares[0].high
    ring, disk = planted(60, ring_us=(300, 1), backend_us=2_000, device_us=(500, 200))
    assert variance_shares([ring], [disk])[2].share > 0.98


def test_equal_variances_are_shared_within_their_intervals() -> None:
    covered = 0
    for seed in range(20):
        ring, disk = planted(100, ring_us=(3_000, 300), backend_us=100, device_us=(5_000, 300), seed=seed)
        shares = variance_shares([ring], [disk])
        covered += shares[0].low <= 0.5 <= shares[0].high
        assert shares[0].high - shares[0].low < 0.6
    assert covered >= 17


def test_rounds_are_joined_and_too_few_windows_say_nothing() -> None:
    one, other = (planted(15, ring_us=(300, 100), backend_us=50, device_us=(500, 50), seed=seed) for seed in (1, 2))
    assert variance_shares([one[0]], [one[1]]) == ()
    shares = variance_shares([one[0], other[0]], [one[1], other[1]])
    assert shares[0].windows == 30
    assert variance_shares([], []) == ()


def test_a_disk_that_others_use_too_is_no_layer() -> None:
    ring, disk = planted(40, ring_us=(300, 100), backend_us=50, device_us=(500, 50))
    busier = DiskCurve(points=tuple((t, 2 * n, 2 * ms, i, a) for t, n, ms, i, a in disk.points))
    assert len(variance_shares([ring], [busier])) == 2


def test_time_at_the_disk_is_split_by_what_its_driver_has() -> None:
    _, disk = planted(10, ring_us=(300, 1), backend_us=50, device_us=(500, 0))
    split = host_queue(disk)
    assert split is not None
    assert split.queue_ns == pytest.approx(250e3, rel=0.01), "half of the requests are with the driver"
    assert split.device_ns == pytest.approx(250e3, rel=0.01)
    assert host_queue(DiskCurve(points=())) is None
    assert host_queue(disk, begin_ns=10**18) is None


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b'{"points": [[1, 2]]}', b'{"points": 3}'])
def test_damaged_curves_are_none(damaged: bytes) -> None:
    assert disk_curve(damaged).points == ()
    assert ring_curve(damaged) == ()


def test_curves_are_read_as_they_are_kept() -> None:
    ring, disk = planted(3, ring_us=(300, 1), backend_us=50, device_us=(500, 1))
    assert ring_curve(json.dumps({"points": ring}).encode()) == ring
    assert disk_curve(json.dumps({"device": "sda", "points": disk.points}).encode()) == disk
