# SPDX-License-Identifier: Apache-2.0
"""The words of the command line: help, mistakes, exit codes; never a traceback."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from tests.conftest import User

from virtune.cli import EARLIER, VERBS, cli, run

_HEAVY = {"rich", "pydantic", "sqlalchemy", "numpy", "scipy", "qemu.qmp", "asyncio"}


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        ("--help", _HEAVY | {"virtune.flows", "subprocess"}),
        (
            "compare --help",
            _HEAVY
            | {
                "virtune.shell",
                "subprocess",
                "virtune.model.evidence",
                "virtune.model.counters",
                "virtune.model.stack",
            },
        ),
        ("audit --help", _HEAVY),
    ],
)
def test_help_loads_nothing_heavy(words: str, heavy: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "virtune", *words.split()],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "Usage: virtune" in done.stdout
    loaded = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert "click" in loaded
    assert not heavy & loaded


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_that_fits(verb: str, user: User) -> None:
    ran = user.run(*verb.split(), "--help")
    assert ran.stdout.startswith(f"Usage: virtune {verb}")
    assert all(len(line) <= 100 for line in ran.stdout.splitlines())


@pytest.mark.parametrize(
    ("words", "status", "sentence", "hint"),
    [
        ("comprae", 2, "no command 'comprae'", "did you mean `virtune compare`?"),
        ("compare --vary disk.aoi=native,threads", 2, "there is no knob 'disk.aoi'", "`disk.aio`"),
        ("compare --vary disk.aio=native,uring", 2, "'uring' is not one of threads, native, io_uring", "`io_uring`"),
        ("compare --vary disk.aio=native", 2, "1 arm to compare: two are needed", "--vary"),
        ("compare", 2, "no arms to compare: two are needed", "--arm"),
        ("compare --arm a:disk.aio=native,disk.cache=writeback --arm b:", 2, "aio=native needs O_DIRECT", ""),
        ("compare --arm a: --arm b: --baseline c", 2, "'c'", ""),
        ("compare --arm a: --arm b: --metric iosp", 2, "no metric 'iosp'", "`iops`"),
        ("compare --arm a: --arm b: --workload randred-4k", 2, "'randred-4k'", "`randread-4k`"),
        ("compare --arm a: --arm b: --workload rw=randread,filename=/dev/sda", 2, "filename", ""),
        ("compare --arm a: --arm b: --workload rw=randread,ioengine=exec", 2, "exec", ""),
        ("compare --arm a: --arm b: --rounds 0", 2, "'--rounds'", "--help"),
        ("compare --arm a: --arm b: --seconds soon", 2, "not a time", "--help"),
        ("compare --arm a: --arm b: --span 4k --rounds 1", 2, "not a size|option|below 8 MiB", ""),
        ("compare nowhere.toml", 2, "cannot read nowhere.toml: No such file", ""),
        ("compare last --fail-if iops<-5%", 2, "cannot read last: No such file", "`virtune show`"),
        ("compare --vary guest.nr_requests", 2, "'guest.nr_requests' is not knob=value", "=..., 4 or more"),
        ("compare --set host.scsi_queue_depth=64", 2, "queue_depth is documented", "of host it can set host.halt"),
        ("compare measure --target /dev/null", 3, "neither a file nor a block device", ""),
        ("compare measure --target nowhere.raw", 3, "cannot use .*nowhere.raw: No such file", ""),
        ("compare measure --set rig=metal --set disk.aio=native", 2, "", ""),
        ("show nothing", 2, "no study 'nothing'", "virtune show list"),
        ("compare resume nothing", 2, "no study 'nothing'", "virtune show list"),
        ("explain nowhere.json", 2, "no file and no study 'nowhere.json'", ""),
        ("host knobs disk.aoi", 2, "there is no knob 'disk.aoi'", "`disk.aio`"),
        ("host probe --no-such", 2, "no such option", "--help"),
    ],
)
def test_a_mistake_is_one_sentence_a_hint_and_a_code(
    words: str, status: int, sentence: str, hint: str, user: User
) -> None:
    import re

    if "--span" in words:
        user.scratch = user.home
        command = [sys.executable, "-m", "virtune", *words.split()]
        done = subprocess.run(command, capture_output=True, text=True, env=user.env, cwd=user.home)
        code, stderr, stdout = done.returncode, done.stderr, done.stdout
    else:
        ran = user.run(*words.split(), status=None)
        code, stderr, stdout = ran.status, ran.stderr, ran.stdout
    assert code == status, stderr
    lines = stderr.splitlines()
    assert lines[0].startswith("error: ")
    assert re.search(sentence, lines[0], re.IGNORECASE), lines[0]
    assert not lines[0].endswith(".")
    assert hint in stderr
    assert len(lines) <= 4
    assert stdout == ""


def test_scratch_that_cannot_be_made_is_a_precondition(user: User, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "virtune", "compare", "measure", "--scratch", str(tmp_path / "file" / "x")]
    done = subprocess.run(command, capture_output=True, text=True, env=user.env)
    assert done.returncode == 3
    assert "for scratch files" in done.stderr


def test_a_reader_that_goes_away_is_no_error(user: User) -> None:
    command = f"{sys.executable} -m virtune host knobs --no-ask | head -1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, env=user.env)
    assert done.stderr == ""
    assert done.returncode == 0


def test_colours_only_for_a_terminal(user: User) -> None:
    env = {name: value for name, value in user.env.items() if name != "NO_COLOR"}
    done = subprocess.run(
        [sys.executable, "-m", "virtune", "host", "knobs", "--no-ask"], capture_output=True, env=env
    )
    assert b"\x1b[" not in done.stdout
    assert os.environ.get("FORCE_COLOR") is None


@pytest.mark.parametrize(
    "words", ["knobs", "knobs disk.aio", "probe", "list", "measure --help", "knobs disk.ai\u00f6"]
)
def test_no_locale_costs_a_result(words: str, user: User) -> None:
    user.env |= {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ran = user.run(*words.split(), status=None)
    assert (ran.stdout + ran.stderr).isascii()
    assert ran.status in (0, 2), ran.stderr


def test_a_mount_that_the_locale_cannot_encode_costs_no_facts(user: User, tmp_path: Path) -> None:
    place = tmp_path / "\u00fc\u20ac"
    place.mkdir()
    # a source in /dev and no number of a device, as FUSE and btrfs have it
    subprocess.run(["mount", "-t", "tmpfs", "/dev/none", place], check=True)
    try:
        test_no_locale_costs_a_result("host probe", user)
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize("option", ["--scratch", "--store", "--target"])
def test_a_name_that_is_not_text_is_refused_before_anything_is_made(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--rig", "simulated"] if option == "--store" else []
    assert run(["compare", "measure", *words, option, os.fsdecode(os.fsencode(tmp_path) + b"/\xff")]) == 2
    assert r"\udcff' is not text in UTF-8" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("earlier", sorted(EARLIER))
def test_a_verb_s_earlier_name_still_does_its_work_and_says_the_new_one(
    earlier: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*EARLIER[earlier].split(), "--help"]) == 0
    now = capsys.readouterr()
    assert run([earlier, "--help"]) == 0
    assert capsys.readouterr() == (now.out, f"`virtune {earlier}` is now `virtune {EARLIER[earlier]}`\n")
    assert now.err == ""


def test_help_has_the_most_used_options_and_all_of_them_where_they_are_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run([]) == 0
    assert len(capsys.readouterr().out.splitlines()) <= 30
    assert run(["compare", "--help"]) == 0
    short = capsys.readouterr().out
    assert len(re.findall(r"^  --?[a-z]", short, re.MULTILINE)) == 12
    assert "compare measure" in short
    assert run(["compare", "--help-all"]) == 0
    long = capsys.readouterr().out
    more = re.search(r"--help-all` has (\d+) more", short)
    assert more is not None
    assert len(re.findall(r"^  --?[a-z]", long, re.MULTILINE)) == 12 + int(more[1]) + 2, "with --help and --help-all"


def test_the_shell_completes_verbs_and_their_options() -> None:
    complete = ShellComplete(cli, {}, "virtune", "_VIRTUNE_COMPLETE")
    assert [one.value for one in complete.get_completions(["compare"], "me")] == ["measure", "me"]
    assert [one.value for one in complete.get_completions(["compare", "measure"], "--round")] == ["--rounds"]
    assert {"fix", "fleet"} <= {one.value for one in complete.get_completions([], "f")}
