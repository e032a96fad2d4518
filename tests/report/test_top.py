# SPDX-License-Identifier: Apache-2.0
"""`virtune top --once`: the text and the document of one interval."""

import io
import json
from dataclasses import replace

from jsonschema import Draft202012Validator
from rich.console import Console, RenderableType
from tests.live_samples import live
from tests.published import schema

from virtune.analyse.layers.path import frame
from virtune.cli.common.output import Clean
from virtune.model.bottleneck import EMULATED_WORDS, TopFrame
from virtune.model.result import Neighbour
from virtune.report.json.live import top_document
from virtune.report.top import (
    TABLE_KINDS,
    UNITS,
    DevicesText,
    TopText,
    columns_of,
    head_line,
    row_line,
    rows_of,
    table,
)


def seen() -> TopFrame:
    found = frame(live(2), live(4))
    assert found is not None
    return found


def text(found: TopFrame, width: int) -> str:
    return written(TopText(found), width)


def written(what: RenderableType, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, no_color=True, highlight=False, markup=False, emoji=False)
    console.print(Clean(what), crop=False, end="")
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_one_interval_as_text_fits_80_columns_and_needs_no_colour() -> None:
    lines = text(seen(), 80).splitlines()
    assert lines[0] == "3 disks of 2 running VMs, seen for 2.0 s; host CPUs 60 % busy, others than these"
    table_ = [line for line in lines if line.startswith((" DISK", " sql1", " mail"))]
    assert table_ == [
        " DISK            IOPS   MB/s LATENCY BY LAYER      CPU/IO  FLY LIMITED BY    CAP",
        " sql1:vda       13.5k   55.3  400 us qqqddddddddd 14.8 us 5.40 device",
        " mail:disk0     2,000   16.4 1.50 ms vvvv========   50 us 3.00 throttle    100 %",
        " sql1:vdb           0    0.0       -                    -    - no I/O",
    ]
    assert all(len(line) <= 80 for line in table_)
    assert any("v wait in the virtqueue, q QEMU" in line for line in lines)
    assert sum("not seen: the wait in the virtqueue" in line for line in lines) == 1


def test_each_disk_says_by_what_it_is_limited_and_how_far() -> None:
    told = [line.strip() for line in text(seen(), 100).splitlines()]
    assert "limited by a limit that was set: 2,000 of the 2,000 that are allowed (write.iops)" in told
    assert any(line.startswith("limited by the device: 75 % of the time below") for line in told)
    before, after = (
        replace(one, vms=(one.vms[0], replace(one.vms[1], emulated=True, disks=(half,))))
        for one in (live(2), live(4))
        for half in (replace(one.vms[1].disks[0], limits={"write.iops": 4_000.0}),)
    )
    found = frame(before, after)
    assert found is not None
    told = [line.strip() for line in text(found, 100).splitlines()]
    assert "2,000 of the 4,000 that are allowed (write.iops)" in told, "also where it is not what limits it"
    assert f"mail: {EMULATED_WORDS}" in told
    assert not any(line.startswith("mail") for line in text(seen(), 100).splitlines())


def test_the_share_of_its_limit_is_a_column_where_a_disk_has_one() -> None:
    assert [one.title for one in table("disks", seen().disks, sort=0).columns][-1] == "CAP"
    free = [one for one in seen().disks if not one.path.limits]
    assert "CAP" not in [one.title for one in table("disks", free, sort=8).columns], "and the order is another's"


def on(*chains: tuple[str, ...], devices: tuple[str, ...]) -> TopFrame:
    """A frame whose disks lie on these devices of the host, each from the top of its chain down."""
    found = seen()
    disks = iter(replace(one, devices=chain) for one, chain in zip(found.disks, chains, strict=True))
    vms = tuple(replace(vm, disks=tuple(next(disks) for _ in vm.disks)) for vm in found.vms)
    uses = tuple(replace(found.host.disks[0], name=name) for name in devices)
    return replace(found, vms=vms, host=replace(found.host, disks=uses))


def test_by_device_each_disk_stands_on_the_lowest_devices_that_are_seen_below_it() -> None:
    found = on(
        ("dm-1", "md0", "sda", "sdb"), ("dm-2", "sda"), (), devices=("dm-1", "dm-2", "md0", "sda", "sdb", "sdc")
    )
    assert {one.use.name: [disk.name for disk in one.disks] for one in found.devices} == {
        "dm-1": ["sql1:vda"], "dm-2": ["sql1:vdb"], "md0": ["sql1:vda"], "sda": ["sql1:vda", "sql1:vdb"],
        "sdb": ["sql1:vda"], "sdc": [],
    }  # fmt: skip
    lines = written(DevicesText(found, None), 100).splitlines()
    assert lines[0].startswith("2 devices with disks of 2 running VMs, seen for 2.0 s;")
    told = [line.split()[0] for line in lines if line.startswith(("   sql1", " sd", " dm", " md"))]
    assert told in (
        ["sda", "sql1:vda:", "sql1:vdb:", "sdb", "sql1:vda:"],
        ["sdb", "sql1:vda:", "sda", "sql1:vda:", "sql1:vdb:"],
    )
    assert "on no device of this host that is seen: mail:disk0" in [line.strip() for line in lines]
    first, _ = (line for line in lines if "sql1:vda:" in line)
    (second,) = (line for line in lines if "sql1:vdb:" in line)
    assert ", through dm-1, md0;" in first
    assert ", through dm-2;" in second
    found = replace(found, vms=tuple(replace(vm, disks=vm.disks[:1]) for vm in found.vms))
    mine, use = found.disks[0], found.host.disks[0]
    for share, words in ((0.25, " 25 % of its bytes,"), (0.5, " 50 % of its bytes,"), (1.5, "")):
        moved = round(mine.path.bandwidth * found.seconds / share)
        host = replace(found.host, disks=(replace(use, name="sda", read_bytes=moved, written_bytes=0),))
        shown = written(DevicesText(replace(found, host=host), None), 120).splitlines()
        (disk,) = (one for one in shown if one.startswith("   sql1:vda:"))
        assert words in disk
        assert ("of its bytes" in disk) == bool(words)
    assert not any("processes" in line for line in lines), "nobody looked at them"
    loop = written(
        DevicesText(on(("loop0",), ("loop1", "sda"), ("loop1", "sda"), devices=("loop0", "loop1", "sda")), ()), 100
    )
    assert [line.split()[0] for line in loop.splitlines() if line.startswith((" loop", " sda"))] in (
        ["loop0", "sda"], ["sda", "loop0"],
    )  # fmt: skip


def test_by_device_others_are_named_with_what_they_move() -> None:
    busy = Neighbour(pid=7, name="backup\x1b[31m", cpus=0.1, bandwidth_bps=131e6)
    rests = Neighbour(pid=8, name="compiler", cpus=1.9, bandwidth_bps=0.0)
    told = written(DevicesText(on((), (), ("sda",), devices=("sda",)), (busy, rests)), 100)
    assert "other processes, over all devices: backup" in told
    assert "(7) 131 MB/s" in told
    assert "compiler" not in told
    assert "\x1b" not in told
    none = written(DevicesText(on((), (), (), devices=()), ()), 100).splitlines()
    assert none[0].startswith("0 devices with disks of 2 running VMs")
    assert "sql1:vda, sql1:vdb, mail:disk0" in " ".join(none)


def test_the_document_is_as_its_schema_says() -> None:
    document = json.loads(json.dumps(top_document(seen())))
    Draft202012Validator(schema("top")).validate(document)
    assert [one["vm"] for one in document["vms"]] == ["sql1", "mail"]
    (vda, _), (disk0,) = (one["disks"] for one in document["vms"])
    assert vda["read"] == {"iops": 13_500.0, "bandwidth_bps": 13_500.0 * 4096}
    assert disk0["bottleneck"]["cause"] == "throttle"
    assert disk0["write"]["iops"] == 2_000.0
    device = document["host"]["devices"][0]
    assert (device["name"], device["disks"]) == ("nvme0n1", [one.name for one in seen().disks if one.devices])
    assert device["others_share"] is None or 0 <= device["others_share"] <= 1


def test_every_table_fits_80_columns_in_every_unit() -> None:
    for kind in TABLE_KINDS:
        for units in UNITS:
            shown = table(kind, rows_of(kind, seen()), sort=0, units=units)
            assert shown.rows, kind
            lines = [head_line(shown, 80), *(row_line(shown, row, 80, marked=True) for row in shown.rows)]
            assert all(line.cell_len <= 80 for line in lines), (kind, units)


def test_each_column_has_a_letter_of_its_own_that_no_other_key_has() -> None:
    for kind in TABLE_KINDS:
        for units in UNITS:
            letters = [one.letter for one in columns_of(kind, units, limits=True)]
            assert len(set(letters)) == len(letters), kind
            assert not {"T", "J"} & set(letters), "these move in time"
            assert all(one.isupper() for one in letters)


def test_rows_are_sorted_with_what_has_no_value_last_either_way() -> None:
    names = [[one.name for one in table("disks", seen().disks, sort=3, reverse=way).rows] for way in (False, True)]
    assert names == [["mail:disk0", "sql1:vda", "sql1:vdb"], ["sql1:vda", "mail:disk0", "sql1:vdb"]]
    assert [one.name for one in table("disks", seen().disks, sort=0).rows] == ["mail:disk0", "sql1:vda", "sql1:vdb"]


def test_rows_are_filtered_by_words_and_by_whether_they_do_anything() -> None:
    assert [one.name for one in table("disks", seen().disks, sort=0, words="SQL1").rows] == ["sql1:vda", "sql1:vdb"]
    assert [one.name for one in table("disks", seen().disks, sort=0, active=True).rows] == ["mail:disk0", "sql1:vda"]


def test_the_letter_of_a_column_stands_in_its_title() -> None:
    for kind in TABLE_KINDS:
        for units in UNITS:
            assert all(one.letter in one.title for one in columns_of(kind, units, limits=True)), (kind, units)
