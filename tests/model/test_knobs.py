# SPDX-License-Identifier: Apache-2.0
"""The knob table: whole, at one with the Stack, honest about its sources, not broken by what a user writes."""

import json
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtune.model import knobs
from virtune.model.errors import PlanError
from virtune.model.knob import (
    AskSchema,
    Change,
    Choice,
    Domain,
    Knob,
    Number,
    Risk,
    Size,
    Switch,
    Text,
    describe_domain,
)
from virtune.model.knobs import BY_ID, KNOBS, TURNED, find, matching, needs_new_process
from virtune.model.rig import RIGS
from virtune.model.stack import Device, Disk, Host, Kernel, Machine, Pins, Stack, setting_of, with_setting

TWO_VALUES: dict[type[Domain], Callable[[Any], tuple[Any, Any]]] = {
    Choice: lambda domain: domain.values[:2],
    Number: lambda domain: (domain.low, domain.low + 1),
    Size: lambda domain: (domain.low, domain.low * 2),
    Switch: lambda _: (True, False),
    Text: lambda _: ("a", "b"),
}

SYSTEMS = {
    *("libvirt", "qemu", "proxmox", "kubevirt", "openstack", "xen", "vmware", "bhyve"),
    *("cloud-hypervisor", "firecracker", "linux", "fio"),
}
each_knob = pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.id)
each_turned_knob = pytest.mark.parametrize("knob", TURNED, ids=lambda knob: knob.id)


def type_at(place: tuple[str, ...]) -> object:
    """The declared type of the attribute of Stack at a place."""
    kind: object = Stack
    for name in place:
        kind = get_type_hints(kind)[name]
    return kind


def test_every_id_is_there_once() -> None:
    assert len(BY_ID) == len(KNOBS)


def test_every_number_of_the_knowledge_base_has_a_knob() -> None:
    assert {knob.number for knob in KNOBS} == {f"K{number:02d}" for number in range(1, 109)}


def test_the_knobs_that_are_turned_are_exactly_what_a_stack_holds() -> None:
    of_the_export = {
        "disk.export": ("export",),
        "export.num_queues": ("num_queues",),
        "export.iothread": ("iothread",),
        "iothread.poll_max_ns": ("poll_max_ns",),
        "iothread.thread_pool_max": ("thread_pool_max",),
        "guests.count": ("guests",),
        "guests.idle": ("idle_guests",),
        "guests.images": ("own_images",),
        "guests.spread": ("spread",),
        "disks.count": ("disks",),
        "disks.iothreads": ("own_iothreads",),
        "disks.second": ("second",),
        "host.cache": ("cache_state",),
        "disk.place": ("place",),
        "host.neighbour": ("neighbour",),
        "disk.during": ("during",),
        "workload.iodepth": ("load_depth",),
    }
    of_the_machine = {f"machine.{field.name}": ("machine", field.name) for field in fields(Machine)}
    of_the_machine["memory.hugepages"] = of_the_machine.pop("machine.hugepages")
    of_the_machine["memory.numa"] = of_the_machine.pop("machine.numa")
    of_the_machine["memory.thp"] = of_the_machine.pop("machine.thp")
    of_the_machine["memory.ksm"] = of_the_machine.pop("machine.ksm")
    of_the_machine["guest.system"] = of_the_machine.pop("machine.system")
    of_the_machine |= {f"{field.name}.pin": ("pins", field.name) for field in fields(Pins)}
    of_the_disk = {f"disk.{field.name}": ("disk", field.name) for field in fields(Disk)}
    of_the_device = {f"device.{field.name}": ("device", field.name) for field in fields(Device)}
    for here, known_as in (("scsi_num_queues", "scsi.num_queues"), ("max_ioqpairs", "nvme.max_ioqpairs"),
                              ("vfio_pci", "storage.vfio_pci")):  # fmt: skip
        of_the_device[known_as] = of_the_device.pop(f"device.{here}")
    of_the_kernel = {f"guest.{field.name}": ("kernel", field.name) for field in fields(Kernel)}
    of_the_kernel |= {f"host.{field.name}": ("host", field.name) for field in fields(Host)}
    of_the_guest = of_the_kernel | of_the_disk | of_the_device | of_the_machine
    assert {knob.id: knob.place for knob in TURNED} == of_the_guest | of_the_export
    rest = {"rig", "domain", "device", "disk", "machine", "pins", "kernel", "host"}
    assert {place[0] for place in of_the_export.values()} == {f.name for f in fields(Stack)} - rest


@each_turned_knob
def test_a_domain_takes_what_the_stack_can_hold(knob: Knob) -> None:
    kinds = [kind for kind in get_args(type_at(knob.place)) or (type_at(knob.place),) if kind is not type(None)]
    if get_origin(type_at(knob.place)) is Literal:
        assert isinstance(knob.domain, Choice)
        assert set(knob.domain.values) == set(kinds)
        return
    flat = [word for kind in kinds for word in (get_args(kind) or (kind,))]
    expected: dict[type[Domain], object] = {Switch: bool, Choice: str, Number: int, Size: int, Text: str}
    wanted = expected[type(knob.domain)]
    for kind in flat:
        found = getattr(kind, "__supertype__", kind)
        assert type(found) is wanted if isinstance(found, str) else found is wanted
    if isinstance(knob.domain, Choice):
        assert set(knob.domain.values) == set(flat)


@each_turned_knob
def test_a_knob_that_is_turned_stands_where_it_was_turned_to(knob: Knob) -> None:
    for text in some_values(knob.domain):
        value = knob.read(text)
        assert setting_of(with_setting(Stack(), knob, value), knob) == value


def test_a_knob_without_a_place_is_not_turned() -> None:
    with pytest.raises(ValueError, match="cannot set it yet"):
        with_setting(Stack(), BY_ID["device.config_wce"], True)


def some_values(domain: Domain) -> tuple[str, ...]:
    match domain:
        case Choice(values=values):
            return values
        case Number(low=low, high=high) | Size(low=low, high=high):
            return (str(low), str(high))
        case Switch():
            return ("on", "off")
        case _:
            return ("2-3,8",)


@each_knob
def test_a_row_is_whole(knob: Knob) -> None:
    assert re.fullmatch(r"[a-z_]+\.[a-z0-9_]+", knob.id)
    for text in (knob.what, knob.why):
        assert text.endswith("."), text
    assert (knob.risk is Risk.NONE) == (not knob.risk_note)
    assert knob.source
    assert all(re.match(r"\[[TCDPBU]\] \S", line) for line in knob.source)
    assert set(knob.spelled) <= SYSTEMS
    assert "\n" not in "".join(
        (knob.what, knob.why, knob.risk_note, *knob.needs, *knob.spelled.values(), *knob.source)
    )
    assert len(describe_domain(knob.domain)) <= 95


@each_knob
def test_a_default_is_a_value_or_is_explained(knob: Knob) -> None:
    if not (knob.default.startswith("(") and knob.default.endswith(")")):
        knob.read(knob.default)


@each_knob
def test_knobs_that_a_text_names_exist(knob: Knob) -> None:
    families = "|".join(sorted({known.partition(".")[0] for known in BY_ID}))
    for text in (knob.what, knob.why, *knob.needs):
        for name in re.findall(rf"(?<![\w.\[])(?:{families})\.[a-z][a-z0-9_]+", text):
            assert name in BY_ID or name == "cpu.stat", text


def test_what_nobody_exposes_is_no_knob_of_qemu() -> None:
    assert "SQPOLL and IOPOLL are no knobs of QEMU" in BY_ID["disk.aio"].why
    assert not [knob.id for knob in KNOBS if "sqpoll" in knob.id or "iopoll" in knob.id]


def test_settings_that_lose_data_say_so() -> None:
    risky = ("disk.cache", "guest.write_cache", "guest.mount_barrier", "zfs.sync", "device.logical_block_size")
    assert {BY_ID[name].risk for name in risky} == {Risk.DATA}
    assert BY_ID["host.mitigations"].risk is Risk.SECURITY


def test_a_knob_is_found_by_id_by_number_and_by_family() -> None:
    assert find("disk.aio").id == find("K45").id == find("k45").id == "disk.aio"
    assert find("K7").number == "K07"
    assert [knob.number for knob in matching("K36")] == ["K36"] * 3
    assert {knob.id.partition(".")[0] for knob in matching("iothread")} == {"iothread"}


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("disk.aoi", "disk.aio"),
        ("cache", "disk.cache"),
        ("poll-max-ns", "iothread.poll_max_ns"),
        ("disk.l2-cache-size", "disk.l2_cache_size"),
        ("Disk.Format", "disk.format"),
        ("disk.iothread", "device.iothread"),
        ("num_queues", "device.num_queues"),
    ],
)
def test_an_unknown_knob_is_refused_with_what_was_meant(wrong: str, meant: str) -> None:
    with pytest.raises(PlanError) as caught:
        find(wrong)
    assert caught.value.hint == f"did you mean `{meant}`?"
    assert wrong in caught.value.message


@pytest.mark.parametrize("wrong", ["", "K0", "K109", "K999", ".", "zzzzzzzzzzz"])
def test_what_is_near_to_nothing_is_refused_too(wrong: str) -> None:
    with pytest.raises(PlanError, match="there is no knob"):
        find(wrong)


@given(st.sampled_from(KNOBS), st.text(max_size=30))
def test_no_text_breaks_a_knob(knob: Knob, text: str) -> None:
    try:
        knob.read(text)
    except ValueError as error:
        assert str(error)  # noqa: PT017 - the sentence is what is promised


@given(st.sampled_from(KNOBS), st.from_regex(r"\s*[+-]?[0-9]{0,25}[kmgtpKMGTP]?(i?B)?\s*", fullmatch=True))
def test_no_number_breaks_a_knob(knob: Knob, text: str) -> None:
    try:
        value = knob.read(text)
    except ValueError:
        return
    if isinstance(knob.domain, Number | Size):
        assert isinstance(value, int)
        assert knob.domain.low <= value <= knob.domain.high


@given(st.text(max_size=20))
def test_no_name_breaks_the_search(name: str) -> None:
    try:
        assert matching(name)
    except PlanError as error:
        assert error.hint  # noqa: PT017 - the hint is what is promised


def test_what_is_created_is_asked_of_the_command_that_creates() -> None:
    """An option of `qemu-img create` is a member of blockdev-create, one of opening of blockdev-add."""
    asks = {name: BY_ID[name].ask for name in ("disk.cluster_size", "disk.l2_cache_size")}
    assert asks["disk.cluster_size"] == AskSchema(
        command="blockdev-create", member="options.cluster-size", variant="qcow2"
    )
    assert asks["disk.l2_cache_size"] == AskSchema(command="blockdev-add", member="l2-cache-size", variant="qcow2")


@pytest.mark.parametrize("knob", TURNED, ids=lambda knob: knob.id)
def test_two_stacks_share_a_process_unless_a_knob_between_them_is_set_when_it_starts(knob: Knob) -> None:
    one, other = (with_setting(Stack(), knob, value) for value in TWO_VALUES[type(knob.domain)](knob.domain))
    fixed = knob.change in (Change.POWEROFF, Change.HOST_REBOOT)
    assert needs_new_process(one, other) == (knob if fixed else None)
    assert needs_new_process(one, one) is None


def test_no_word_of_the_data_is_left_unread() -> None:
    known = {field.name for field in fields(Knob)} | {"rigs", "passed"}
    for row in json.loads((Path(knobs.__file__).parent / "knobs.json").read_text()):
        assert set(row) <= known, row["id"]
        assert set(row.get("rigs", ())) == {name for name, rig in RIGS.items() if row["id"] in rig.applies}, row["id"]
        read = BY_ID[row["id"]]
        domain = {name: value for name, value in row["domain"].items() if name != "kind"}
        for written, value in ((domain, read.domain), (row.get("ask", {}), read.ask)):
            assert {name: as_data(getattr(value, name)) for name in written} == written, row["id"]


def as_data(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
