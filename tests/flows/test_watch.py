# SPDX-License-Identifier: Apache-2.0
"""What `virtune watch` keeps, answers and sends: a ring file, Prometheus' text, a webhook; and what may go wrong."""

import contextlib
import json
import os
import re
import resource
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from prometheus_client.parser import text_string_to_metric_families
from tests.conftest import eventually
from tests.live_samples import frames, kept_by_qemu, live, look
from tests.published import schema

from virtune.analyse.layers.path import frame
from virtune.analyse.watch import Alarms
from virtune.cli import run
from virtune.cli.common.rest import Rest
from virtune.flows.live.exporter import METRICS, Exported, listening
from virtune.flows.live.history import History, kept_looks, older
from virtune.flows.live.watch import Look, Webhook
from virtune.model.errors import PreconditionError, UsageError
from virtune.plan.goal import parse_rule
from virtune.report.json.live import event_document

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana-live.json"
MUCH = 2**20


def test_looks_are_kept_and_come_again(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    looks = [look(1_700_000_000.0 + 10 * one, 1.5) for one in range(5)]
    for half in (looks[:3], looks[3:]):
        with History(path, MUCH) as history:
            assert [history.add([one]) for one in half] == [""] * len(half)
    assert kept_looks(path, 0, 2e9) == (looks, 0)
    assert kept_looks(path, 1_700_000_015, 1_700_000_025)[0] == [looks[2]]
    assert path.stat().st_mode & 0o077 == 0, "it names VMs"


def test_the_ring_keeps_the_newest_within_its_size(tmp_path: Path) -> None:
    path, most = tmp_path / "kept", 8 * 1024
    with History(path, most) as history:
        for number in range(200):
            history.add([look(float(number), 1.0)])
        assert path.stat().st_size + older(path).stat().st_size <= most
        found, torn = kept_looks(path, 0, 1e9)
    assert torn == 0
    times = [one.wall_seconds for one in found]
    assert times == [float(one) for one in range(int(times[0]), 200)]
    assert len(times) > 10


def test_another_file_with_the_older_one_s_name_is_not_overwritten(tmp_path: Path) -> None:
    path, foreign = tmp_path / "notes", tmp_path / "notes.old"
    foreign.write_text("somebody's\n")
    with pytest.raises(PreconditionError, match=r"notes\.old is no history"):
        History(path, 4096)
    assert not path.exists()
    foreign.unlink()
    with History(path, 4096) as kept:
        assert kept.add([look(0.0, 1.0)]) == ""
        foreign.write_text("somebody's\n")  # it came later
        said = [kept.add([look(float(second), 1.0)]) for second in range(1, 40)]
        assert [one for one in said if one] == [
            f"the history is not written: {foreign} is no history of `virtune watch`"
        ]
    assert foreign.read_text() == "somebody's\n"


@pytest.mark.parametrize(
    "torn", [b'[[1.0,"sql1', b"[[1,2]]\n", b"\0" * 100, b"[" * 10**5 + b"\n", b'[["x"]]\n[[NaN]]\n']
)
def test_a_torn_record_is_left_out_and_said(torn: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kept"
    now = time.time()
    with History(path, MUCH) as history:
        history.add([look(now - 20, 1.0)])
    with path.open("ab") as file:
        file.write(torn)
    with History(path, MUCH) as history:
        history.add([look(now - 10, 1.0)])
    found, count = kept_looks(path, now - 60, now)
    assert (len(found), count >= 1) == (2, True)
    assert run(["watch", "--last", "1min", "--history", str(path)]) == 0
    assert "torn, and left out" in capsys.readouterr().out


def test_a_full_disk_is_said_once_and_leaves_no_half_record(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with History(path, MUCH) as history:
        history.add([look(1.0, 1.0)])
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, hard))
        try:
            said = [history.add([look(float(one), 1.0)]) for one in (2, 3)]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert "not written" in said[0]
        assert said[1] == ""
        assert history.add([look(4.0, 1.0)]) == "the history is written again"
    assert ([one.wall_seconds for one in kept_looks(path, 0, 9)[0]], kept_looks(path, 0, 9)[1]) == ([1.0, 4.0], 0)


@pytest.mark.parametrize(("limit", "most"), [("FSIZE", 0), ("FSIZE", 10), ("FSIZE", 60), ("NOFILE", 3)])
def test_a_disk_that_is_full_at_any_moment_costs_the_looks_of_that_time_alone(
    limit: str, most: int, tmp_path: Path
) -> None:
    """Full as a file of the ring was begun, its first line was torn or missing, and no look was kept ever after."""
    kind = getattr(resource, f"RLIMIT_{limit}")
    soft, hard = resource.getrlimit(kind)
    for full_at in range(1, 30):
        path = tmp_path / f"kept{full_at}"
        with History(path, 4096) as history:
            for number in range(40):
                full = full_at <= number < full_at + 3
                resource.setrlimit(kind, (most if full else soft, hard))
                try:
                    said = history.add([look(float(number), 1.0)])
                finally:
                    resource.setrlimit(kind, (soft, hard))
                assert not said or full or "again" in said
        found, torn = kept_looks(path, 0, 1e9)
        times = [one.wall_seconds for one in found]
        assert (times, torn) == (sorted(set(times)), 0), full_at
        lost = set(range(int(times[0]), 40)) - set(map(int, times))
        assert lost <= set(range(full_at, full_at + 3)), full_at
        assert len(times) > 5


def test_one_watch_at_a_time_writes_a_history_and_nothing_else_is_written_over(tmp_path: Path) -> None:
    path, mine = tmp_path / "kept", tmp_path / "mine"
    mine.write_text("my own words\n")
    (tmp_path / "link").symlink_to(mine)
    os.mkfifo(tmp_path / "fifo")
    with History(path, MUCH), pytest.raises(PreconditionError, match="another `virtune watch` writes"):
        History(path, MUCH)
    for name in ("mine", "link", "fifo", "."):
        with pytest.raises(PreconditionError):
            History(tmp_path / name, MUCH)
    with pytest.raises(PreconditionError, match="no history of"):
        kept_looks(mine, 0, 1)
    with pytest.raises(PreconditionError):
        kept_looks(tmp_path / "fifo", 0, 1)
    assert mine.read_text() == "my own words\n"


def test_the_history_says_what_was_slow_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, now = tmp_path / "kept", time.time()
    with History(path, MUCH) as history:
        for number in range(60):
            history.add([look(now - 600 + 10 * number, 80.0 if 20 <= number < 23 else 1.0)])
    ask = ["watch", "--history", str(path)]
    assert run([*ask, "--last", "1h", "sql1"]) == 0
    told = capsys.readouterr().out
    assert "80 ms a request, usually 1 ms" in told
    assert "limited by the device" in told
    assert run([*ask, "--last", "1h", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    Draft202012Validator(schema("watch")).validate(document)
    (window,) = document["windows"]
    assert (window["end"] - window["begin"], window["worst"]["cause"]) == (pytest.approx(30, abs=0.01), "device")
    assert run([*ask, "--at", time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now - 390)), "--json"]) == 0
    (disk,) = json.loads(capsys.readouterr().out)["disks"]
    assert disk["latency_ns"] == 80e6
    for words, status in ((["--last", "1h", "other"], 3), (["--at", "25:00"], 2), (["--last", "1h", "--once"], 2)):
        assert run([*ask, *words]) == status


def seen(alarms: Alarms) -> Look:
    found = frame(kept_by_qemu(live(2), 1), kept_by_qemu(live(4), 3))
    assert found is not None
    list(alarms.look(found))
    return Look(sample=kept_by_qemu(live(4), 3), frame=found, held_seconds=0.01)


def test_prometheus_reads_the_figures() -> None:
    alarms = Alarms([parse_rule("iops > 1")])
    exported = Exported(alarms)
    with listening("127.0.0.1:0", exported) as address:
        for _ in range(2):
            exported.take(seen(alarms))
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        with pytest.raises(PreconditionError, match="cannot listen"), listening(address, exported):
            pass
    families = {one.name: one for one in text_string_to_metric_families(text)}
    assert set(families) == {name.removesuffix("_total") for name in METRICS}
    assert all(one.documentation for one in families.values())
    assert {name for name, one in families.items() if one.type == "histogram"} == {"virtune_disk_latency_seconds"}
    counters = {name.removesuffix("_total") for name in METRICS if name.endswith("_total")}
    assert {name for name, one in families.items() if one.type == "counter"} == counters
    count = live(4).counts["sql1"]["vda"]
    got = {
        (one.name, *(one.labels.get(label) for label in ("disk", "operation", "layer", "le"))): one.value
        for family in families.values()
        for one in family.samples
    }
    assert got["virtune_disk_operations_total", "vda", "read", None, None] == count.reads
    assert got["virtune_disk_operation_seconds_total", "vda", "read", None, None] == pytest.approx(
        count.read_ns / 1e9
    )
    assert got["virtune_disk_latency_seconds_bucket", "vda", "read", None, "0.02"] == 3 * 980
    assert got["virtune_disk_latency_seconds_bucket", "vda", "read", None, "+Inf"] == 3 * 1000
    layers = got["virtune_disk_layer_seconds_total", "vda", None, "device", None]
    assert layers / got["virtune_disk_layer_operations_total", "vda", None, None, None] == pytest.approx(300e-6)
    causes = [
        one.labels["cause"] for one in families["virtune_disk_limited_by"].samples if one.labels["disk"] == "vda"
    ]
    assert causes == ["device"]
    assert got["virtune_watch_last_look_timestamp_seconds", None, None, None, None] == pytest.approx(1.7e9 + 4)
    assert got["virtune_disk_latency_seconds_count", "vda", "read", None, None] == 3 * 1000


def test_the_dashboard_of_the_docs_asks_for_metrics_and_labels_that_there_are() -> None:
    assert DASHBOARD.name in (DASHBOARD.parent / "guide" / "recipes.md").read_text()
    targets = [one for panel in json.loads(DASHBOARD.read_text())["panels"] for one in panel["targets"]]
    assert targets
    for target in targets:
        names = {re.sub("_bucket$", "", one) for one in re.findall(r"\bvirtune_\w+", target["expr"])}
        assert names, target
        assert names <= set(METRICS), names - set(METRICS)
        labels = {"le", *(label for name in names for label in METRICS[name][1].split())}
        grouped = ",".join(re.findall(r"(?:by|ignoring) \(([^)]*)\)", target["expr"]))
        used = {*re.findall(r"(\w+)\s*=~?\"", target["expr"]), *re.findall(r"{{(\w+)}}", target["legendFormat"])}
        assert used | set(re.findall(r"\w+", grouped)) <= labels, target


def test_all_series_of_a_disk_have_the_same_labels_whatever_its_name_is() -> None:
    exported, vm = Exported(Alarms([])), "a\x1b[2J\n" + "x" * 300
    each = seen(Alarms([]))
    disks = tuple(replace(one, vm=vm) if one.vm == "sql1" else one for one in each.frame.disks)
    vms = tuple(replace(one, disks=tuple(d for d in disks if d.vm == vm)) for one in each.frame.vms)
    counts, histograms = {vm: each.sample.counts["sql1"]}, {vm: each.sample.histograms["sql1"]}
    sample = replace(each.sample, counts=counts, histograms=histograms)
    exported.take(replace(each, sample=sample, frame=replace(each.frame, vms=vms)))
    told = {
        one.name: one.labels["vm"]
        for family in exported.collect()
        for one in family.samples
        if one.labels.get("disk") == "vda"
    }
    assert {"virtune_disk_latency_seconds_bucket", "virtune_disk_operations_total"} <= set(told)
    assert len(set(told.values())) == 1, told


def test_a_disk_that_is_gone_has_no_series_and_a_disk_has_few() -> None:
    alarms = Alarms([])
    exported = Exported(alarms)
    for number, each in enumerate(frames(9), 2):
        exported.take(Look(sample=live(number), frame=each, held_seconds=0.0))
    disks = {one.labels.get("disk") for family in exported.collect() for one in family.samples}
    assert disks == {None, "vda", "disk0"}
    series = [one for family in exported.collect() for one in family.samples if one.labels.get("disk") == "vda"]
    assert len(series) <= 30


@pytest.mark.parametrize("address", ["", "9177", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:x", ":9177"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError), listening(address, Exported(Alarms([]))):
        pass


class Takes(BaseHTTPRequestHandler):
    bodies: list[bytes] = []  # noqa: RUF012 - of the whole test

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204 if len(self.bodies) < 2 else 500)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's own name
        pass


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/secret-token"


def test_a_webhook_gets_each_event_and_what_it_refuses_is_said() -> None:
    alarms, told = Alarms([parse_rule("iops > 1")]), list[str]()
    documents = [event_document(one) for one in alarms.look(frames(1)[0])]
    for one in documents:
        Draft202012Validator(schema("watch-event")).validate(one)
    with HTTPServer(("127.0.0.1", 0), Takes) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with Webhook(f"http://127.0.0.1:{server.server_port}/secret-token", told.append) as hook:
            for one in documents[:2]:
                hook.post(one)
            assert eventually(lambda: len(told) == 1, seconds=20)
        server.shutdown()
    assert [json.loads(one)["rule"] for one in Takes.bodies] == ["iops > 1"] * 2
    assert "did not take an event" in told[0]
    assert "secret-token" not in told[0], "the address may be a secret"


def test_a_webhook_that_hangs_or_is_not_there_stops_nothing() -> None:
    told = list[str]()
    begun = time.monotonic()
    with silent() as url:
        hook = Webhook(url, told.append)
        with contextlib.ExitStack() as ends:
            ends.enter_context(hook)
            for _ in range(110):
                hook.post({})
            assert time.monotonic() - begun < 3
            assert "takes nothing" in told[0]
    assert time.monotonic() - begun < 15
    for word in ("file:///etc/passwd", "ftp://host/x", "http://", "javascript:1", "http://[x", "http://a:99999999/"):
        with pytest.raises(UsageError):
            Webhook(word, told.append)


def test_a_service_that_is_stopped_ends_at_its_next_rest_or_in_it() -> None:
    rest = Rest(0)
    rest(0.0)
    rest.end(signal.SIGTERM, None)  # in the midst of a look
    with pytest.raises(SystemExit) as ended:
        rest(600.0)
    assert ended.value.code == 0
    rest, before = Rest(0), signal.signal(signal.SIGALRM, lambda *_: rest.end(signal.SIGTERM, None))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(SystemExit):
            rest(60.0)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_ctrl_c_waits_for_the_end_of_a_look_and_the_next_one_for_nothing() -> None:
    counted: list[int] = []

    def interrupt(number: int, _: object) -> None:
        counted.append(number)
        if len(counted) == 1:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt), Rest(0) as rest:
            signal.raise_signal(signal.SIGINT)  # in the midst of a look
            assert not counted
            try:
                rest(600.0)
            finally:
                signal.raise_signal(signal.SIGINT)  # as histograms are taken back
                assert counted == [signal.SIGINT] * 2
        counted.clear()
        with Rest(0), pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        counted.clear()
        with pytest.raises(KeyboardInterrupt), Rest(0):
            signal.raise_signal(signal.SIGINT)  # after the last look
        assert signal.getsignal(signal.SIGINT) is interrupt
        counted.clear()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with Rest(0) as rest:
            signal.raise_signal(signal.SIGINT)
            rest(0.0)
        assert not counted
    finally:
        signal.signal(signal.SIGINT, before)
