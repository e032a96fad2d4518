# SPDX-License-Identifier: Apache-2.0
"""Every verifier of a stack's settings is told something else than was asked for, and must say so.

An honest QEMU cannot tell a verifier from one that answers "as asked", so each setting of each has a lie here,
and the tests fail for a verifier, or a setting of one, that has none.
"""

import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest

from virtune.bench import daemon, verify
from virtune.bench.daemon import Served, export_checks
from virtune.bench.daemon import iothread_check_under_load as export_thread
from virtune.bench.verify import (
    Activity,
    Opened,
    Spent,
    cache_checks,
    direct_check,
    engine_check,
    engine_check_under_load,
    guest_checks,
    iothread_check_under_load,
    mapping_check_under_load,
    node_checks,
    rbd_checks,
)
from virtune.model.evidence import Check
from virtune.model.knobs import BY_ID
from virtune.model.stack import LIMITS, Stack, with_setting
from virtune.probe.process import Rings

Verifier = Callable[..., Any]


def asked(*settings: str) -> Stack:
    stack = Stack()
    for setting in settings:
        name, _, value = setting.partition("=")
        stack = with_setting(stack, BY_ID[name], BY_ID[name].read(value))
    return stack


def features(*bits: int) -> str:
    return "".join("1" if bit in bits else "0" for bit in range(64))


def seen(stack: Stack, **facts: str) -> Iterator[Check]:
    return guest_checks(stack, facts, vcpus=4, writes=True)


def nodes(**changes: Any) -> list[Mapping[str, Any]]:
    """The nodes of a raw file, opened with cache=none, but for what is changed."""
    cache = {"direct": True, "no-flush": False, **changes.pop("cache", {})}
    details = {"extended-l2": False, "lazy-refcounts": False}
    top = {
        "node-name": "format0", "drv": "raw", "detect_zeroes": "off", "cache": cache,
        "image": {"cluster-size": 65536, "format-specific": {"data": details}},
    } | changes.get("top", {})  # fmt: skip
    return [{"node-name": "file0", "drv": "file", "cache": cache, "image": {}} | changes.get("below", {}), top]


DIRECT, CACHED = Opened(direct="on", proof="flags"), Opened(direct="off", proof="flags")
QCOW2 = ("disk.format=qcow2",)
SOME = {"throttle_iops": "500", "throttle_bps": "1048576"}
POOL = {"image": {"filename": 'json:{"driver": "rbd", "pool": "other", "image": "virtune-1"}'}}
ON_CEPH = ("disk.backend=rbd", "disk.rbd=vms")


def ring(kind: str) -> Activity:
    return Activity(moved={(kind, 1): 7}, io_ns=10**9)


WORKERS = Activity(moved={}, workers_ns=10**9, io_ns=10**9)
EXPORT = ("disk.export=vhost-user-blk", "export.num_queues=2", "iothread.poll_max_ns=0")
SERVED = Served(kind="nbd", threads=frozenset({7}), poll_max_ns=32768, queues=1)
MAPPING = asked("device.num_queues=2", "device.iothread_vq_mapping=io1+io2")

LIES: list[tuple[Verifier, str, Callable[[], Iterable[Check | None]]]] = [
    (guest_checks, "guest.write_cache", lambda: seen(asked(), write_cache="write through")),
    (guest_checks, "guest.write_cache", lambda: seen(asked("disk.cache=directsync"), write_cache="write back")),
    (guest_checks, "guest.queues", lambda: seen(asked("device.num_queues=4"), queues="1")),
    (guest_checks, "guest.queues", lambda: seen(asked("device.num_queues=8"), queues="8")),
    (guest_checks, "guest.packed", lambda: seen(asked("device.packed=on"), features=features(29))),
    (guest_checks, "guest.packed", lambda: seen(asked("device.packed=off"), features=features(29, 34))),
    (guest_checks, "guest.event_idx", lambda: seen(asked("device.event_idx=on"), features=features(34))),
    (guest_checks, "guest.event_idx", lambda: seen(asked("device.event_idx=off"), features=features(29, 34))),
    (guest_checks, "guest.queue_size",
     lambda: seen(asked("device.queue_size=256"), scheduler="[none]", nr_requests="64")),
    (guest_checks, "guest.queue_depth", lambda: seen(asked("device.bus=ide"), queue_depth="32")),
    (guest_checks, "device.logical_block_size",
     lambda: seen(asked("device.logical_block_size=4096"), logical_block_size="512")),
    (guest_checks, "device.physical_block_size",
     lambda: seen(asked("device.physical_block_size=4096"), physical_block_size="512")),
    (direct_check, "O_DIRECT", lambda: [direct_check(asked("disk.cache=none").disk, CACHED)]),
    (direct_check, "O_DIRECT", lambda: [direct_check(asked("disk.cache=writeback").disk, DIRECT)]),
    (cache_checks, "O_DIRECT", lambda: cache_checks(asked("disk.cache=none"), CACHED, nodes())),
    (cache_checks, "cache.no-flush",
     lambda: cache_checks(asked("disk.cache=none"), DIRECT, nodes(cache={"no-flush": True}))),
    (cache_checks, "disk.cache", lambda: cache_checks(asked("disk.cache=none"), CACHED, nodes())),
    (cache_checks, "disk.cache", lambda: cache_checks(asked("disk.cache=unsafe"), CACHED, nodes())),
    (cache_checks, "disk.cache",
     lambda: cache_checks(asked("disk.cache=writeback"), CACHED, nodes(cache={"no-flush": True}))),
    (cache_checks, "disk.cache", lambda: cache_checks(asked("disk.cache=directsync"), CACHED, nodes())),
    (node_checks, "disk.backend", lambda: node_checks(asked(), nodes(below={"drv": "null-co"}), None)),
    (node_checks, "disk.format", lambda: node_checks(asked(*QCOW2), nodes(), None)),
    (node_checks, "disk.detect_zeroes", lambda: node_checks(asked(), nodes(top={"detect_zeroes": "unmap"}), None)),
    (node_checks, "disk.cluster_size",
     lambda: node_checks(asked(*QCOW2, "disk.cluster_size=131072"), nodes(), None)),
    (node_checks, "disk.extended_l2", lambda: node_checks(asked(*QCOW2, "disk.extended_l2=on"), nodes(), None)),
    (node_checks, "disk.lazy_refcounts", lambda: node_checks(asked(*QCOW2, "disk.lazy_refcounts=on"), nodes(), None)),
    *((node_checks, one.knob, lambda one=one: node_checks(asked(f"{one.knob}=500"), nodes(), {one.qmp: 50}))
      for one in LIMITS),
    *((node_checks, one.knob, lambda one=one: node_checks(asked(f"{one.knob}=500"), nodes(), {})) for one in LIMITS),
    (rbd_checks, "disk.rbd", lambda: rbd_checks(asked(*ON_CEPH), nodes(below=POOL))),
    (rbd_checks, "disk.cache", lambda: rbd_checks(asked(*ON_CEPH), nodes(cache={"direct": False}))),
    (iothread_check_under_load, "device.iothread",
     lambda: [iothread_check_under_load(asked("device.iothread=io1"), Spent(by_role={"main": 10**9}))]),
    (iothread_check_under_load, "device.iothread",
     lambda: [iothread_check_under_load(asked(), Spent(by_role={"iothread": 10**9}))]),
    (mapping_check_under_load, "device.iothread_vq_mapping",
     lambda: [mapping_check_under_load(MAPPING, Spent(by_iothread={"io3": 10**9}))]),
    (mapping_check_under_load, "device.iothread_vq_mapping",
     lambda: [mapping_check_under_load(MAPPING, Spent(by_iothread={"io1": 10**9, "io3": 10**9}))]),
    (mapping_check_under_load, "device.iothread_vq_mapping",
     lambda: [mapping_check_under_load(MAPPING, Spent(by_role={"main": 10**9}))]),
    (engine_check, "disk.aio",
     lambda: [engine_check("native", {("io_uring", 1)}, Rings(places={("io_uring", 1): 0}))]),
    *((engine_check_under_load, "disk.aio", lambda one=one, ran=ran: [engine_check_under_load(one, ran)])
      for one, ran in (("native", WORKERS), ("io_uring", WORKERS), ("native", ring("io_uring")),
                       ("io_uring", ring("native")), ("threads", ring("native")), ("threads", ring("io_uring")))),
    (export_checks, "disk.export", lambda: export_checks(asked(*EXPORT), SERVED)),
    (export_checks, "iothread.poll_max_ns", lambda: export_checks(asked(*EXPORT), SERVED)),
    (export_checks, "export.num_queues", lambda: export_checks(asked(*EXPORT), SERVED)),
    (export_thread, "export.iothread", lambda: [export_thread(asked(*EXPORT, "export.iothread=on"), 7, 0, 10**9)]),
    (export_thread, "export.iothread", lambda: [export_thread(asked("disk.export=nbd"), 7, 10**9, 0)]),
]  # fmt: skip

PROVEN_UNDER_LOAD = {(export_checks, "export.iothread")}
"""What one verifier leaves to another, which has its lie."""


@pytest.mark.parametrize(("verifier", "setting", "lie"), LIES, ids=[f"{one[0].__name__}-{one[1]}" for one in LIES])
def test_an_answer_that_is_not_what_was_asked_for_is_said(
    verifier: Verifier, setting: str, lie: Callable[[], Iterable[Check | None]]
) -> None:
    found = [one for one in lie() if one is not None and one.setting == setting]
    assert [one.agrees for one in found] == [False], f"{verifier.__name__} believes it"


def verifiers() -> Iterator[Verifier]:
    for module in (verify, daemon):
        for name, one in vars(module).items():
            if callable(one) and not name.startswith("_") and getattr(one, "__module__", "") == module.__name__:
                hints = typing.get_type_hints(one) if not isinstance(one, type) else {}
                if "Check" in str(hints.get("return")):
                    yield one


def test_every_verifier_and_every_setting_of_one_has_a_lie() -> None:
    assert {one for one, _, _ in LIES} == set(verifiers())
    lied = {(one, setting) for one, setting, _ in LIES} | PROVEN_UNDER_LOAD
    said = {(one, check.setting) for one, _, lie in LIES for check in lie() if check is not None}
    assert said <= lied
