# SPDX-License-Identifier: Apache-2.0
"""Arms: settings, combinations, names, baselines, and what cannot be together."""

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtune.model.errors import PlanError
from virtune.model.knob import Switch
from virtune.model.knobs import KNOBS
from virtune.model.stack import Disk, Stack
from virtune.model.text import Bytes
from virtune.plan.arms import (
    apply_settings,
    arm_from_text,
    arms_from_vary,
    base_stack,
    check_arms,
    choose_baseline,
    parse_setting,
)


def test_a_setting_is_a_knob_and_its_value() -> None:
    knob, value = parse_setting("disk.aio = native")
    assert (knob.id, value) == ("disk.aio", "native")
    assert parse_setting("disk.cluster_size=64k")[1] == 65536
    assert parse_setting("disk.extended_l2=on")[1] is True


def test_the_base_is_what_set_says() -> None:
    stack, settings = base_stack(["disk.format=qcow2", "disk.cluster_size=64k"])
    assert stack == Stack(disk=Disk(format="qcow2", cluster_size=Bytes(65536)))
    assert settings == (("disk.format", "qcow2"), ("disk.cluster_size", "64k"))


def test_one_varied_knob_names_arms_by_value() -> None:
    base, settings = base_stack(["disk.format=qcow2"])
    arms = arms_from_vary(base, ["disk.aio=threads,native,io_uring"], settings=settings)
    assert [arm.name for arm in arms] == ["threads", "native", "io_uring"]
    assert [arm.stack.disk.aio for arm in arms] == ["threads", "native", "io_uring"]
    assert {arm.stack.disk.format for arm in arms} == {"qcow2"}
    assert arms[1].settings == (("disk.format", "qcow2"), ("disk.aio", "native"))


def test_several_varied_knobs_give_all_combinations() -> None:
    arms = arms_from_vary(Stack(), ["disk.aio=threads,native", "disk.format=raw,qcow2"])
    assert [arm.name for arm in arms] == ["threads+raw", "threads+qcow2", "native+raw", "native+qcow2"]
    assert len({arm.stack for arm in arms}) == 4


def test_values_that_do_not_speak_for_themselves_are_labelled() -> None:
    arms = arms_from_vary(Stack(), ["disk.cache=none,directsync", "disk.discard=ignore,unmap"])
    assert arms[0].name == "cache=none+discard=ignore"
    base = base_stack(["disk.format=qcow2"])[0]
    assert [a.name for a in arms_from_vary(base, ["disk.extended_l2=on,off"])] == [
        "extended_l2=on",
        "extended_l2=off",
    ]


def test_a_varied_knob_overrides_the_base() -> None:
    base, settings = base_stack(["disk.aio=native"])
    arms = arms_from_vary(base, ["disk.aio=threads,io_uring"], settings=settings)
    assert arms[0].settings == (("disk.aio", "threads"),)


def test_an_arm_has_a_name_and_settings() -> None:
    arm = arm_from_text("fast: disk.aio=native, disk.cache=directsync")
    assert arm.name == "fast"
    assert arm.stack == Stack(disk=Disk(aio="native", cache="directsync"))
    base = Stack(disk=Disk(aio="native"))
    assert arm_from_text("same:", base).stack == base


def test_metal_is_a_rig_without_the_bases_disk() -> None:
    base, settings = base_stack(["disk.aio=native"])
    arm = arm_from_text("bare:rig=metal", base, settings=settings)
    assert arm.stack == Stack(rig="metal")
    assert arm.settings == (("rig", "metal"),)
    arms = arms_from_vary(base, ["rig=metal,storage-daemon"], settings=settings)
    assert [(a.name, a.stack.rig, a.stack.disk.aio) for a in arms] == [
        ("metal", "metal", "threads"),
        ("storage-daemon", "storage-daemon", "native"),
    ]


def test_vhost_user_is_short_for_a_rig_and_its_export() -> None:
    base, settings = base_stack(["rig=vhost-user", "export.num_queues=2"])
    assert base == Stack(rig="storage-daemon", export="vhost-user-blk", num_queues=2)
    assert base.in_iothread
    assert settings == (("rig", "vhost-user"), ("export.num_queues", "2"))
    with pytest.raises(PlanError, match="both cannot be set"):
        base_stack(["disk.export=nbd", "rig=vhost-user"])


def test_an_arm_may_leave_the_rig_of_its_base() -> None:
    base, settings = base_stack(["rig=vhost-user", "disk.aio=native"])
    same, nbd, fuse, bare = (
        arm_from_text(text, base, settings=settings)
        for text in ("same:", "nbd:rig=storage-daemon", "fuse:disk.export=fuse", "bare:rig=metal")
    )
    assert same.stack.export == "vhost-user-blk"
    assert (nbd.stack.export, nbd.settings) == ("nbd", (("disk.aio", "native"), ("rig", "storage-daemon")))
    assert (fuse.stack.export, fuse.settings) == ("fuse", (("disk.aio", "native"), ("disk.export", "fuse")))
    assert bare.stack == Stack(rig="metal")
    base, settings = base_stack(["disk.export=fuse"])
    vhost = arm_from_text("v:rig=vhost-user", base, settings=settings)
    assert (vhost.stack.export, vhost.settings) == ("vhost-user-blk", (("rig", "vhost-user"),))


def test_rigs_are_varied_like_knobs() -> None:
    arms = arms_from_vary(Stack(), ["rig=metal,storage-daemon,vhost-user"])
    assert [arm.stack.export for arm in arms] == ["nbd", "nbd", "vhost-user-blk"]
    assert [arm.name for arm in arms] == ["metal", "storage-daemon", "vhost-user"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["export.num_queues=2"], "num_queues belongs to export=vhost-user-blk, and the export is nbd"),
        (["export.num_queues=1", "disk.export=fuse"], "num_queues belongs to export=vhost-user-blk"),
        (["export.iothread=on"], "QEMU 7.2 aborts when a client of such an export disconnects"),
        (["iothread.poll_max_ns=0"], "poll_max_ns belongs to an IOThread, and the export has none"),
        (["rig=vhost-user", "export.iothread=off", "iothread.poll_max_ns=0"], "poll_max_ns belongs to an IOThread"),
        (["rig=metal", "export.iothread=on"], "rig=metal: it belongs to rig=storage-daemon"),
        (["rig=metal", "export.num_queues=2"], "export.num_queues means nothing with rig=metal"),
    ],
)
def test_what_an_export_cannot_have_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        arm_from_text(f"a:{','.join(texts)}")


def test_what_an_export_can_have_is_not() -> None:
    for words in ("rig=vhost-user,export.num_queues=4,iothread.poll_max_ns=0", "disk.export=fuse,export.iothread=on",
                  "rig=vhost-user,export.iothread=off", "export.iothread=off"):  # fmt: skip
        assert arm_from_text(f"a:{words}").name == "a"


def test_a_stack_may_be_compared_with_itself_when_both_are_named() -> None:
    arms = check_arms([arm_from_text("a:"), arm_from_text("b:")])
    assert arms[0].stack == arms[1].stack


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["disk.aio=native,native"], "twice"),
        (["disk.aio=native", "disk.aio=threads"], "varied twice"),
        (["disk.cluster_size=1M,1024k", "disk.format=qcow2"], "same stack"),
        (
            ["disk.cache=writeback,none", "disk.aio=native"],
            r"arm cache=writeback\+aio=native: aio=native needs O_DIRECT",
        ),
        (["disk.aio="], "not knob=value"),
        (["disk.aio=native,,threads"], "empty value"),
        (["disk.throttle_iops=" + ",".join(map(str, range(1, 2000)))], "more than"),
    ],
)
def test_combinations_that_cannot_be_are_refused(texts: list[str], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        arms_from_vary(Stack(), texts)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("fast", "unknown arm", "NAME:"),
        ("../x:", "cannot be the name", "letters"),
        ("a:disk.aoi=native", "arm a: there is no knob", "disk.aio"),
        ("a:disk.aio=nativ", "arm a: disk.aio", "native"),
        ("a:disk.aio", "not knob=value", "disk.aio=native"),
        ("a:disk.aio=native,disk.aio=threads", "set twice", None),
        ("a:disk.aio=native,disk.cache=writeback", "arm a: aio=native needs O_DIRECT", None),
        ("a:rig=metl", "unknown rig", "metal"),
        ("a:rig=metal,disk.aio=native", "disk.aio means nothing with rig=metal", None),
        ("a:disk=1", "several knobs", "disk.aio"),
    ],
)
def test_a_wrong_arm_is_refused_by_its_name(text: str, message: str, hint: str | None) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        arm_from_text(text)
    if hint is not None:
        assert hint in (caught.value.hint or "")


def test_arms_need_different_names() -> None:
    with pytest.raises(PlanError, match="two arms are named a"):
        check_arms([arm_from_text("a:"), arm_from_text("a:disk.aio=native")])


def test_a_knob_that_cannot_be_turned_yet_says_so() -> None:
    knob = next(knob for knob in KNOBS if not knob.place and isinstance(knob.domain, Switch))
    with pytest.raises(PlanError, match="cannot set it yet"):
        apply_settings(Stack(), [f"{knob.id}=on"])


def test_the_first_arm_is_the_baseline_unless_one_is_named() -> None:
    arms = arms_from_vary(Stack(), ["disk.aio=threads,native"])
    assert choose_baseline(arms) == "threads"
    assert choose_baseline(arms, "native") == "native"
    with pytest.raises(PlanError) as caught:
        choose_baseline(arms, "nativ")
    assert caught.value.hint == "did you mean `native`?"
    with pytest.raises(PlanError):
        choose_baseline([])


words = st.sampled_from(
    ["disk.aio", "=", ",", ":", "native", "rig", "metal", "disk.cluster_size", "64k", " ", "é", "disk"]
)


@given(st.one_of(st.text(), st.lists(words, max_size=10).map("".join)))
def test_only_plan_errors_come_out(text: str) -> None:
    for read in (
        parse_setting,
        arm_from_text,
        lambda text: arms_from_vary(Stack(), [text]),
        lambda t: base_stack([t]),
    ):
        with suppress(PlanError):
            read(text)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("device.bus=virtio-scsi", "only virtio-blk leaves nothing behind"),
        ("device.iothread=mine", "write device.iothread=iothread1"),
        ("device.iothread=iothread1,iothread.poll_max_ns=0", "iothread.poll_max_ns means nothing with rig=libvirt"),
        ("guests.count=2", "guests.count means nothing with rig=libvirt"),
        ("disk.backend=null-co", "disk.backend means nothing with rig=libvirt"),
    ],
)
def test_what_a_domain_cannot_be_given_is_refused_with_the_reason(words: str, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        arm_from_text(f"a:rig=libvirt:web1,{words}")


def test_a_domain_is_named_after_its_rig_and_forgotten_with_it() -> None:
    base, settings = base_stack(["rig=libvirt:web:1"])
    assert (base.rig, base.domain, settings) == ("libvirt", "web:1", (("rig", "libvirt:web:1"),))
    assert arm_from_text("b:rig=qemu", base, settings=settings).stack.domain is None
    with pytest.raises(PlanError, match="names no domain"):
        base_stack(["rig=libvirt:"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["iothread.pin=0,1"], "arm pin=0: iothread.pin means nothing with rig=storage-daemon"),
        (["iothread.poll_max_ns=0,1"], "iothread.poll_max_ns belongs to an IOThread"),
        (["export.num_queues=1,2"], "export.num_queues belongs to export=vhost-user-blk"),
    ],
)
def test_a_refusal_names_the_knob_and_not_where_it_is_kept(words: list[str], said: str) -> None:
    *base, vary = words
    with pytest.raises(PlanError, match=re.escape(said)):
        arms_from_vary(base_stack(base)[0], [vary])
