# SPDX-License-Identifier: Apache-2.0
"""Whatever goes wrong is one sentence and an exit code, and what is asked for without words is the help."""

import errno
import os
import signal
import subprocess
import sys
from typing import Any

import click
import pytest

from virtune.cli import VERBS, run
from virtune.cli.common.surroundings import failure_of
from virtune.model.errors import PreconditionError

VIRTUNE = (sys.executable, "-m", "virtune")


@pytest.mark.parametrize(
    ("error", "message", "hint", "code"),
    [
        (PreconditionError("no", hint="so"), "no", "so", 3),
        (click.ClickException("Broken. "), "broken", "None", 1),
        (KeyboardInterrupt(), "interrupted", "None", 130),
        (OSError(errno.ENOENT, "No such file or directory", "/x\x1b[2J"), r"/x\?\[2J: no such file or", "None", 1),
        (OSError(errno.EMFILE, "Too many open files"), "too many files are open", "ulimit -n", 1),
        (OSError(errno.ENOENT, "No such file or directory"), "^no such file or directory$", "None", 1),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "no more processes", "ulimit -u", 1),
        (OSError(errno.ENOSPC, "No space left on device"), "cannot write the output: no space left", "None", 1),
        (OSError(errno.EFBIG, "File too large", "a.db"), "a.db: a file would become larger", "ulimit -f", 1),
        (RuntimeError("can't start new thread"), "no more processes or threads", "ulimit -u", 1),
        (MemoryError(), "out of memory", "ulimit -v", 1),
        (ImportError("libx.so: failed to map segment from shared object"), "out of memory", "ulimit -v", 1),
        (ImportError("no module named x"), "internal error: ImportError: no module", "VIRTUNE_DEBUG=1", 1),
        (RecursionError("x"), "nested too deeply", "None", 1),
        (KeyError("arm"), "internal error: KeyError: 'arm'", "VIRTUNE_DEBUG=1", 1),
    ],
)
def test_every_exception_is_a_sentence(error: BaseException, message: str, hint: str, code: int) -> None:
    failure = failure_of(error)
    assert failure is not None
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(failure.message)
    assert hint in str(failure.hint)
    assert failure.code == code


INTERRUPTED = """
import os, signal, time
from pydantic_core import SchemaSerializer, core_schema
from virtune.cli.common.surroundings import failure_of, prepare
prepare(debug=False)
class Interrupted(type):
    def __getattribute__(cls, name):
        if name == "__name__":
            signal.raise_signal(signal.SIGINT)
        return super().__getattribute__(name)
class Dropped:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
try:
    {what}
    print("lost")
except (Exception, KeyboardInterrupt) as error:
    print(type(error).__name__, failure_of(error).code)
"""


@pytest.mark.parametrize(
    ("what", "error"),
    [
        (('model = Interrupted("X", (), {}); fields = core_schema.model_fields_schema({}); '
         'SchemaSerializer(core_schema.tuple_schema([core_schema.model_schema(model, fields)]))'), "SchemaError"),
        ("one = Dropped(); del one; time.sleep(600)", "KeyboardInterrupt"),
        ("time.sleep(0); os.kill(os.getpid(), signal.SIGINT); time.sleep(600)", "KeyboardInterrupt"),
    ],
    ids=["a-schema-is-built", "python-drops-it", "as-usual"],
)  # fmt: skip
def test_an_interruption_is_one_wherever_it_comes(what: str, error: str) -> None:
    script = INTERRUPTED.replace("{what}", what)
    done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == (f"{error} 130\n", "")


def test_a_reader_that_went_away_is_no_failure() -> None:
    assert failure_of(BrokenPipeError(errno.EPIPE, "Broken pipe")) is None


@pytest.mark.parametrize("words", [[], ["compare", "study"], ["host"], ["host", "guest"], ["help"], ["help", "host"]])
def test_a_group_without_a_word_prints_its_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"Usage: virtune {' '.join(word for word in words if word != 'help')}")
    assert ("\nMeasure:\n" if words in ([], ["help"]) else "\nCommands:\n") in out
    assert err == ""


def test_a_verb_that_was_imported_hides_nothing_of_pythons(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever calls more than one command in a process: `virtune.cli.list` once took the place of `list`."""
    for verb in VERBS:
        assert run([*verb.split(), "--help"]) == 0
    assert run([]) == 0
    assert "Commands:\n" in capsys.readouterr().out


def test_help_and_version_have_their_usual_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "compare"]) == 0
    assert capsys.readouterr().out.startswith("Usage: virtune compare ")
    assert run(["-V"]) == 0
    assert capsys.readouterr().out.startswith("virtune, version ")
    assert run(["help", "comprae"]) == 2
    assert "did you mean `virtune compare`?" in capsys.readouterr().err


def test_what_nobody_foresaw_is_a_sentence_and_a_traceback_only_on_request(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong: list[Any] = [3]  # no shell can hand over a number
    assert run(wrong) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: internal error: ")
    assert "VIRTUNE_DEBUG=1" in err
    monkeypatch.setenv("VIRTUNE_DEBUG", "1")
    with pytest.raises((AttributeError, TypeError)):
        run(wrong)


def piped(words: tuple[str, ...], *, script: str) -> "subprocess.CompletedProcess[str]":
    """Run virtune from a shell that does something to its streams."""
    line = script.format(virtune=" ".join((*VIRTUNE, *words)))
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("script", "says", "status"),
    [
        ("{virtune} > /dev/full", "error: cannot write the output: no space left", 1),
        ("{virtune} >&-", "error: cannot write the output: bad file descriptor", 1),
        ("{virtune} >&- 2>&-", "", 1),
        ("{virtune} 2>&- <&- > /dev/null", "", 0),
    ],
)
def test_streams_that_take_nothing(script: str, says: str, status: int) -> None:
    done = piped(("host", "knobs"), script=script)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(says)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


@pytest.mark.parametrize(
    ("limit", "says", "status"),
    [
        ("-v 200000", "error: `ulimit -v` allows 195 MiB of memory, and virtune needs 256", 3),
        ("-d 100000", "error: `ulimit -d` allows 97 MiB of memory, and virtune needs 160", 3),
        ("-v 400000", "", 0),
        ("-d 300000", "", 0),
    ],
)
def test_too_little_memory_is_said_before_anything_is_loaded(limit: str, says: str, status: int) -> None:
    done = piped(("host", "knobs"), script=f"ulimit {limit}; {{virtune}} > /dev/null")
    assert (done.returncode, done.stderr.strip()) == (status, says)


def test_a_host_that_is_no_pc_is_told_so_before_anything_is_installed_or_built_for_a_guest() -> None:
    words = ["setarch", "i686", *VIRTUNE, "compare", "measure", "--rig", "qemu", "--set", "guest.system=bare"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    said = "error: virtune's own guests are for x86_64 only, and this host is i686\n\nhint: `--rig vhost-user` "
    assert said in done.stderr
    assert "installed" not in done.stderr


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    done = piped(("host", "knobs"), script="{virtune} | head -n 1")
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


SLOW = """
import os, select, signal, sys, time
from virtune.cli.common.surroundings import prepare
prepare(debug=False)
try:
    print("ready", flush=True)
    time.sleep(30)
except KeyboardInterrupt:
    print("first", flush=True)
    # in turns: Python takes a signal between two calls, and one that comes just before a call only after it
    while not select.select([sys.stdin], [], [], 0.1)[0]:
        pass
    print("cleaned up", flush=True)
"""


@pytest.mark.parametrize(("presses", "out", "status"), [(2, "cleaned up\n", 0), (3, "", 130)])
def test_a_second_interrupt_does_not_stop_the_cleaning_up_and_a_third_does(
    presses: int, out: str, status: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SLOW], text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "first\n"
        for press in range(2, presses + 1):
            process.send_signal(signal.SIGINT)
            if press == 2:  # two at once may be taken for one
                assert process.stderr.readline().startswith("stopping and cleaning up; Ctrl-C once more")
        if presses == 2:  # the cleaning up ends when its input does; a third interrupt ends it before
            process.stdin.close()
        assert process.stdout.read() == out
        assert "Traceback" not in process.stderr.read()
        assert process.wait(60) == status
