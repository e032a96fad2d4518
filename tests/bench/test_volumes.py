# SPDX-License-Identifier: Apache-2.0
"""Scratch volumes of LVM: what is read of LVM, what is refused, and which volume is removed, with an LVM that is a
script. On a real one tests/guests/test_volumes.py makes them.
"""

import json
import os
import tempfile
from pathlib import Path

import pytest

from virtune import warden
from virtune.bench import volumes
from virtune.bench.volumes import NotedVolume
from virtune.dialects.proxmox import storages
from virtune.flows.clean import clean
from virtune.model.errors import PreconditionError
from virtune.model.event import Event, Noticed
from virtune.model.stack import VolumePlace, volume_place

MIB = 1024**2
GROUP, VOLUME = "HSx5gi-AxG9-Tx4i-RLw7-cXEM-qlnK-FmEAwm", "6lqBYC-MOIw-4pU1-2FY6-43YA-eBan-w9twcS"
NAME, TAG = "virtune-scratch-0123456789abcdef", "virtune-00112233445566778899aabbccddeeff"
POOL = VolumePlace(group="pve", pool="data")

PV = {
    "vg_uuid": GROUP, "vg_free": str(400 * MIB), "vg_extent_size": str(4 * MIB), "vg_shared": "", "vg_clustered": "",
    "vg_exported": "", "vg_missing_pv_count": "0", "pv_name": "/dev/null",
}  # fmt: skip
THIN_POOL = {
    "vg_name": "pve", "lv_name": "data", "segtype": "thin-pool", "lv_size": str(1000 * MIB), "data_percent": "30.00",
    "metadata_percent": "10.94", "lv_metadata_size": str(4 * MIB), "chunk_size": "65536", "lv_health_status": "",
}  # fmt: skip
MADE = {
    "vg_uuid": GROUP,
    "lv_name": NAME,
    "lv_uuid": VOLUME,
    "lv_tags": f"a,{TAG}",
    "lv_device_open": "",
    "lv_role": "public",
}

PROGRAM = """#!/bin/sh
echo "${{0##*/}} $*" >>{place}/calls
[ ${{0##*/}} != lvremove ] || cp {place}/none {place}/lvs
cat {place}/${{0##*/}}
"""


class Lvm:
    """An LVM whose programs say what a test has them say."""

    def __init__(self, place: Path) -> None:
        self.place = place
        for name in ("pvs", "lvs", "lvmconfig", "lvcreate", "lvremove"):
            (place / "bin").mkdir(exist_ok=True)
            program = place / "bin" / name
            program.write_text(PROGRAM.format(place=place))
            program.chmod(0o755)
            (place / name).write_text("")
        (place / "none").write_text(self.report("lv"))
        self.says("pvs", "pv", PV)
        self.extends("100")

    def extends(self, threshold: str) -> None:
        (self.place / "lvmconfig").write_text(f"thin_pool_autoextend_threshold={threshold}\n")

    @staticmethod
    def report(kind: str, *rows: dict[str, str]) -> str:
        return json.dumps({"report": [{kind: list(rows)}]})

    def says(self, program: str, kind: str, *rows: dict[str, str]) -> None:
        (self.place / program).write_text(self.report(kind, *rows))

    def calls(self, program: str) -> list[str]:
        return [line for line in (self.place / "calls").read_text().splitlines() if line.startswith(f"{program} ")]


@pytest.fixture
def lvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lvm:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("VIRTUNE_PROXMOX", str(tmp_path / "pve" / "qemu-server"))
    return Lvm(tmp_path)


def test_a_place_is_named_by_its_group_and_its_pool() -> None:
    assert volume_place("lvm:pve") == VolumePlace(group="pve")
    assert volume_place("lvm:pve/data") == POOL
    assert (POOL.text, POOL.words) == ("lvm:pve/data", "pve/data (thin pool)")
    for other in ("/var/tmp", "lvm:", "lvm:-x", "lvm:a/-b", "lvm:a/b/c", "lvm:..", "lvm:a/.", "lvm:a b", "lvm:a\n"):
        assert volume_place(other) is None, other


@pytest.mark.parametrize(
    "said",
    ["", "null", "[]", "{}", '{"report": 1}', '{"report": "lv"}', '{"report": [[]]}', '{"report": [{"lv": 3}]}',
     '{"report": [{"lv": "x"}]}', '{"report": [{"lv": [[]]}]}', '{"report": [{"lv": [null]}]}', "[" * 100_000,
     '{"report": [{"lv": [{}]}]}', '{"report": [{"lv": [{"lv_name": 1}]}]}', '{"report": [{"lv": [{"lv_name": "a"}]}',
     '{"report": [{"vg": []}]}', '{"report": null}', "9" * 5000],
)  # fmt: skip
def test_a_report_of_another_form_is_refused_in_a_sentence(said: str) -> None:
    with pytest.raises(PreconditionError, match="cannot be read"):
        volumes.rows_of(said, "lv", ["lv_name"])


def test_a_report_is_read() -> None:
    said = Lvm.report("lv", {"lv_name": "a", "more": "b"})
    assert [row["lv_name"] for row in volumes.rows_of(said, "lv", ["lv_name"])] == ["a"]


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        ({"data_percent": "79.00"}, "data of the thin pool pve/data would be 82% full"),
        ({"metadata_percent": "79.90"}, "metadata of the thin pool pve/data would be 81% full"),
        ({"data_percent": ""}, "does not tell data_percent of pve/data"),
        ({"data_percent": "-1.00"}, "does not tell data_percent"),
        ({"metadata_percent": "nan"}, "does not tell metadata_percent"),
        ({"lv_size": "1e999"}, "does not tell lv_size"),
        ({"lv_size": "0"}, "would be"),
        ({"segtype": "linear"}, "pve/data is no thin pool"),
        ({"lv_health_status": "metadata_read_only"}, "is not well: metadata_read_only"),
    ],
)
def test_a_pool_that_would_become_full_or_tells_nothing_is_refused(pool: dict[str, str], said: str, lvm: Lvm) -> None:
    lvm.says("lvs", "lv", THIN_POOL)
    assert volumes.require_room(POOL, 31 * MIB).uuid == GROUP
    lvm.says("lvs", "lv", {**THIN_POOL, **pool})
    with pytest.raises(PreconditionError, match=said):
        volumes.require_room(POOL, 31 * MIB)
    assert not lvm.calls("lvcreate")


@pytest.mark.parametrize("threshold", ["33", "50", "0", "", "all", "-1", "1e9"])
def test_a_pool_that_lvm_would_extend_for_good_or_may_is_left_alone(threshold: str, lvm: Lvm) -> None:
    lvm.says("lvs", "lv", THIN_POOL)
    lvm.extends("70")
    assert volumes.require_room(POOL, 31 * MIB).uuid == GROUP
    lvm.extends(threshold)
    with pytest.raises(PreconditionError, match=r"would be \d+% full.* at most \d+%|does not tell from which"):
        volumes.require_room(POOL, (200 if threshold == "50" else 31) * MIB)


@pytest.mark.parametrize("what", ["data", "metadata"])
def test_filling_ends_where_others_fill_the_pool(what: str, lvm: Lvm) -> None:
    lvm.says("lvs", "lv", {**THIN_POOL, f"{what}_percent": "89.00"})
    volumes._looking(POOL)()
    lvm.says("lvs", "lv", {**THIN_POOL, f"{what}_percent": "90.50"})
    look = volumes._looking(POOL)
    with pytest.raises(PreconditionError, match=f"the {what} of the thin pool pve/data became 90% full"):
        look()
    volumes._looking(VolumePlace(group="pve"))()


def test_flags_may_be_numbers(lvm: Lvm) -> None:
    """By `report/binary_values_as_numeric` of lvm.conf."""
    lvm.says("pvs", "pv", {**PV, "vg_shared": "0", "vg_clustered": "0", "vg_exported": "0"})
    assert volumes.group_of("pve").uuid == GROUP
    lvm.says("pvs", "pv", {**PV, "vg_exported": "1"})
    with pytest.raises(PreconditionError, match="not whole"):
        volumes.group_of("pve")


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ({"vg_free": str(60 * MIB)}, "half of it stays free"),
        ({"vg_free": "lots"}, "does not tell vg_free"),
        ({"vg_shared": "shared"}, "shared with other hosts"),
        ({"vg_clustered": "clustered"}, "shared with other hosts"),
        ({"vg_missing_pv_count": "1"}, "not whole"),
        ({"vg_exported": "exported"}, "not whole"),
        ({"vg_uuid": "x"}, "has not one volume group pve"),
    ],
)
def test_a_group_without_room_or_of_other_hosts_is_refused(group: dict[str, str], said: str, lvm: Lvm) -> None:
    assert volumes.require_room(VolumePlace(group="pve"), 31 * MIB).extent_bytes == 4 * MIB
    lvm.says("pvs", "pv", {**PV, **group})
    with pytest.raises(PreconditionError, match=said):
        volumes.require_room(VolumePlace(group="pve"), 31 * MIB)


def test_two_groups_of_one_name_are_refused(lvm: Lvm) -> None:
    lvm.says("pvs", "pv", PV, {**PV, "vg_uuid": VOLUME})
    with pytest.raises(PreconditionError, match="has not one volume group pve"):
        volumes.group_of("pve")


def test_a_logical_volume_lies_in_its_group_or_its_pool(lvm: Lvm) -> None:
    row = {"vg_name": "pve", "lv_name": "a", "segtype": "thin", "pool_lv": "data"}
    lvm.says("lvs", "lv", row)
    assert volumes.place_of("/dev/pve/a") == POOL
    lvm.says("lvs", "lv", *[{**row, "segtype": "linear", "pool_lv": ""}] * 2)  # of two segments
    assert volumes.place_of("/dev/pve/a") == VolumePlace(group="pve")
    assert volumes.place_of("/dev/nothing") is None
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:  # an image in memory is a file
        assert volumes.place_of(file.name) is None
    for wrong in (
        {"segtype": "raid1"}, {"segtype": "thin", "pool_lv": ""}, {"vg_name": "-x"}, {"pool_lv": "a/b"}
    ):  # fmt: skip
        lvm.says("lvs", "lv", {**row, **wrong})
        with pytest.raises(PreconditionError):
            volumes.place_of("/dev/pve/a")


STORAGES = """dir: local
\tpath /var/lib/vz
\tcontent iso,vztmpl

lvmthin: local-lvm
    thinpool data
    vgname pve
lvm: san
\tvgname fast
\tshared 1
# a comment
esxi : x
\tvgname lost
"""


def test_what_proxmox_calls_a_volume_is_a_path(lvm: Lvm) -> None:
    found = storages(STORAGES)
    assert list(found) == ["local", "local-lvm", "san"]
    assert found["local-lvm"] == ("lvmthin", {"thinpool": "data", "vgname": "pve"})
    assert storages("\tlost 1\n::\n\x00\nlvm:\n") == {}
    assert volumes.proxmox_path("local-lvm:vm-100-disk-0") is None
    (lvm.place / "pve").mkdir()
    (lvm.place / "pve/storage.cfg").write_text(STORAGES)
    assert volumes.proxmox_path("local-lvm:vm-100-disk-0") == "/dev/pve/vm-100-disk-0"
    assert volumes.proxmox_path("local:100/vm-100-disk-0.qcow2") == "/var/lib/vz/images/100/vm-100-disk-0.qcow2"
    for other in ("other:vm-100-disk-0", "local-lvm:a/b", "local-lvm:-x", "local-lvm", "rbd:pool/image"):
        assert volumes.proxmox_path(other) is None
    with pytest.raises(PreconditionError, match=r"shared with other hosts \(san\)"):
        volumes.group_of("fast")


def noted(place: Path, **more: str) -> NotedVolume:
    record = place / "data/virtune/volumes" / f"{NAME}.json"
    words = {"group": "pve", "group_uuid": GROUP, "tag": TAG, "uuid": VOLUME, **more}
    volume = NotedVolume(record=record, **words)
    os.close(volumes._written(volume))
    return volume


def test_a_volume_that_a_dead_run_left_is_removed_with_its_record(lvm: Lvm) -> None:
    record = noted(lvm.place).record
    lvm.says("lvs", "lv", MADE)
    (left,) = volumes.abandoned()
    assert left.path == f"pve/{NAME}"
    assert left.remove()
    (call,) = lvm.calls("lvremove")
    assert call.endswith(f" pve/{NAME}")
    for proof in (f'lv_uuid="{VOLUME}"', f'vg_uuid="{GROUP}"', f'lv_tags="{TAG}"'):
        assert proof in call
    assert not record.exists()
    noted(lvm.place)
    assert [one.remove() for one in volumes.abandoned()] == [False]  # somebody removed the volume
    assert len(lvm.calls("lvremove")) == 1
    assert not record.exists()


@pytest.mark.parametrize(
    ("found", "known", "said"),
    [
        ({"lv_uuid": GROUP}, {}, "is not proven to be the one"),
        ({"vg_uuid": VOLUME}, {}, "is not proven to be the one"),
        ({"lv_tags": ""}, {}, "is not proven to be the one"),
        ({"lv_tags": f"{TAG}0"}, {}, "is not proven to be the one"),
        ({}, {"uuid": ""}, "is not proven to be the one"),
        ({"lv_device_open": "open"}, {}, "is open"),
        ({"lv_device_open": "-1"}, {}, "is open"),
        ({"lv_role": "public,origin,thickorigin"}, {}, "made a snapshot of"),
    ],
)
def test_a_volume_that_is_not_the_one_or_is_open_is_left_alone(
    found: dict[str, str], known: dict[str, str], said: str, lvm: Lvm
) -> None:
    record = noted(lvm.place, **known).record
    lvm.says("lvs", "lv", {**MADE, **found})
    (left,) = volumes.abandoned()
    with pytest.raises(PreconditionError, match=said):
        left.remove()
    assert not lvm.calls("lvremove")
    assert record.exists()


@pytest.mark.parametrize("there", [(), (VOLUME,)])
def test_a_volume_whose_group_is_not_there_keeps_its_record(there: tuple[str, ...], lvm: Lvm) -> None:
    """A group of the same name may be another: of another disk, or of another host with the same home."""
    record = noted(lvm.place).record
    lvm.says("lvs", "lv")
    lvm.says("pvs", "pv", *({**PV, "vg_uuid": one} for one in there))
    (left,) = volumes.abandoned()
    with pytest.raises(PreconditionError, match=r"the volume group pve in which .* is not there"):
        left.remove()
    assert record.exists()


@pytest.mark.parametrize(("uuid", "said"), [(VOLUME, "left to `virtune host clean`"), ("", f"`lvremove pve/{NAME}`")])
def test_what_is_left_is_told_with_what_removes_it(uuid: str, said: str, lvm: Lvm) -> None:
    lvm.says("lvs", "lv", {**MADE, "lv_uuid": GROUP})
    told: list[Event] = []
    volumes._remove_at_end(noted(lvm.place, uuid=uuid), told.append, patience_seconds=0.0)
    (one,) = told
    assert isinstance(one, Noticed)
    assert said in one.text
    _, kept, _ = clean(lvm.place / "nothing", images=False)
    assert any(f"`lvremove pve/{NAME}`" in line for line in kept)


def test_a_record_that_virtune_did_not_write_there_removes_nothing(lvm: Lvm) -> None:
    record = noted(lvm.place).record
    lvm.says("lvs", "lv", MADE)
    copy = record.with_name("virtune-scratch-fedcba9876543210.json")
    copy.write_bytes(record.read_bytes())
    record.unlink()
    assert not list(volumes.abandoned())
    strange = warden.strange_records(volumes.records(), volumes.said)
    assert strange == [f"{copy}: it is no record of virtune's, or a copy"]
    for wrong in ({"group": "../x"}, {"group": "a/b"}, {"tag": "*"}, {"uuid": '" || 1=1'}, {"group_uuid": ""}):
        copy.unlink(missing_ok=True)
        noted(lvm.place, **wrong)
        assert not list(volumes.abandoned()), wrong


def test_an_lvm_that_does_not_work_is_one_sentence(lvm: Lvm) -> None:
    (lvm.place / "pvs").unlink()
    with pytest.raises(PreconditionError, match=r"`pvs .*` does not work"):
        volumes.group_of("pve")
