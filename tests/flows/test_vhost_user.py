# SPDX-License-Identifier: Apache-2.0
"""Studies over vhost-user-blk, as a user asks for them: measured, kept, explained; refused without the generator."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from tests.conftest import User, generator, require_both_ends

import virtune
from virtune.fio.results import read_result

pytestmark = [pytest.mark.real, pytest.mark.once, pytest.mark.xdist_group("vhost-user")]

SHORT = ("--rounds", "1", "--seconds", "1", "--ramp", "0.1", "--json", "-q")


def test_metal_nbd_and_vhost_user_in_one_study(user: User) -> None:
    generator()
    report = user.home / "report.txt"
    arms = ("--arm", "metal:rig=metal", "--arm", "nbd:", "--arm", "vhost:rig=vhost-user,disk.aio=io_uring")
    found = user.run("compare", *arms, *SHORT, "--report", str(report)).json()
    for arm in found["arms"]:
        values = arm["workloads"][0]["values"]
        assert {"iops", "latency.p99", "cpu.load.usr", "cpu.load.sys"} <= values.keys(), arm["name"]
        require_both_ends(user, arm)
    vhost = found["arms"][2]
    assert vhost["stack"]["export"] == "vhost-user-blk"
    seen = {check["setting"]: check["found"] for check in vhost["in_force"] if check["found"]}
    assert (seen["disk.export"], seen["export.iothread"], seen["disk.aio"]) == ("vhost-user-blk", "on", "io_uring")
    metal, nbd, exported = (
        {check["setting"]: (check["asked"], check["found"]) for check in arm["in_force"]} for arm in found["arms"]
    )
    assert metal["load.program"] == exported["load.program"] == ("virtune-load", "virtune-load")
    assert nbd["load.program"] == ("fio", "fio")
    assert (metal["load.engine"], metal["load.direct"]) == (("io_uring", "io_uring"), ("on", "on"))
    text = " ".join(report.read_text().split())
    assert "loaded by different programs: metal, vhost-user-blk by virtune-load; nbd by fio" in text
    assert "through virtio queues as a VM loads it; the figures include what the virtio queues cost, and not" in text
    assert "the cost of NBD, which a guest's virtio disk does not have" in text
    assert "arms with different exports differ by the cost of the exports too" in text


def test_what_our_generator_left_is_read_like_fios(user: User) -> None:
    generator()
    words = ("--rig", "vhost-user", "--set", "export.num_queues=2", "--workload", "oltp-8k-70-30,numjobs=2")
    # where seven tests share the CPUs, no sample of a shorter trial saw a request that QEMU had taken
    found = user.run("compare", "measure", *words, *SHORT, "--seconds", "3").json()
    assert found["arms"][0]["rounds"][0]["measurement"]["values"]["iops"] > 0
    raw = user.run("show", "last", "--trial", "1", "--capture", "fio.json").stdout
    (load,) = read_result(raw).loads
    assert (load.engine, load.direct, load.jobs, load.depth) == ("libblkio", None, 2, 32)
    assert {stream.direction for stream in load.streams} == {"read", "write"}
    assert json.loads(raw)["fio version"].startswith("virtune-load-")
    rings = json.loads(user.run("show", "last", "--trial", "1", "--capture", "virtqueue.json").stdout)
    assert rings["completed"] > 0, "the virtqueues are seen in the generator's memory"
    assert 0 < rings["taken_mean"] <= rings["offered_mean"] <= 64
    command = user.run("show", "last", "--trial", "1", "--capture", "command.txt").stdout
    assert "virtune-load --allow-write" in command
    rig = user.run("show", "last", "--trial", "1", "--capture", "rig.txt").stdout
    assert '"num-queues":2' in rig
    explained = subprocess.run(
        [sys.executable, "-m", "virtune", "explain", "-"], input=raw, capture_output=True, text=True, env=user.env
    )
    assert explained.returncode == 0, explained.stderr
    assert "libblkio" in explained.stdout
    assert "page cache" not in explained.stdout


def test_a_plan_file_names_the_rig(user: User) -> None:
    generator()
    plan = user.home / "plan.toml"
    plan.write_text(
        'rig = "vhost-user"\nrounds = 1\nseconds = "200ms"\nramp = "0s"\nworkload = ["log-sync-16k"]\n[vary]\n'
        'iothread.poll_max_ns = [0, 32768]\n[[arm]]\nname = "main-loop"\nexport.iothread = false\n'
    )
    found = user.run("compare", str(plan), "--json", "-q").json()
    stacks = [arm["stack"] for arm in found["arms"]]
    assert [stack["export"] for stack in stacks] == ["vhost-user-blk"] * 3
    assert [(stack["poll_max_ns"], stack["iothread"]) for stack in stacks] == [
        (0, None),
        (32768, None),
        (None, False),
    ]
    for arm in found["arms"]:
        assert arm["rounds"][0]["measurement"]["values"]["sync.mean"] > 0


def test_without_the_generator_it_is_said_before_anything_is_made(user: User, tmp_path: Path) -> None:
    # a virtune without a checkout around it, run by a Python that no virtune-load lies beside
    shutil.copytree(Path(virtune.__file__).parent, tmp_path / "src" / "virtune")
    place = tmp_path / "path"
    place.mkdir()
    for name in ("fio", "qemu-storage-daemon", "qemu-img"):
        (place / name).symlink_to(shutil.which(name) or name)
    python = place / "python"
    python.symlink_to(os.path.realpath(sys.executable))
    libraries = sysconfig.get_path("purelib")
    env = user.env | {"PATH": str(place), "PYTHONPATH": f"{tmp_path / 'src'}{os.pathsep}{libraries}"}
    scratch = tmp_path / "scratch"
    words = ["compare", "measure", "--rig", "vhost-user", "--scratch", str(scratch), "--span", "64M"]
    done = subprocess.run([python, "-m", "virtune", *words], capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == 3, done.stderr
    assert [line for line in done.stderr.splitlines() if line] == [
        "error: `virtune-load` is not installed, and a vhost-user-blk export needs it",
        "hint: `pip install ./loadgen` in a checkout of virtune builds it; disk.export=nbd does without",
    ]
    assert not scratch.exists() or not list(scratch.glob("*.raw"))
