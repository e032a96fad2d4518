# SPDX-License-Identifier: Apache-2.0
"""A monitor that answers what no QEMU answers: it is named in a sentence, and is read rightly or not at all."""

import io
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from rich.console import Console
from tests.live_samples import HEADER, kernel_line
from tests.published import schema
from tests.stub_monitor import RECORDED, Words, beside, changed, counting, listening

from virtune.analyse.layers.path import frame
from virtune.analyse.trial.counters import read_counters
from virtune.bench.live.monitor import LiveMonitor, LiveMonitors, exits_of
from virtune.bench.live.rings import RingReader
from virtune.bench.qmp import Monitor, MonitorEnded
from virtune.cli import run
from virtune.dialects.qemu.answers import read_answer
from virtune.model.errors import RigError
from virtune.model.live import LiveSample
from virtune.report.json.live import top_document
from virtune.report.top import TopText

SEED = 20_261
MUTATIONS = 350


def lying(command: str, chance: Random) -> Words:
    """Answer one command wrongly: always, or from its second answer on."""
    honest, calls, from_call = counting(), 0, chance.choice((1, 2))

    def words(asked: str, arguments: Mapping[str, Any]) -> str:
        nonlocal calls
        said = honest(asked, arguments)
        calls += asked == command
        return changed(json.loads(said), chance) if asked == command and calls >= from_call else said

    return words


def samples(source: LiveMonitors) -> Iterator[LiveSample]:
    for second in (1, 2):
        counts = source.counts()
        kernel = json.dumps(kernel_line(second), separators=(",", ":")).encode() + b"\n"
        host = read_counters(HEADER + kernel).samples[0]
        yield LiveSample(kernel=kernel, host=host, vms=source.vms(), counts=counts)


JUDGE = Draft202012Validator(schema("top"))


def look(words: Words) -> list[float]:
    """Do all that `top` and `diagnose` do with a monitor, and return the IOPS of its disks."""
    with beside(words) as connection, Monitor(connection) as monitor:
        view = LiveMonitor(monitor, os.getpid(), paused_too=True)
        for disk in view.vm.disks:
            rings, seen = view.rings(disk.target), view.places(disk.target)
            assert all(len(one) < 700 for one in disk.unread)
            assert isinstance(rings, str | RingReader)
            if seen is not None:
                [seen.newest(number) for number in range(len(seen))]
        exits_of(monitor)
        source = LiveMonitors([view])
        before, after = samples(source)
        found = frame(before, after)
        assert found is not None
        document = json.loads(json.dumps(top_document(found), allow_nan=False))
        JUDGE.validate(document)
        written = io.StringIO()
        Console(file=written, width=100).print(TopText(found))
        assert re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", written.getvalue()) is None
        source.rings(next(iter(source.vms())).name, "data") if found.disks else None
        failed = [one.failed for one in source.vms() if one.failed]
        assert len("".join(failed)) < 600
        return [one.path.iops for one in found.disks]


ASKED = ("query-status", "query-name", "query-kvm", "query-block", "query-blockstats", "qom-get", "query-stats",
         "query-named-block-nodes", "x-debug-query-block-graph", "query-block-jobs", "x-query-virtio-status",
         "x-query-virtio-queue-status", "human-monitor-command")  # fmt: skip


def test_an_honest_one_is_read() -> None:
    assert look(counting()) != []


def test_whatever_a_monitor_answers_is_read_rightly_or_refused_in_a_sentence() -> None:
    chance, refused, read = Random(SEED), list[str](), 0
    for number in range(MUTATIONS):
        words = lying(ASKED[number % len(ASKED)], chance)
        try:
            found = look(words)
        except RigError as error:
            refused.append(error.message)
        else:
            read += 1
            assert all(0 <= one < 2**63 for one in found)
    assert [one for one in refused if not re.fullmatch(r"[^\n]{10,600}", one)] == []
    assert len(refused) > MUTATIONS // 10, "the lies are told"
    assert read > MUTATIONS // 10, "what nobody reads may be anything"


@pytest.mark.parametrize("command", sorted({one["execute"] for one in RECORDED}))
def test_every_answer_that_is_read_is_checked(command: str) -> None:
    """QEMU's own answers pass, those of another type do not."""
    for one in RECORDED:
        if one["execute"] == command:
            assert read_answer(command, one["arguments"], one["return"]) == one["return"]
            wrong = [7.5] if isinstance(one["return"], dict) else [{"x": float("nan")}]
            with pytest.raises(ValueError, match=r"^[^\n]{1,200}$"):
                read_answer(command, one["arguments"], wrong)


def test_no_answer_is_read_that_is_not_described() -> None:
    """A command that is new gets no answer until its shape is written down."""
    assert read_answer("query-of-tomorrow", {}, {"a": 1}) is None
    asked = {
        name
        for path in (Path(__file__).parents[2] / "src/virtune/bench").rglob("*.py")
        for name in re.findall(
            r"""["']((?:x-)?query-[a-z-]+|qom-get|qom-list|human-monitor-command)["']""", path.read_text()
        )
    }
    asked.remove("query-nodes")  # an argument of query-blockstats
    assert len(asked) > 12
    assert {name for name in asked if not _described(name)} == set()


def _described(name: str) -> bool:
    try:
        return read_answer(name, {}, object()) is not None
    except ValueError:
        return True


@pytest.mark.parametrize(
    "line",
    [
        b'{"return": {}, "id": [1]}\n',
        b'["x"]\n',
        b"not JSON\n",
        b'{"return": ' + b"[" * 100_000 + b"\n",
        b'{"error": "no"}\n',
        b'{"return": "' + b"x" * 11 * 1024**2 + b'"}\n',
    ],
    ids=["id", "list", "text", "nested", "error", "11 MiB"],
)
def test_a_line_that_is_no_answer_ends_the_connection_with_its_reason(line: bytes) -> None:
    with beside(lambda *_: line) as connection, Monitor(connection) as monitor:  # noqa: SIM117
        with pytest.raises(RigError, match="cannot be read") as caught:
            monitor.execute("query-status")
    assert not isinstance(caught.value, MonitorEnded)
    assert len(caught.value.message) < 400


def bad(name: str) -> Words:
    """Answer rightly but to this command, whose answer is of another type."""
    honest = counting()
    return lambda command, arguments: "[7]" if command == name else honest(command, arguments)


@pytest.mark.parametrize("name", ["query-status", "query-blockstats"])
def test_top_shows_the_others_names_the_bad_one_and_ends_with_3(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with listening(tmp_path / "good.qmp", counting()), listening(tmp_path / "bad.qmp", bad(name)):
        sockets = [word for one in ("good.qmp", "bad.qmp") for word in ("--qmp", str(tmp_path / one))]
        status = run(["top", *sockets, "--once", "--interval", "0.2s"])
    said = capsys.readouterr()
    assert status == 3
    assert "virtune:data" in said.out
    named = "bad.qmp" if name == "query-status" else "virtune ("
    for text in (said.out, said.err):
        assert named in text.replace("\n", "")
        assert f"`{name}` is not as QEMU answers" in " ".join(text.split())


def test_a_bad_one_alone_is_a_sentence_in_every_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with listening(tmp_path / "bad.qmp", bad("query-block")) as path:
        for verb in (("top", "--once"), ("diagnose", "--seconds", "1")):
            assert run([*verb, "--qmp", str(path)]) == 3
            assert "bad.qmp: the answer to `query-block`" in capsys.readouterr().err.replace("\n", "")
