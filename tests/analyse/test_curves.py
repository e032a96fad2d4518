# SPDX-License-Identifier: Apache-2.0
"""Where a request waits at the host's disk, from planted curves."""

import json

import pytest

from virtune.analyse.trial.counters import disk_curve, host_queue
from virtune.model.live import DiskCurve


def planted(windows: int) -> DiskCurve:
    """The curve of a disk that takes half a millisecond, half of it in its queue; too few moments were sampled."""
    points = [
        (number * 10**8, 1_000 * number, 500 * number, 0.175 * number, 0.35 * number) for number in range(windows)
    ]
    return DiskCurve(points=tuple(points))


def test_time_at_the_disk_is_split_by_what_its_driver_has() -> None:
    disk = planted(10)
    split = host_queue(disk)
    assert split is not None
    assert split.queue_ns == pytest.approx(250e3, rel=0.01), "half of the requests are with the driver"
    assert split.device_ns == pytest.approx(250e3, rel=0.01)
    assert host_queue(DiskCurve(points=())) is None
    assert host_queue(disk, begin_ns=10**18) is None


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b'{"points": [[1, 2]]}', b'{"points": 3}'])
def test_damaged_curves_are_none(damaged: bytes) -> None:
    assert disk_curve(damaged).points == ()


def test_curves_are_read_as_they_are_kept() -> None:
    disk = planted(3)
    assert disk_curve(json.dumps({"device": "sda", "points": disk.points}).encode()) == disk
