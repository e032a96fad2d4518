# SPDX-License-Identifier: Apache-2.0
"""Disks on Ceph by QEMU's own rbd driver: how a pool is named, what QEMU is told, what is verified, what is left."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cephs import POOL, ceph
from tests.conftest import User, eventually, marked_processes

from virtune.bench.verify import rbd_checks
from virtune.dialects.qemu.qmp import DaemonPlaces, daemon_commands
from virtune.model.contradictions import contradictions
from virtune.model.stack import Disk, Stack, rbd_place

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


RBD = """#!/bin/sh
# Ceph's `rbd` as far as virtune uses it, on a pool that is a directory
while case $1 in --conf|--id) true;; *) false;; esac; do shift 2; done
verb=$1; for path; do :; done; image={pool}/${{path##*/}}; from=$3
[ ! -e {place}/down ] || {{ echo "rbd: couldn't connect to the cluster!" >&2; exit 1; }}
case $verb in
import)
    [ ! -e "$image" ] || exit 17
    [ -s {records}/"${{path##*/}}".json ] || exit 90
    [ ! -e {place}/kill-before ] || {{ kill -9 $PPID; sleep 600; }}
    cp "$from" "$image"
    [ ! -e {place}/kill-after ] || kill -9 $PPID;;
info) [ -e "$image" ] || {{ echo "rbd: error opening image x: (2) No such file or directory" >&2; exit 2; }};;
rm) [ ! -e {place}/watched ] || {{ echo "rbd: error: image still has watchers" >&2; exit 16; }}; rm "$image";;
esac
"""

RUN = """
import sys
from pathlib import Path
from virtune.bench.rbd import rbd_images
from virtune.bench.scratch import Scratch
from virtune.model.stack import Disk, Stack
from virtune.shell import Warden
stacks = [Stack(disk=Disk(backend="rbd", rbd=place)) for place in ("vms", "vms", "other:id=me")]
said = []
with Warden("on-ceph") as warden, Scratch(Path("scratch"), span_bytes=2**20, say=said.append) as scratch:
    with rbd_images(stacks, scratch, warden, said.append) as images:
        print(*images, *images.values(), flush=True)
        sys.stdin.readline()
print(*(one.text for one in said if hasattr(one, "text")))
"""


class Pool:
    """A pool in a directory, whose `rbd` is on the PATH of `user`."""

    def __init__(self, user: User, place: Path) -> None:
        self.user, self.place, self.images, self.records = user, place, place / "pool", user.home / "virtune/ceph"
        programs = place / "bin"
        for one in (self.images, programs):
            one.mkdir()
        (self.images / "somebodys").touch()
        script = programs / "rbd"
        script.write_text(RBD.format(place=place, pool=self.images, records=self.records))
        script.chmod(0o755)
        self.path = f"{programs}:{os.environ['PATH']}"

    def left(self) -> list[str]:
        """The images with a name like virtune's."""
        return sorted(one.name for one in self.images.glob("virtune-*"))

    def run(self) -> subprocess.Popen[str]:
        """Start a run that holds two images until it gets a line."""
        env = self.user.env | {"PATH": self.path}
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, "-c", RUN], stdin=pipe, stdout=pipe, text=True, env=env, cwd=self.place
        )

    def killed(self, instant: str) -> list[Path]:
        """Have a run killed while it makes its first image; returns its records."""
        (self.place / instant).touch()
        with self.run() as run:
            assert run.wait(60) == -signal.SIGKILL
        (self.place / instant).unlink()
        assert eventually(lambda: not marked_processes())
        return list(self.records.glob("*.json"))

    def clean(self, status: int = 0) -> str:
        done = self.user.run("host", "clean", "--scratch", str(self.place / "none"), path=self.path, status=status)
        return done.stdout + done.stderr


@pytest.fixture
def pool(user: User, tmp_path: Path) -> Pool:
    return Pool(user, tmp_path)


@pytest.mark.real
def test_an_image_is_recorded_before_it_is_made_and_both_are_gone_after_the_run(pool: Pool) -> None:
    run = pool.run()
    assert run.stdout is not None
    vms, other, *names = run.stdout.readline().split()
    assert (vms, other) == ("vms", "other:id=me")
    assert pool.left() == sorted(names) == sorted(one.stem for one in pool.records.iterdir())
    assert len({name.rpartition("-")[2] for name in names}) == 2, "each has a random number of its own"
    assert "Ceph" not in pool.clean(), "its run lives"
    assert pool.left() == sorted(names)
    said, _ = run.communicate("\n", timeout=60)
    assert (run.returncode, said.strip()) == (0, "")
    assert (pool.left(), list(pool.records.iterdir())) == ([], [])


@pytest.mark.real
def test_what_a_killed_run_left_in_the_pool_is_removed_when_asked_and_nothing_else(pool: Pool) -> None:
    (record,) = pool.killed("kill-after")
    assert pool.left() == [record.stem]
    foreign = pool.records / "virtune-somebodys.json"
    foreign.write_text(record.read_text())
    (pool.images / "virtune-somebodys").touch()
    (pool.place / "down").touch()
    assert f"kept: the image vms/{record.stem} may still be in Ceph: rbd: couldn't connect" in pool.clean(status=1)
    (pool.place / "down").unlink()
    (pool.place / "watched").touch()
    assert "may still be in Ceph: rbd: error: image still has watchers" in pool.clean(status=1)
    (pool.place / "watched").unlink()
    assert f"removed the image vms/{record.stem} in Ceph" in pool.clean()
    assert pool.left() == ["virtune-somebodys"]
    assert (pool.images / "somebodys").exists()
    assert list(pool.records.iterdir()) == [foreign]


@pytest.mark.real
def test_a_record_of_an_image_that_was_not_made_yet_goes_too(pool: Pool) -> None:
    (record,) = pool.killed("kill-before")
    assert pool.left() == []
    assert f"removed the record of the image vms/{record.stem} in Ceph" in pool.clean()
    assert list(pool.records.iterdir()) == []


@pytest.mark.real
def test_the_next_run_in_a_pool_makes_its_images_anew_and_removes_what_was_left(pool: Pool) -> None:
    pool.killed("kill-after")
    (old,) = pool.left()
    run = pool.run()
    assert run.stdout is not None
    _, _, *names = run.stdout.readline().split()
    assert old not in pool.left()
    (pool.place / "watched").touch()
    said, _ = run.communicate("\n", timeout=60)
    assert f"the image vms/{names[0]} is left to `virtune host clean`" in said
    assert pool.left() == sorted(names)


@pytest.mark.real
@pytest.mark.long(always="what QEMU is told and what is verified stand above, without a cluster")
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
        command = user.command(
            "measure", "--set", "disk.backend=rbd", "--set", f"disk.rbd={place}", "--seconds", "60s"
        )
        with subprocess.Popen(command, env=user.env | {"PATH": cluster.path}, stderr=subprocess.DEVNULL) as killed:
            assert eventually(lambda: len(cluster.run("rbd", "ls", POOL).split()) == 2)
            killed.kill()

        def cleaned() -> bool:  # the cluster takes a client that was killed for alive for half a minute
            return "removed the image" in user.run("host", "clean", path=cluster.path, status=None).stdout

        assert eventually(cleaned, seconds=120)
        assert cluster.run("rbd", "ls", POOL).split() == ["somebodys"]
