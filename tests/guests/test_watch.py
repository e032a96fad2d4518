# SPDX-License-Identifier: Apache-2.0
"""`virtune watch` on a QEMU started by hand, whose guest loads a disk of a known latency."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from prometheus_client.parser import text_string_to_metric_families
from tests.conftest import eventually
from tests.guests.loaded import JOB, Loaded, loading, null
from tests.published import schema

from virtune.bench.live.monitor import BOUNDARIES_NS, monitored
from virtune.cli import run

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("guests")]

DEVICE_NS = 20_000_000
"""A limit that a percentile is decided at exactly."""


def histograms(loaded: Loaded, *, set_to: tuple[int, ...] = ()) -> list[list[int]]:
    """The boundaries of QEMU's histograms of reads; with `set_to` it is given some first."""
    with monitored(loaded.socket) as view:
        if set_to:
            (qdev,) = [one["qdev"] for one in view.monitor.execute("query-block")]
            view.monitor.execute("block-latency-histogram-set", {"id": qdev, "boundaries": set_to})
        stats = [one["stats"] for one in view.monitor.execute("query-blockstats")]
    return [one["rd_latency_histogram"]["boundaries"] for one in stats if "rd_latency_histogram" in one]


def asked_by(pid: int) -> list[int]:
    """The boundaries that a virtune asks for."""
    return [*BOUNDARIES_NS[:-1], BOUNDARIES_NS[-1] + pid]


def test_a_rule_holds_for_a_slow_disk_and_its_qemu_is_left_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = ("--history", str(tmp_path / "kept"))
    with loading(tmp_path, null(DEVICE_NS), JOB + "hipri=0\n") as guest:
        call = ["watch", "--qmp", str(guest.socket), "--interval", "500ms", *kept, "--json"]

        def watched(*words: str, status: int) -> list[Any]:
            assert run([*call, *words]) == status
            return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

        (event,) = watched("--histograms", "--until-first", "--if", "p99 > 20ms for 1s", status=4)
        Draft202012Validator(schema("watch-event")).validate(event)
        assert (event["holds"], event["look"]["vm"], event["look"]["disk"]) == (True, "virtune", "data")
        assert event["value"] >= DEVICE_NS
        assert event["held_seconds"] >= 0.5, "looks do not end to the millisecond"
        assert not histograms(guest), "they are taken back"
        rules = ("--if", "latency > 10ms", "--if", "latency > 10s", "--if", "oldest > 10s", "--if", "p50 > 1us")
        assert [one["metric"] for one in watched("--once", *rules, status=4)] == ["latency.mean"], "p50 is not known"
        assert watched("--once", "--if", "oldest > 10s", status=0) == []
        command = [sys.executable, "-m", "virtune", *call, "--histograms"]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as service:
            try:
                assert eventually(lambda: histograms(guest) == [asked_by(service.pid)], seconds=30)
            finally:
                service.send_signal(signal.SIGTERM)
            _, said = service.communicate(timeout=30)
        assert (service.returncode, said) == (0, b""), "a service that is stopped has not failed"
        assert not histograms(guest)
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as service:
            assert eventually(lambda: histograms(guest) == [asked_by(service.pid)], seconds=30)
            service.kill()
        assert histograms(guest) == [asked_by(service.pid)], "nobody is left to take them back"
        assert watched("--histograms", "--once", "--if", "p99 > 1us", status=4)
        assert not histograms(guest), "the next one does"
        for other in (asked_by(os.getppid()), [*BOUNDARIES_NS[1:-1], 10**10 + service.pid], [*BOUNDARIES_NS]):
            assert histograms(guest, set_to=tuple(other)) == [other]
            assert watched("--histograms", "--once", "--if", "p99 > 1us", status=4)
            assert histograms(guest) == [other], "of a virtune that runs, or of none"
        theirs = [1000, 10**7]
        assert histograms(guest, set_to=(1000, 10**7)) == [theirs]
        assert watched("--histograms", "--once", "--if", "p99 > 1us", status=4)
        assert histograms(guest) == [theirs], "they are somebody else's"
    assert run(["watch", *kept, "--last", "1min", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["looks"] >= 4


def test_a_diagnosis_has_percentiles_and_leaves_the_qemu_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with loading(tmp_path, null(DEVICE_NS), JOB + "hipri=0\n") as guest:
        call = ["diagnose", "--qmp", str(guest.socket), "--json"]

        def diagnosed(*words: str) -> tuple[dict[str, Any], Any]:
            assert run([*call, *words]) == 0
            document = json.loads(capsys.readouterr().out)
            Draft202012Validator(schema("diagnose")).validate(document)
            (disk,) = document["disks"]
            (reads,) = (one for one in disk["operations"] if one["operation"] == "read")
            return {f"{one['percent']:g}": one for one in reads["percentiles"]}, disk["worst_second"]

        assert diagnosed("--seconds", "1") == ({}, None)
        told, worst = diagnosed("--seconds", "3", "--histograms")
        assert told.keys() == {"50", "99", "99.9"}
        assert told["50"]["low_ns"] <= DEVICE_NS * 1.5, told
        assert told["50"]["high_ns"] is None or told["50"]["high_ns"] > DEVICE_NS
        assert 1 <= worst["number"] <= 3
        assert worst["mean_ns"] >= DEVICE_NS * 0.9
        assert not histograms(guest), "they are taken back"
        command = [sys.executable, "-m", "virtune", *call, "--histograms", "--seconds", "60"]
        for end, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as looking:
                assert eventually(lambda: histograms(guest) == [asked_by(looking.pid)], seconds=30)
                looking.send_signal(end)
                looking.communicate(timeout=30)
            assert looking.returncode == status
            assert not histograms(guest)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as looking:
            assert eventually(lambda: histograms(guest) == [asked_by(looking.pid)], seconds=30)
            looking.kill()
        assert diagnosed("--seconds", "1", "--histograms")[0].keys() == {"50", "99", "99.9"}
        assert not histograms(guest), "the next one takes back what a killed one left"
        theirs = [10_000_000, 30_000_000]
        assert histograms(guest, set_to=tuple(theirs)) == [theirs]
        for words in ((), ("--histograms",)):
            told, _ = diagnosed("--seconds", "1", *words)
            assert told["50"]["low_ns"] in (0, *theirs)
            assert histograms(guest) == [theirs], "they are somebody else's"


def test_prometheus_gets_a_whole_histogram_of_a_running_qemu(tmp_path: Path) -> None:
    latency = "virtune_disk_latency_seconds"
    with loading(tmp_path, null(DEVICE_NS), JOB + "hipri=0\n") as guest:
        command = [sys.executable, "-m", "virtune", "watch", "--qmp", str(guest.socket), "--interval", "500ms",
                   "--history", str(tmp_path / "kept"), "--histograms", "--listen", "127.0.0.1:0"]  # fmt: skip
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as service:
            try:
                assert service.stderr is not None
                address = re.search(r"127\.0\.0\.1:\d+", service.stderr.readline())
                assert address is not None

                def samples() -> dict[tuple[str, str | None, str | None], Any]:
                    with urllib.request.urlopen(f"http://{address[0]}/metrics", timeout=10) as answer:
                        families = text_string_to_metric_families(answer.read().decode())
                    every = [one for family in families for one in family.samples]
                    return {(one.name, one.labels.get("operation"), one.labels.get("le")): one for one in every}

                assert eventually(lambda: (f"{latency}_count", "read", None) in samples(), seconds=30)
                found = samples()
            finally:
                service.send_signal(signal.SIGTERM)
            service.communicate(timeout=30)
    count = found[f"{latency}_count", "read", None].value
    assert count > 0
    assert count == found[f"{latency}_bucket", "read", "+Inf"].value
    assert count <= found["virtune_disk_operations_total", "read", None].value
