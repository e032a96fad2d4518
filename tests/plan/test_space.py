# SPDX-License-Identifier: Apache-2.0
"""The space of a search: what is ranked, what is removed and why, what is kept apart."""

import pytest

from virtune.model.contradictions import contradictions
from virtune.model.durability import Promise, durability_of
from virtune.model.errors import PlanError
from virtune.model.knob import Answer, Support
from virtune.model.reason import Reason
from virtune.model.study_options import StudyOptions
from virtune.model.tuning import Space
from virtune.plan.space import HostSupport, effective, space_of

DAEMON = "qemu-storage-daemon 7.2.0"
ALL = Answer(program=DAEMON, standing=Support.VALUES, values=("threads", "native", "io_uring"))
HOST = HostSupport(answers={"disk.aio": (ALL,)}, io_uring=True, cpus=4)
SMALL = HostSupport(answers=HOST.answers, cpus=4, memory_bytes=8 * 1024**3)


def names(space: Space) -> list[str]:
    return [arm.name for arm in space.ranked]


def sound(space: Space) -> None:
    stacks = [effective(arm.stack) for arm in space.arms]
    assert len(set(stacks)) == len(stacks)
    assert len({arm.name for arm in space.arms}) == len(space.arms)
    for arm in space.arms:
        assert contradictions(arm.stack) == ()
    for arm in space.ranked:
        assert durability_of(arm.stack).promise is space.promise
    for apart in space.apart:
        assert apart.durability.promise is not space.promise


def test_without_words_the_rigs_path_is_varied_within_one_class() -> None:
    space = space_of(StudyOptions(), HOST)
    sound(space)
    assert [factor.knob for factor in space.factors] == ["disk.aio", "disk.cache"]
    assert space.promise is Promise.FLUSH
    # baseline is threads+none; native with the page cache cannot be
    assert names(space) == [
        "baseline",
        "aio=threads+cache=writeback",
        "aio=native+cache=none",
        "aio=io_uring+cache=none",
        "aio=io_uring+cache=writeback",
    ]
    assert all("O_DIRECT" in removed.why for removed in space.removed)
    assert {removed.reason for removed in space.removed} == {Reason.CONTRADICTION}
    assert {apart.durability.promise for apart in space.apart} == {Promise.EVERY_WRITE, Promise.VOLATILE}


def test_what_drops_flushes_is_never_ranked_unless_that_class_is_chosen() -> None:
    for durability in (None, Promise.FLUSH, Promise.EVERY_WRITE):
        space = space_of(StudyOptions(durability=durability), HOST)
        sound(space)
        assert not any(arm.stack.disk.cache == "unsafe" for arm in space.ranked)
        assert any(apart.arm.stack.disk.cache == "unsafe" for apart in space.apart)
        assert space.ranked_baseline == (durability is not Promise.EVERY_WRITE)
    chosen = space_of(StudyOptions(durability=Promise.VOLATILE), HOST)
    assert {arm.stack.disk.cache for arm in chosen.ranked} == {"unsafe"}
    assert not chosen.ranked_baseline


def test_an_iothread_is_varied_where_the_rig_has_one_and_means_nothing_without() -> None:
    space = space_of(StudyOptions(rig="vhost-user", fix=("disk.cache=none", "disk.aio=native")), HOST)
    sound(space)
    # off, on x {0, 32768} ns; one of them is the baseline
    assert len(space.ranked) == 1 + 2
    assert not any(arm.stack.poll_max_ns is not None and not arm.stack.in_iothread for arm in space.arms)


def test_queues_are_varied_when_they_are_named_since_most_loads_take_one() -> None:
    fix = ("disk.cache=none", "disk.aio=native", "export.iothread=on")
    space = space_of(StudyOptions(rig="vhost-user", fix=fix, vary=("export.num_queues",)), HOST)
    sound(space)
    assert {arm.stack.queues for arm in space.ranked} == {1, 2, 4}


def test_what_the_host_does_not_have_is_removed_with_the_reason() -> None:
    two = Answer(program=DAEMON, standing=Support.VALUES, values=("threads", "native"))
    host = HostSupport(answers={"disk.aio": (two,)})
    space = space_of(StudyOptions(vary=("disk.aio",)), host)
    assert names(space) == ["baseline", "native"]
    assert [(r.what, r.count) for r in space.removed] == [("disk.aio=io_uring", None)]
    assert "built without it" in space.removed[0].why
    assert space.removed[0].reason is Reason.NOT_SUPPORTED
    refused = HostSupport(answers={"disk.aio": (ALL,)}, io_uring=False)
    (left,) = space_of(StudyOptions(vary=("disk.aio",)), refused).removed
    assert "kernel refuses" in left.why
    assert left.reason is Reason.KERNEL_REFUSES
    absent = Answer(program=DAEMON, standing=Support.ABSENT, detail="no blockdev-add qcow2 lazy-refcounts")
    gone = HostSupport(answers={"disk.lazy_refcounts": (absent,)})
    space = space_of(StudyOptions(vary=("disk.lazy_refcounts", "disk.aio"), fix=("disk.format=qcow2",)), gone)
    assert {r.what for r in space.removed} == {"disk.lazy_refcounts=off", "disk.lazy_refcounts=on"}


def test_the_page_cache_is_not_tried_unasked_where_the_span_fits_into_it() -> None:
    space = space_of(StudyOptions(span=1024**3), SMALL)
    assert {arm.stack.disk.cache for arm in space.ranked} == {"none"}
    told = {removed.reason: removed.why for removed in space.removed}
    assert "fits into this host's 8 GiB" in told[Reason.MEASURES_MEMORY]
    named = space_of(StudyOptions(span=1024**3, vary=("disk.cache=none,writeback",)), SMALL)
    assert names(named) == ["baseline", "writeback"] or names(named) == ["baseline", "cache=writeback"]
    large = space_of(StudyOptions(span=16 * 1024**3), SMALL)
    assert "writeback" in {arm.stack.disk.cache for arm in large.ranked}


def test_the_baseline_may_be_named_and_lie_outside_of_what_is_varied() -> None:
    vary, fix = ("disk.throttle_iops=1000,1100",), ("disk.backend=null-co",)
    space = space_of(StudyOptions(vary=vary, fix=fix, baseline="disk.throttle_iops=900"), HOST)
    assert names(space) == ["baseline", "throttle_iops=1000", "throttle_iops=1100"]
    assert dict(space.arms[0].settings) == {"disk.backend": "null-co", "disk.throttle_iops": "900"}
    assert space.promise is Promise.NOTHING
    one = space_of(StudyOptions(vary=("disk.throttle_iops=1000",), fix=fix, baseline="disk.throttle_iops=900"), HOST)
    assert names(one) == ["baseline", "throttle_iops=1000"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (StudyOptions(rig="metal"), "nothing to tune"),
        (StudyOptions(vary=("disk.iao",)), "no knob 'disk.iao'"),
        (StudyOptions(vary=("disk.aio=threads,threads",)), "value twice"),
        (StudyOptions(vary=("disk.aio=threads,",)), "empty value"),
        (StudyOptions(vary=("disk.aio",), fix=("disk.aio=native",)), "varied and fixed"),
        (StudyOptions(vary=("disk.aio", "disk.aio=native,threads")), "varied twice"),
        (StudyOptions(vary=("disk.throttle_iops",)), "no short list"),
        (StudyOptions(vary=("device.share_rw",)), "cannot set it yet"),
        (StudyOptions(vary=("disk.cache=unsafe",)), "one configuration is left to rank"),
        (StudyOptions(vary=("disk.aio=threads",)), "one configuration is left to rank"),
        (StudyOptions(baseline="disk.aio=native,disk.cache=writeback"), "the baseline cannot be"),
        (StudyOptions(baseline=","), "the baseline says nothing"),
        (StudyOptions(fix=("disk.aio=native",), baseline="disk.aio=threads"), "fixed and part of the baseline"),
        (StudyOptions(vary=(f"disk.throttle_iops={','.join(map(str, range(1, 20_003)))}",)), "s are more than"),
    ],
)
def test_words_that_make_no_space_are_refused(asked: StudyOptions, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        space_of(asked, HOST)
    assert message in caught.value.message
