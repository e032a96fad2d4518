# SPDX-License-Identifier: Apache-2.0
"""Sides of which each was measured by another program, as before and after a migration: their loads are compared
as far as they are known, and what else is not the same is said in one place.
"""

from pathlib import Path
from typing import Any

import pytest
from tests.analyse.vdbench_reports import RUN, as_flat, as_table
from tests.cli.kept_results import Capture, Kept, result

READS: dict[str, Any] = RUN | {"reads": 100, "rate": 60_000.0, "resp": {"read": 8 / 60, "write": 0.2}}
"""Eight in flight that only read at random, as the result of fio."""


@pytest.fixture
def kept(tmp_path: Path, capsys: Capture) -> Kept:
    return Kept(tmp_path, capsys)


def sides(folder: Path, **changes: Any) -> list[str]:
    """Write four results of fio on one host and four of Vdbench elsewhere, with `table` what Vdbench printed."""
    table = changes.pop("table", False)
    for number in range(4):
        result(folder / "kvm", f"run-{number}.json", scale=1 + number / 500)
        run = READS | {"rate": READS["rate"] * (1 + number / 500)} | changes
        path = folder / "vmware" / f"run-{number}" / ("printed.txt" if table else "flatfile.html")
        path.parent.mkdir(parents=True)
        path.write_text(as_table(run) if table else as_flat(run))
    return [str(folder / "kvm"), str(folder / "vmware")]


def test_what_differs_besides_the_arms_is_said_in_one_line(kept: Kept, tmp_path: Path) -> None:
    both = sides(tmp_path)
    told = "the arms differ in other options: program (kvm: fio-3.33, vmware: Vdbench); direct (kvm: 1, vmware: not "
    brief, whole = (" ".join(kept("compare", *both, *more).split()) for more in ((), ("-v",)))
    assert told in brief
    assert f"{told}known); seconds (kvm: 0.17, vmware: 29)" in whole
    assert "the jobs differ" not in brief + whole


def test_what_one_side_does_not_say_of_its_load_is_named(kept: Kept, tmp_path: Path) -> None:
    said = " ".join(kept("compare", *sides(tmp_path, table=True), "-v").split())
    assert "rw (kvm: randread, vmware: none known); iodepth (kvm: 8, vmware: none known)" in said
    assert "bs (kvm" not in said
    assert "rate_iops (kvm" not in said


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"size": 8192}, "bs is 4096 and 8192"),
        ({"reads": 70, "table": True}, "reads is 100% and 70%"),
        ({"jitter": 4096, "table": True, "size": 4096}, "size of a request is 4.00 KiB and 8 KiB"),
        ({"asked": 60_000}, "rate_iops is not shown and 60000"),
        ({"threads": 16, "resp": {"read": 16 / 60, "write": 0.2}}, "iodepth is 8 and 16"),
    ],
)
def test_loads_that_are_not_the_same_are_refused_or_said_to_differ(
    kept: Kept, tmp_path: Path, changes: dict[str, Any], differs: str
) -> None:
    both = sides(tmp_path, **changes)
    kept("compare", *both, status=2)
    assert "is not the same job in kvm and vmware" in kept.err
    assert differs in kept.err
    option, _, values = differs.partition(" is ")
    was, _, now = values.partition(" and ")
    said = " ".join(kept("compare", *both, "--different-jobs").split())
    assert "the jobs differ, so a difference may be theirs and not the arms'" in said
    assert f"{option} (kvm: {was}, vmware: {now})" in said


def test_sides_of_one_program_are_not_said_to_differ_in_it(kept: Kept, tmp_path: Path) -> None:
    first, _ = sides(tmp_path / "one")
    second, _ = sides(tmp_path / "other")
    assert "differ in other options" not in kept("compare", first, second, "-v")
