# SPDX-License-Identifier: Apache-2.0
"""Disks on Ceph by QEMU's own rbd driver: how a pool is named, what QEMU is told, what is verified, what is left."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cephs import POOL, ceph
from tests.conftest import User

from virtune.bench.verify.image import rbd_checks
from virtune.dialects.qemu.qmp import DaemonPlaces, daemon_commands
from virtune.model.contradictions import contradictions
from virtune.model.rbd import rbd_place
from virtune.model.stack import Disk, Stack

ON_CEPH = Disk(backend="rbd", rbd="vms/one:id=me:conf=/etc/ceph/other.conf")
PLACES = DaemonPlaces(image="", size_bytes=2**20, socket="/s", mountpoint="/m", rbd="virtune-run-1")


def test_a_pool_is_named_as_qemu_names_it() -> None:
    place = rbd_place(str(ON_CEPH.rbd))
    assert (place.pool, place.namespace, place.user, place.conf) == ("vms", "one", "me", "/etc/ceph/other.conf")
    assert (place.text, place.path) == (ON_CEPH.rbd, "vms/one")
    assert rbd_place("vms").text == rbd_place("vms").path == "vms"
    for wrong in ("", "vms/image/more", "vms:conf=ceph.conf", "vms:key=secret", "a,b", "vms;x"):
        with pytest.raises(ValueError, match="POOL"):
            rbd_place(wrong)


def test_qemu_is_told_of_the_image_and_of_librbds_cache() -> None:
    node = daemon_commands(Stack(disk=ON_CEPH), PLACES)[0].arguments
    assert (node["driver"], node["pool"], node["namespace"], node["image"]) == ("rbd", "vms", "one", "virtune-run-1")
    assert (node["user"], node["conf"]) == ("me", "/etc/ceph/other.conf")
    assert node["cache"] == {"direct": True, "no-flush": False}
    assert "aio" not in node
    cached = daemon_commands(Stack(disk=replace(ON_CEPH, cache="writeback")), PLACES)[0].arguments
    assert cached["cache"]["direct"] is False


def test_another_pool_or_another_cache_than_was_asked_for_is_seen() -> None:
    said = {"driver": "rbd", "pool": "vms", "namespace": "one", "user": "me", "conf": "/etc/ceph/other.conf"}
    for image, cache, pool, agrees in (
        ("virtune-run-1", True, "vms", (True, True)),
        ("virtune-run-1", False, "vms", (True, False)),
        ("virtune-run-1", True, "other", (False, True)),
        ("somebodys", True, "vms", (None, True)),
    ):
        name = "json:" + json.dumps({**said, "image": image, "pool": pool})
        nodes = [{"node-name": "file0", "image": {"filename": name}, "cache": {"direct": cache, "no-flush": False}}]
        found = {one.setting: one.agrees for one in rbd_checks(Stack(disk=ON_CEPH), nodes)}
        assert (found["disk.rbd"], found["disk.cache"]) == agrees


def test_what_cannot_be_on_ceph_is_refused() -> None:
    assert not contradictions(Stack(disk=ON_CEPH))
    for disk in (
        replace(ON_CEPH, rbd=None),
        replace(ON_CEPH, backend="file"),
        replace(ON_CEPH, format="qcow2"),
        replace(ON_CEPH, aio="native"),
        replace(ON_CEPH, rbd="vms:key=secret"),
    ):
        assert contradictions(Stack(disk=disk)), disk
    assert contradictions(Stack(rig="qemu", disk=ON_CEPH, guests=2))


@pytest.mark.real
@pytest.mark.long  # what QEMU is told and what is verified stand above, without a cluster
def test_a_disk_on_ceph_is_measured_beside_a_file_and_removed(user: User, tmp_path: Path) -> None:
    with ceph(tmp_path / "ceph") as cluster:
        cluster.run("rbd", "create", f"{POOL}/somebodys", "--size", "16M")
        place = f"{POOL}:conf={cluster.conf}"
        cached = f"cached:disk.backend=rbd,disk.cache=writeback,disk.rbd={place}"
        arms = ("--arm", "file:", "--arm", f"ceph:disk.backend=rbd,disk.rbd={place}", "--arm", cached)
        load = ("--rounds", "1", "--seconds", "300ms", "--attempts", "1", "--span", "16M", "--check-data")
        for rig in ("storage-daemon", "qemu"):
            words = ("compare", "--rig", rig, *arms, *load, "--scratch", str(user.scratch), "--json")
            for one in user.run(*words, path=cluster.path).json()["arms"]:
                found = {check["setting"]: check["found"] for check in one["in_force"]}
                assert found["disk.backend"] == ("file" if one["name"] == "file" else "rbd")
                assert found["disk.cache"] == ("writeback" if one["name"] == "cached" else "none")
                assert found["data"] == "kept"
                assert found.get("disk.rbd") == (None if one["name"] == "file" else place)
        assert cluster.run("rbd", "ls", POOL).split() == ["somebodys"], "virtune's image is gone, no other is touched"
