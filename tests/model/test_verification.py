# SPDX-License-Identifier: Apache-2.0
"""Verified or not reported: what must be seen of a stack, and what becomes of a trial in which it was not."""

from dataclasses import replace

import pytest

from virtune.model.evidence import (
    Check,
    InForce,
    not_shown,
    not_shown_checks,
    to_verify,
    unverified,
    unverified_remarks,
)
from virtune.model.knobs import BY_ID, KNOBS
from virtune.model.remark import UNVERIFIED, Weight
from virtune.model.rig import RIGS
from virtune.model.stack import Device, Disk, Stack

DAEMON = Stack(disk=Disk(aio="io_uring"))


def found(*settings: str) -> list[Check]:
    return [Check(setting=name, asked="x", found="x", proof="seen") for name in settings]


def unseen(setting: str, *, hidden: bool = False, guest: int = 0) -> Check:
    return Check(setting=setting, asked="native", found=None, proof="not seen", hidden=hidden, guest=guest)


def test_every_turned_knob_belongs_to_a_rig_and_every_row_of_a_rig_is_a_turned_knob() -> None:
    turned = {knob.id for knob in KNOBS if knob.place}
    known = set().union(*(rig.applies for rig in RIGS.values() if rig.measures and rig.made_here))
    assert known == turned
    for rig in RIGS.values():
        assert rig.applies <= turned
        for row in rig.unseen:
            assert row.knob in rig.applies, f"{rig.name} does not turn {row.knob}"
            assert row.why, "an exception has a reason"
            assert all(BY_ID[row.knob].read(value) for value in row.values)


def test_what_is_written_for_every_stack_must_be_seen_and_other_knobs_where_they_were_asked_for() -> None:
    always = ["disk.aio", "disk.cache", "disk.detect_zeroes", "disk.format", "disk.export", "disk.backend"]
    assert list(to_verify(Stack())) == always
    assert set(to_verify(Stack(export="vhost-user-blk", num_queues=2))) == {*always, "export.num_queues"}
    assert to_verify(Stack(rig="metal")) == ()
    assert to_verify(Stack(disk=Disk(backend="null-co"))) == tuple(always[2:])  # nothing is opened
    assert "device.iothread" in to_verify(Stack(rig="qemu", device=Device(iothread="io1")))


def test_what_a_rig_cannot_show_is_said_with_its_reason() -> None:
    through = Stack(disk=Disk(cache="writethrough", discard="unmap"))
    assert set(not_shown(through)) == {"disk.cache", "disk.discard"}
    assert "disk.cache" in to_verify(replace(through, rig="qemu"))  # the guest sees that it has no write cache
    (said,) = not_shown_checks(through, [unseen("disk.cache")])
    assert (said.setting, said.asked, said.found, said.hidden) == ("disk.discard", "unmap", None, True)


def test_a_trial_in_which_a_setting_was_not_seen_is_invalid() -> None:
    seen = found(*to_verify(DAEMON))
    assert unverified(DAEMON, seen) == ()
    assert list(unverified_remarks(DAEMON, seen)) == []
    blind = [one for one in seen if one.setting != "disk.aio"]
    assert unverified(DAEMON, blind) == ("disk.aio=io_uring",), "a check that was never made is none"
    assert unverified(DAEMON, [*blind, unseen("disk.aio")]) == ("disk.aio=io_uring",)
    (remark,) = unverified_remarks(DAEMON, blind)
    assert (remark.id, remark.weight) == (UNVERIFIED.id, Weight.INVALID)
    assert "disk.aio=io_uring" in remark.text
    assert unverified(DAEMON, [*blind, unseen("disk.aio"), *found("disk.aio")]) == (), "seen later is seen"


def test_what_the_system_hides_is_no_reason_to_reject() -> None:
    rest = [one for one in found(*to_verify(DAEMON)) if one.setting != "disk.aio"]
    assert unverified(DAEMON, [*rest, unseen("disk.aio", hidden=True)]) == ()


def test_each_guest_that_shares_the_load_must_have_been_seen() -> None:
    two = Stack(rig="qemu", guests=2)
    first = found(*to_verify(two))
    assert unverified(two, first)[0].startswith("disk.aio")
    second = [replace(one, guest=1) for one in first if one.setting != "guests.count"]
    assert unverified(two, [*first, *second]) == ()
    assert unverified(two, [*first, *second[1:]]) != ()


@pytest.mark.parametrize(
    ("check", "missing"),
    [
        (Check(setting="load.direct", asked="on", found=None, proof="not open"), ("load.direct=on",)),
        (Check(setting="load.engine", asked="io_uring", found=None, proof="no trace"), ("load.engine=io_uring",)),
        (Check(setting="load.engine", asked="psync", found=None, proof="no trace"), ()),
        (Check(setting="load.direct", asked="on", found="on", proof="flags"), ()),
        (Check(setting="load.direct", asked="on", found=None, proof="ended", hidden=True), ()),
    ],
)
def test_how_the_load_itself_ran_must_be_seen_where_it_leaves_a_trace(check: Check, missing: tuple[str, ...]) -> None:
    assert unverified(Stack(rig="metal"), [check]) == missing


def test_results_from_elsewhere_are_asked_nothing() -> None:
    assert unverified(Stack(rig="unknown"), []) == ()


@pytest.mark.parametrize(("seen", "agrees"), [("native", True), ("threads", False), (None, None)])
def test_a_setting_agrees_when_what_was_seen_is_what_was_asked(seen: str | None, agrees: bool | None) -> None:
    check = Check(setting="disk.aio", asked="native", found=seen, proof="seen")
    assert check.agrees is agrees
    others = found("disk.cache", "disk.format")
    assert InForce(checks=(*others, check)).mismatches == ((check,) if agrees is False else ())
