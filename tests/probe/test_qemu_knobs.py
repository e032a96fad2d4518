# SPDX-License-Identifier: Apache-2.0
"""Asking the installed QEMU: real programs answer, and whatever is wrong with one becomes a reason."""

import json
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from random import Random

import pytest
from tests.conftest import User
from tests.stub_monitor import changed

from virtune.model.knob import Answer, AskDevice, Knob, Number, Support, Switch
from virtune.model.knobs import BY_ID, KNOBS
from virtune.probe.qemu_knobs import DAEMON, EMULATORS, ask
from virtune.shell import run

MISSING = "no-such-qemu"
AIO = BY_ID["disk.aio"]
QUEUES = BY_ID["device.num_queues"]


@pytest.fixture
def daemon() -> str:
    if shutil.which(DAEMON) is None:
        pytest.skip(f"install qemu-system-common to ask a real {DAEMON}")
    return DAEMON


@pytest.fixture
def emulator() -> str:
    for program in EMULATORS:
        if shutil.which(program):
            return program
    pytest.skip("install qemu-system-x86 to ask a real system emulator")


def script(path: Path, *lines: str) -> str:
    """A program of our own that stands where QEMU would."""
    path.write_text("\n".join(("#!/bin/sh", *lines)) + "\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.real
def test_the_daemon_lists_the_values_that_it_was_built_with(daemon: str) -> None:
    (answer, other) = ask([AIO], daemon=daemon, emulators=[MISSING])["disk.aio"]
    assert answer.standing is Support.VALUES
    assert {"threads", "native"} <= set(answer.values) <= {"threads", "native", "io_uring"}
    assert re.fullmatch(rf"{DAEMON} \d+\.\d+\.\d+", answer.program)
    assert other.standing is Support.NOT_ASKED
    assert f"`{MISSING}` is not installed" in other.detail


@pytest.mark.real
def test_the_daemon_has_every_knob_that_virtune_turns(daemon: str) -> None:
    # a guest's device is the emulator's business, its bus is no single question, where a file lies is nobody's knob,
    # and a filesystem is made by the host and mounted by the guest
    turned = [knob for knob in KNOBS if knob.place and knob.id.startswith(("disk.", "export."))]
    turned = [knob for knob in turned if knob.id not in ("disk.place", "disk.filesystem")]
    answers = ask(turned, daemon=daemon, emulators=[MISSING])
    assert set(answers) == {knob.id for knob in turned}
    absent = [name for name, given in answers.items() if given[0].standing is Support.ABSENT]
    assert not absent


@pytest.mark.real
def test_the_emulator_answers_for_devices_and_for_objects(emulator: str) -> None:
    answers = ask([QUEUES, BY_ID["iothread.poll_max_ns"]], daemon=MISSING, emulators=[emulator])
    (queues,) = answers["device.num_queues"]
    assert queues.standing is Support.EXISTS
    assert queues.detail == "virtio-blk-pci num-queues: uint16, default 65535"
    assert [answer.standing for answer in answers["iothread.poll_max_ns"]] == [Support.NOT_ASKED, Support.EXISTS]


@pytest.mark.real
def test_no_question_of_the_table_is_left_without_a_clear_answer(daemon: str, emulator: str) -> None:
    answers = ask(KNOBS, daemon=daemon, emulators=[emulator])
    assert set(answers) == {knob.id for knob in KNOBS if knob.ask is not None}
    for knob in KNOBS:
        for answer in answers.get(knob.id, ()):
            assert answer.standing is not Support.NOT_ASKED, knob.id
            assert answer.detail
            assert bool(answer.values) == (answer.standing is Support.VALUES)


@pytest.mark.real
def test_defaults_of_the_table_are_those_that_qemu_names(daemon: str, emulator: str) -> None:
    """Where QEMU names the default of a switch or a count, the table says the same."""
    answers = ask(KNOBS, daemon=daemon, emulators=[emulator])
    # The property is `kvm`, and hiding it is its opposite.
    compared = [knob for knob in KNOBS if isinstance(knob.ask, AskDevice) and knob.id != "cpu.kvm_hidden"]
    wrong = [knob.id for knob in compared for answer in answers[knob.id] if not same_default(knob, answer)]
    assert not wrong


def same_default(knob: Knob, answer: Answer) -> bool:
    named = re.search(r", default (\S+)$", answer.detail)
    if named is None or knob.default.startswith("(") or not isinstance(knob.domain, Switch | Number):
        return True
    return knob.default == named[1]


@pytest.mark.real
def test_a_comma_in_the_way_to_a_socket_does_no_harm(
    daemon: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / "a,b=c d"
    odd.mkdir()
    # The environment is read once in the life of a process, so a new process has to ask.
    monkeypatch.setenv("TMPDIR", str(odd))
    done = run([sys.executable, "-m", "virtune", "host", "knobs", "disk.aio", "--json"], timeout_seconds=120)
    (knob,) = json.loads(done.stdout)["knobs"]
    assert knob["answers"][0]["standing"] == "values"


def test_nobody_is_started_when_there_is_nothing_to_ask(tmp_path: Path) -> None:
    witness = tmp_path / "started"
    program = script(tmp_path / "qemu", f"touch {witness}")
    assert ask([BY_ID["host.aio_max_nr"]], daemon=program, emulators=[program]) == {}
    assert not witness.exists()


def test_the_daemon_is_not_asked_for_devices() -> None:
    (answer,) = ask([QUEUES], daemon=MISSING, emulators=[MISSING])["device.num_queues"]
    assert answer.program == MISSING


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (("exit 0",), "it ended before it answered"),
        (("echo 'unknown option' >&2", "exit 1"), "unknown option"),
        (("exec sleep 20",), "no end after"),
        (('for word; do case $word in pipe,*) echo nonsense >"${word##*path=}.out";; esac; done',), "does not speak"),
        (('for word; do case $word in pipe,*) echo 7 >"${word##*path=}.out";; esac; done',), "does not speak"),
    ],
    ids=["silent", "refuses", "hangs", "nonsense", "no-message"],
)
def test_what_is_wrong_with_a_program_becomes_the_reason(tmp_path: Path, lines: tuple[str, ...], reason: str) -> None:
    program = script(tmp_path / "qemu", *lines)
    patience = 0.5 if reason == "no end after" else 60  # on a busy host a script takes its time to end as well
    for answer in ask([AIO], daemon=program, emulators=[program], timeout_seconds=patience)["disk.aio"]:
        assert answer.standing is Support.NOT_ASKED
        assert reason in answer.detail


def test_what_a_killed_question_left_is_found_by_the_next_run(user: User) -> None:
    place = Path(tempfile.mkdtemp(prefix="va", dir="/var/tmp"))  # a longer name leaves no room for sockets
    user.env["TMPDIR"] = str(place)
    program = script(user.home / "qemu", "kill -9 $PPID")
    user.run("host", "knobs", "disk.aio", "--emulator", program, status=-signal.SIGKILL)
    (left,) = place.iterdir()
    assert left.name.startswith("virtune-run-ask-")
    assert f"removed directory {left}" in user.run("host", "clean").stdout
    place.rmdir()


def test_a_program_whose_schema_is_none_is_a_reason_and_never_an_error(tmp_path: Path) -> None:
    """Members of a wrong type or left out, types that are made of themselves."""
    chance = Random(7)
    greeting = {"QMP": {"version": {"qemu": {"major": 7, "minor": 2, "micro": 0}}}}
    schema = [
        {"name": "blockdev-add", "meta-type": "command", "arg-type": "1"},
        {"name": "1", "meta-type": "object", "members": [{"name": "aio", "type": "2", "features": ["fdset"]}],
         "variants": [{"case": "file", "type": "1"}, {"case": "raw", "type": "3"}]},
        {"name": "2", "meta-type": "enum", "members": [{"name": "threads"}], "values": ["threads"]},
        {"name": "3", "meta-type": "alternate", "members": [{"type": "3"}]},
    ]  # fmt: skip
    told, wrong = tmp_path / "told", 0
    program = script(tmp_path / "daemon", f'cat {told} > "${{2##*path=}}.out"')
    for _ in range(25):
        text = changed(schema, chance)
        told.write_text(f'{json.dumps(greeting)}\n{{"id": "query-qmp-schema", "return": {text}}}\n')
        (answer, _) = ask([AIO], daemon=program, emulators=[MISSING])["disk.aio"]
        wrong += answer.detail == "it does not speak QMP as QEMU does"
        assert all(isinstance(value, str) for value in answer.values)
    assert wrong > 5
