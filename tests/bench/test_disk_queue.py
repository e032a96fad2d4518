# SPDX-License-Identifier: Apache-2.0
"""A disk's queue is sampled from the kernel's files."""

from pathlib import Path

from virtune.analyse.trial.counters import disk_curve
from virtune.bench.counters import DiskQueue


def test_what_the_kernel_counts_becomes_a_curve(tmp_path: Path) -> None:
    (tmp_path / "sda").mkdir()
    (tmp_path / "sda" / "inflight").write_text("       3        1\n")
    (tmp_path / "sda" / "stat").write_text("100 0 800 50 10 0 80 5 6 60 55 0 0 0 0 0 0\n")
    with DiskQueue("sda", root=tmp_path):
        pass
    with DiskQueue("sda", root=tmp_path) as queue:
        queue.sample(mark="again")
    points = disk_curve(queue.content()).points
    assert points == queue.curve().points
    assert {point[1:3] for point in points} == {(110, 55)}
    seconds = (points[-1][0] - points[0][0]) / 1e9
    assert abs(points[-1][3] - 4 * seconds) < 4e-6, "four requests are with the driver all the time"
    assert abs(points[-1][4] - 6 * seconds) < 6e-6, "and two wait"


def test_a_device_without_these_files_has_no_points(tmp_path: Path) -> None:
    with DiskQueue("nosuch", root=tmp_path) as queue:
        pass
    assert queue.curve().points == ()
