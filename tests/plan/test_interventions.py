# SPDX-License-Identifier: Apache-2.0
"""The table of interventions: every cause has one or a reason, and what it turns fits and changes a stack."""

import pytest

from virtune.fio.workloads import parse_workload, read_job_file
from virtune.model.bottleneck import Bottleneck, Cause, DataPath, Diagnosis
from virtune.model.knobs import BY_ID
from virtune.model.live import Layers, RequestLayer
from virtune.model.metric import Boundary
from virtune.model.study import Arm
from virtune.model.verdict import SIZE
from virtune.plan.arms import make_arm, objections
from virtune.plan.interventions import AS_IS, INTERVENTIONS, STAND_IN, intervention, knobs_of

EXPORT = ("rig=storage-daemon",)
GUEST = ("rig=qemu",)
THREAD = (*GUEST, "device.iothread=iothread0")

NOT_TESTED = {Cause.HUNG, Cause.MEMORY, Cause.NOT_BOUND, Cause.IDLE, Cause.UNDECIDED}
OF_LOAD = {Cause.DEPTH, Cause.LOAD}

(WORKLOAD,) = parse_workload("rw=randread,bs=4k,iodepth=8")


PARTS: tuple[Boundary, ...] = ("backend", "device")


def diagnosis(
    cause: Cause, *, device: float | None = None, stands_in: float | None = None, offered: float | None = None
) -> Diagnosis:
    """A diagnosis of a disk in which the device has this share of a millisecond, and QEMU's block layer the rest."""
    layers = None
    if device is not None:
        shares = (1 - device, device)
        layers = Layers(
            way="export", rounds=3, total_ns=1e6,
            layers=tuple(
                RequestLayer(boundary=name, label=name, mean_ns=1e6 * share, low_ns=None, high_ns=None,
                             in_flight=8 * share, share=share)
                for name, share in zip(PARTS, shares, strict=True)
            ),
        )  # fmt: skip
    path = DataPath(iops=8e3, depth=8, latency_ns=1e6, stands_in_ns=stands_in, layers=layers, offered=offered)
    found = Bottleneck(cause=cause, evidence=("planted",), experiment="")
    return Diagnosis(disk="arm", workload="w", seconds=1.0, path=path, found=found, layers=layers)


def arm(*settings: str) -> Arm:
    return make_arm("arm", settings)


def test_every_cause_has_an_intervention_or_a_reason() -> None:
    assert set(INTERVENTIONS) == set(Cause)
    assert {cause for cause, row in INTERVENTIONS.items() if not row.replacements} == NOT_TESTED
    for row in INTERVENTIONS.values():
        assert row.without
        assert row.by_hand
        assert [one.what for one in row.replacements if not one.what or not (one.changes or one.load)] == []


@pytest.mark.parametrize("cause", sorted(set(Cause) - NOT_TESTED))
def test_what_an_intervention_turns_can_be_turned(cause: Cause) -> None:
    for name in knobs_of(cause):
        assert BY_ID[name].place, name


FITS: tuple[tuple[Cause, tuple[str, ...], str], ...] = (
    (Cause.DEVICE, EXPORT, "no-device"),
    (Cause.DEVICE, (*EXPORT, "disk.backend=null-co", "disk.null_latency_ns=500000"), "no-delay"),
    (Cause.DEVICE, (*GUEST, "disk.format=qcow2", "disk.cache=writeback", "disk.l2_cache_size=1M"), "no-device"),
    (Cause.BACKEND, (*EXPORT, "disk.aio=native"), "no-backend"),
    (Cause.IOTHREAD, THREAD, "two-iothreads"),
    (Cause.IOTHREAD, ("rig=vhost-user",), "null-co"),
    (Cause.MAIN_LOOP, GUEST, "iothread"),
    (Cause.MAIN_LOOP, ("rig=vhost-user", "export.iothread=off"), "iothread"),
    (Cause.VCPU, (*GUEST, "machine.vcpus=1"), "more-vcpus"),
    (Cause.WORKERS, (*THREAD, "iothread.thread_pool_max=1"), "more-workers"),
    (Cause.WORKERS, EXPORT, "aio-native"),
    (Cause.WORKERS, (*EXPORT, "disk.cache=writeback"), "aio-io_uring"),
    (Cause.RING, (*THREAD, "iothread.poll_max_ns=0"), "polling"),
    (Cause.RING, GUEST, "iothread"),
    (Cause.THROTTLE, (*EXPORT, "disk.throttle_iops=500", "disk.throttle_bps_read=1M"), "no-limit"),
    (Cause.HOST_CPU, (*THREAD, "iothread.pin=1"), "unpinned"),
    (Cause.HOST_CPU, ("rig=vhost-user",), "no-polling"),
    (Cause.PAGE_CACHE, (*EXPORT, "disk.cache=writeback"), "cache-none"),
    (Cause.FLUSH, EXPORT, "cache-unsafe"),
    (Cause.DISCARD, (*EXPORT, "disk.discard=unmap"), "no-discard"),
)


@pytest.mark.parametrize(("cause", "settings", "name"), FITS, ids=[f"{cause}-{name}" for cause, _, name in FITS])
def test_the_accused_layer_is_replaced(cause: Cause, settings: tuple[str, ...], name: str) -> None:
    stands_in = 5e5 if name == "no-delay" else None
    before = arm(*settings)
    found = intervention(diagnosis(cause, device=0.6, stands_in=stands_in), before, WORKLOAD)
    assert found is not None
    first, replaced = found.arms[:2]
    assert (first.name, first.stack, replaced.name) == (AS_IS, before.stack, name)
    assert replaced.stack != before.stack
    assert objections(replaced.stack) == ()
    written = [f"{knob}={value}" for knob, value in replaced.settings]
    assert make_arm("again", written).stack == replaced.stack, "the settings that are shown are those that run"


def test_every_cause_that_can_be_tested_is_tested_here() -> None:
    assert {cause for cause, _, _ in FITS} == set(Cause) - NOT_TESTED - OF_LOAD
    names = {one.arm for row in INTERVENTIONS.values() for one in row.replacements}
    assert names - {name for _, _, name in FITS} == {"deeper", "more-jobs"}


@pytest.mark.parametrize("cause", sorted(set(Cause) - OF_LOAD))
def test_without_qemu_nothing_is_replaced(cause: Cause) -> None:
    assert intervention(diagnosis(cause, device=0.6), arm("rig=metal"), WORKLOAD) is None


def test_what_this_host_cannot_set_is_passed_over() -> None:
    cached = arm(*EXPORT, "disk.cache=writeback")
    without = frozenset({("disk.aio", "io_uring")})
    assert intervention(diagnosis(Cause.WORKERS), cached, WORKLOAD, unavailable=without) is None
    mapping = frozenset({("device.iothread_vq_mapping", "")})
    found = intervention(diagnosis(Cause.IOTHREAD, device=0.6), arm(*THREAD), WORKLOAD, unavailable=mapping)
    assert found is not None
    assert found.replaced == "null-co"


def test_a_device_is_compared_with_one_of_the_same_latency() -> None:
    found = intervention(diagnosis(Cause.DEVICE, device=0.6), arm(*EXPORT), WORKLOAD)
    assert found is not None
    assert found.stand_in == STAND_IN
    assert found.arms[2].stack.disk.null_latency_ns == 600_000
    assert intervention(diagnosis(Cause.DEVICE), arm(*EXPORT), WORKLOAD) is None, "its time must be known"


def test_the_size_of_the_change_follows_from_the_share_of_the_time() -> None:
    found = intervention(diagnosis(Cause.DEVICE, device=0.6), arm(*EXPORT), WORKLOAD)
    assert found is not None
    assert found.share == pytest.approx(0.6)
    assert found.condition.limit == pytest.approx(1 / (1 - SIZE * 0.6), rel=1e-3)
    assert (found.metric, found.condition.relation) == ("iops", "<")
    limit = arm(*EXPORT, "disk.throttle_iops=500")
    found = intervention(diagnosis(Cause.THROTTLE), limit, WORKLOAD)
    assert found is not None
    assert (found.share, found.condition.text) == (None, "iops < +3%")
    found = intervention(diagnosis(Cause.THROTTLE, offered=8e3), limit, WORKLOAD)
    assert found is not None, "a rate that is offered and achieved cannot rise: its latency can fall"
    assert (found.metric, found.condition.relation) == ("latency.mean", ">")
    assert found.condition.limit == pytest.approx(1 / 1.03, rel=1e-4)
    found = intervention(diagnosis(Cause.PAGE_CACHE), arm(*EXPORT, "disk.cache=writeback"), WORKLOAD)
    assert found is not None, "a load that memory served gets slower"
    assert (found.falls, found.condition.relation) == (True, ">")
    assert found.condition.limit == pytest.approx(1 / 1.03, rel=1e-4)


def test_a_default_is_the_default_again() -> None:
    found = intervention(
        diagnosis(Cause.THROTTLE), arm(*EXPORT, "disk.throttle_iops_read=7", "disk.aio=native"), WORKLOAD
    )
    assert found is not None
    assert dict(found.arms[1].settings) == {"rig": "storage-daemon", "disk.aio": "native"}
    assert found.arms[1].stack.disk.limits == {}


@pytest.mark.parametrize(
    ("cause", "words", "options"),
    [
        (Cause.DEPTH, "rw=randread", {"iodepth": "4"}),
        (Cause.DEPTH, "rw=randread,iodepth=2,numjobs=3", {"iodepth": "8"}),
        (Cause.LOAD, "rw=randread,iodepth=32", {"numjobs": "2", "iodepth": "16"}),
        (Cause.LOAD, "rw=randread,iodepth=1", None),
    ],
)
def test_of_an_accused_load_the_load_is_changed(cause: Cause, words: str, options: dict[str, str] | None) -> None:
    (workload,) = parse_workload(words)
    found = intervention(diagnosis(cause), arm("rig=metal"), workload)
    if options is None:
        assert found is None, "more jobs would be more I/Os in flight as well"
        return
    assert found is not None
    first, replaced = found.arms
    assert first.load_of(workload) == workload
    (job,) = replaced.load_of(workload).jobs
    assert dict(replaced.options) == options
    assert job.as_dict() == workload.jobs[0].as_dict() | options
    assert intervention(diagnosis(cause), arm(), read_job_file("[a]\nrw=randread\n", "a")) is None, "it runs as it is"


@pytest.mark.parametrize(("queues", "wanted"), [(1, 4), (2, 4), (4, 4), (8, 8)])
def test_more_jobs_get_a_virtqueue_each_where_jobs_of_one_share_a_thread(queues: int, wanted: int) -> None:
    (workload,) = parse_workload("rw=randwrite,iodepth=16,numjobs=2")
    before = arm("rig=vhost-user", *([] if queues == 1 else [f"export.num_queues={queues}"]))
    found = intervention(diagnosis(Cause.LOAD), before, workload)
    assert found is not None
    first, replaced = found.arms
    assert first.load_of(workload) == workload
    assert replaced.stack.queues == wanted
    assert dict(replaced.options) == {"numjobs": "4", "iodepth": "8"}
    for others in (("rig=storage-daemon",), GUEST, ("rig=metal",)):
        plain = intervention(diagnosis(Cause.LOAD), arm(*others), workload)
        assert plain is not None
        assert plain.arms[1].stack == plain.arms[0].stack, "what is no such export stays as it is"
