# SPDX-License-Identifier: Apache-2.0
"""Nothing outlives virtune: the guard ends, unmounts and removes what a run started, however the run ended."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.leftovers import left_over
from virtune import warden
from virtune.shell import Child, CommandError, Warden, run

START = """
    import os, sys, time
    from virtune.shell import Warden
    with Warden({run!r}) as found:
        child = found.start(["sh", "-c", "setsid sleep 300 & exec sleep 300"], name="child")
        print(found.run_id, flush=True)
        time.sleep(0.2)
        {then}
"""


def start(run_id: str, then: str) -> "subprocess.Popen[str]":
    script = textwrap.dedent(START.format(run=run_id, then=then))
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def marked(run_id: str) -> list[int]:
    return [pid for pid, _ in warden.marked(run_id, warden.run_directory(run_id))]


@pytest.mark.parametrize(
    ("then", "number"),
    [
        ("pass", None),
        ("raise SystemExit(3)", None),
        ("time.sleep(60)", signal.SIGKILL),
        ("time.sleep(60)", signal.SIGINT),
    ],
)
def test_children_and_theirs_are_gone_whatever_the_end(then: str, number: signal.Signals | None) -> None:
    process = start(f"w{os.getpid()}", then)
    assert process.stdout is not None
    run_id = process.stdout.readline().strip()
    if number is not None:
        assert eventually(lambda: len(marked(run_id)) >= 2)
        process.send_signal(number)
    process.communicate(timeout=90)
    assert eventually(lambda: not marked(run_id))
    assert eventually(lambda: not warden.run_directory(run_id).exists())


def test_when_the_guard_is_killed_too_the_run_is_found_abandoned_and_swept() -> None:
    process = start(f"w{os.getpid()}-both", "time.sleep(60)")
    assert process.stdout is not None
    run_id = process.stdout.readline().strip()
    guard = subprocess.run(["pgrep", "-f", f"warden.py {run_id} "], capture_output=True, text=True, check=True)
    for pid in (int(guard.stdout), process.pid):
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=90)
    directory = warden.run_directory(run_id)
    assert marked(run_id)
    assert directory in warden.abandoned()
    removed = warden.sweep(run_id, directory)
    assert any("sleep" in line for line in removed)
    assert f"directory {directory}" in removed
    assert not marked(run_id)
    assert not directory.exists()


def test_a_child_that_has_not_begun_its_program_is_ended_too_and_a_person_s_shell_is_not() -> None:
    # between fork and exec a child has no mark, but it is in the run's directory and still the Python that forked it
    directory = warden.run_directory(f"w{os.getpid()}-fork")
    os.close(warden.make_run_directory(directory, pid=os.getpid()))
    unborn = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], cwd=directory)
    person = subprocess.Popen(["sleep", "60"], cwd=directory)
    elsewhere = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert eventually(lambda: Path(f"/proc/{unborn.pid}/exe").samefile("/proc/self/exe"))
        warden.sweep(warden.run_id_of(directory), directory)
        assert unborn.wait(60) == -signal.SIGTERM
        assert person.poll() is None
        assert elsewhere.poll() is None
    finally:
        for process in (unborn, person, elsewhere):
            process.kill()
            process.wait()


def test_a_run_that_lives_is_not_abandoned() -> None:
    with Warden(f"w{os.getpid()}-lives") as found:
        assert found.directory.exists()
        assert found.directory not in warden.abandoned()
    assert not found.directory.exists()


IN_A_CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
"""A process of another pid namespace: none of the numbers that it knows are ours."""


def test_a_run_in_another_pid_namespace_lives_while_it_does() -> None:
    script = textwrap.dedent(START.format(run=f"w{os.getpid()}-contained", then="time.sleep(60)"))
    with subprocess.Popen(
        [*IN_A_CONTAINER, sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as inside:
        assert inside.stdout is not None
        run_id = inside.stdout.readline().strip()
        directory = warden.run_directory(run_id)
        said = json.loads((directory / "owner").read_text())
        assert warden.start_time(said["pid"]) != said["started"]  # by its number it looks as if it were gone
        assert directory not in warden.abandoned()
        with Warden(f"w{os.getpid()}-outside"):  # every run begins by sweeping what is abandoned
            assert marked(run_id)
        assert directory.exists()
        inside.kill()
    assert eventually(lambda: not marked(run_id))
    if directory.exists():  # its guard went with the namespace
        assert eventually(lambda: directory in warden.abandoned())
        warden.sweep(run_id, directory)


def test_a_run_on_a_filesystem_without_locks_is_known_by_its_process() -> None:
    directory = warden.run_directory(f"w{os.getpid()}-lockless")
    os.close(warden.make_run_directory(directory, pid=os.getpid()))
    owner = directory / "owner"
    said = json.loads(owner.read_text())
    assert directory not in warden.abandoned()
    for gone in ({"pid": 1, "started": 2}, {"started": 7}, {"boot": "another"}):
        owner.write_text(json.dumps(said | gone))
        assert directory in warden.abandoned(), gone
    assert warden.sweep(warden.run_id_of(directory), directory) == [f"directory {directory}"]


def test_a_guard_that_was_stopped_is_ended_and_its_work_is_done() -> None:
    run = Warden(f"w{os.getpid()}-stopped", guard_seconds=0.3)
    with run:
        child = run.start(["sh", "-c", "setsid sleep 300 & exec sleep 300"], name="child")
        assert eventually(lambda: len(marked(run.run_id)) == 2)
        assert run._guard is not None
        run._guard.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
    assert time.monotonic() - begun < 60
    assert child.poll() is not None
    assert not marked(run.run_id)
    assert not run.directory.exists()
    assert run._guard.wait(60) == -signal.SIGKILL


@pytest.mark.parametrize(("event", "end"), [("open", "owner"), ("fcntl.flock", ""), ("os.rename", "-unborn")])
def test_a_run_that_is_being_made_is_not_swept_and_its_remains_are_later(event: str, end: str) -> None:
    directory = warden.run_directory(f"w{os.getpid()}-unborn")
    script = f"""
import os, sys
from pathlib import Path
from virtune import warden
def die(event, arguments):
    if event == {event!r} and str(arguments[0]).endswith({end!r}):
        os.kill(os.getpid(), 9)
sys.addaudithook(die)
warden.make_run_directory(Path({str(directory)!r}), pid=os.getpid())
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    (left,) = directory.parent.glob(f"*{directory.name}")
    try:
        if event != "os.rename":  # without a record its age is all that is known of it
            assert left not in warden.abandoned()
            os.utime(left, (1, 1))
        assert left in warden.abandoned()
        assert warden.sweep(warden.run_id_of(left), left) == [f"directory {left}"]
    finally:
        shutil.rmtree(left, ignore_errors=True)


TRACE = """
import ctypes, sys, time
assert ctypes.CDLL(None, use_errno=True).ptrace(0x4206, int(sys.argv[1]), None, None) == 0
print("traced", flush=True)
time.sleep(60)
"""
"""PTRACE_SEIZE: a traced process that is killed is not gone before its tracer has taken note; this one never does."""


def test_a_process_that_does_not_end_even_when_killed_is_said() -> None:
    with Warden(f"w{os.getpid()}-stuck") as found:
        child = found.start(["sleep", "300"], name="stuck")
        with subprocess.Popen([sys.executable, "-c", TRACE, str(child.pid)], stdout=subprocess.PIPE) as tracer:
            assert tracer.stdout is not None
            assert tracer.stdout.readline() == b"traced\n"
            with pytest.raises(CommandError, match=rf"process {child.pid} \(sleep\) does not end even when killed"):
                child.end(killed_seconds=0.5)
            tracer.kill()
        assert child.end() < 0


def test_nobody_else_reads_a_run_s_directory() -> None:
    with Warden(f"w{os.getpid()}-mode") as found:
        assert found.directory.stat().st_mode & 0o077 == 0


def test_a_process_that_ignores_every_request_is_killed() -> None:
    with Warden(f"w{os.getpid()}-deaf") as found:
        script = "import signal,time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(300)"
        child = found.start([sys.executable, "-c", script], name="deaf")
        assert eventually(lambda: Path(child.log).stat().st_size > 0)
        assert child.end(signal.SIGTERM) == -signal.SIGKILL


def test_a_command_that_does_not_end_is_ended_with_a_sentence() -> None:
    with pytest.raises(CommandError, match=r"no end after 0.2 s: sleep 30"):
        run(["sleep", "30"], timeout_seconds=0.2)


def test_a_command_that_prints_without_end_is_ended_with_a_sentence() -> None:
    begun = time.monotonic()
    with pytest.raises(CommandError, match=r"more than 64 MiB were printed by: yes"):
        run(["yes"], timeout_seconds=120)
    with pytest.raises(CommandError, match=r"no end after 0.5 s: sh -c"):
        run(["sh", "-c", "sleep 90 & sleep 90"], timeout_seconds=0.5)  # its child keeps the pipe open
    assert time.monotonic() - begun < 60


def test_a_command_reads_what_it_is_given_and_both_its_streams_are_read() -> None:
    long = "x" * 300_000 + "\n"
    done = run(["sh", "-c", "cat; cat /proc/self/status >&2; exit 3"], timeout_seconds=120, stdin=long, ok=(3,))
    assert (done.status, done.stdout) == (3, long)
    assert "VmPeak" in done.stderr
    assert run(["cat"], timeout_seconds=120).stdout == ""


def test_the_last_words_of_a_log_without_end_are_read_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.truncate(2**40)  # a hole: whoever reads it all is killed
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast words\n")
    with subprocess.Popen(["true"]) as process:
        assert Child(process, ["true"], log).last_words() == "last words"
        log.unlink()
        log.symlink_to("/dev/zero")
        assert Child(process, ["true"], log).last_words() is None


def test_a_command_that_fails_is_shown_as_it_can_be_pasted() -> None:
    with pytest.raises(CommandError, match=r"exit 2: ls '/no such place'") as caught:
        run(["ls", "/no such place"], timeout_seconds=120)
    assert caught.value.hint is not None
    assert "No such file" in caught.value.hint


@contextlib.contextmanager
def exported(image: Path, point: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A FUSE export of a QEMU, as a run has it; killed, it leaves its mount."""
    point.touch()
    words = ["--blockdev", f"file,node-name=d,filename={image}"]
    words += ["--export", f"fuse,id=e,node-name=d,mountpoint={point},writable=on"]
    with subprocess.Popen(["qemu-storage-daemon", *words]) as daemon:
        try:
            assert eventually(lambda: point.stat().st_dev != point.parent.stat().st_dev, seconds=20)
            yield daemon
        finally:
            daemon.kill()
            subprocess.run(["umount", "-l", point], check=False, capture_output=True)


def test_an_export_of_a_run_is_taken_off_under_any_name_and_what_is_not_one_stays(tmp_path: Path) -> None:
    precious, image = tmp_path / "precious", tmp_path / "image"
    precious.mkdir()
    (precious / "data").write_text("all I have")
    image.write_bytes(bytes(1 << 20))
    directory = left_over(tmp_path / "with \u00fcn\u00efcode \\ and blank")
    point, inner = directory / "mount", directory / "mine"
    inner.mkdir()
    subprocess.run(["mount", "--bind", precious, inner], check=True)
    try:
        with exported(image, point):
            assert warden.mounts_below(directory) == [str(point)]
            assert warden.sweep("nobody", directory) == [f"mount {point}"]
            assert warden.mounts_below(directory) == []
            assert (inner / "data").read_text() == "all I have"
    finally:
        subprocess.run(["umount", "-l", inner], check=False, capture_output=True)
    assert warden.sweep("nobody", directory) == [f"directory {directory}"]
    assert (precious / "data").read_text() == "all I have"


def test_a_place_for_temporary_files_that_sockets_cannot_bear_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "from virtune import warden; print(warden.run_directory('x'))"
    for name in ("a,b", "l" * 80):
        place = tmp_path / name
        place.mkdir()
        monkeypatch.setenv("TMPDIR", str(place))
        said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert said.stdout.startswith("/tmp/virtune-run-x")


IMPORTS = "from pathlib import Path; from virtune import warden"


def guard_of(run_id: str) -> int:
    """The pid of a run's guard."""
    found = subprocess.run(["pgrep", "-f", f"warden.py {run_id} "], capture_output=True, text=True, check=True)
    return int(found.stdout)


def test_a_guard_outlives_whatever_ends_the_rest(tmp_path: Path) -> None:
    script = textwrap.dedent(START.format(run=f"w{os.getpid()}-group", then="time.sleep(60)"))
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        run_id = process.stdout.readline().strip()
        assert eventually(lambda: len(marked(run_id)) >= 2)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(guard_of(run_id), number)  # a service manager sends these to all it finds
        os.killpg(process.pid, signal.SIGKILL)  # and a shell to all of a job
    assert eventually(lambda: not marked(run_id))
    assert eventually(lambda: not warden.run_directory(run_id).exists())


def test_what_does_not_hear_the_guard_is_killed() -> None:
    deaf = "import signal,time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(300)"
    process = start(f"w{os.getpid()}-unheard", "time.sleep(60)")
    assert process.stdout is not None
    run_id = process.stdout.readline().strip()
    environ = dict(os.environ) | {warden.MARK: run_id}
    with subprocess.Popen([sys.executable, "-c", deaf], env=environ, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"deaf\n"
        process.kill()
        process.communicate()
        assert child.wait(60) == -signal.SIGKILL


def test_another_user_s_directory_is_not_ours_to_sweep() -> None:
    directory = left_over(warden.run_directory(f"w{os.getpid()}-theirs"))
    try:
        assert directory in warden.abandoned()
        os.chown(directory, 65534, 65534)
        assert directory not in warden.abandoned()
        warden.sweep(warden.run_id_of(directory), directory)
        assert directory.exists()
    finally:
        shutil.rmtree(directory)


def test_a_mount_that_is_in_use_is_taken_off_all_the_same(tmp_path: Path) -> None:
    directory, image = left_over(tmp_path / "run"), tmp_path / "image"
    image.write_bytes(bytes(1 << 20))
    with exported(image, directory / "mount"), (directory / "mount").open("rb"):
        assert f"mount {directory}/mount" in warden.sweep("nobody", directory)
        assert not directory.exists()


def test_below_a_mount_that_stays_nothing_is_deleted(tmp_path: Path) -> None:
    directory, image = left_over(tmp_path / "run"), tmp_path / "image"
    image.write_bytes(bytes(1 << 20))
    (directory / "log").write_text("said")
    with exported(image, directory / "mount"):
        # in a namespace of less rights the mounts that it was given cannot be taken off
        sweep = f"print(warden.sweep('x', Path({str(directory)!r})))"
        done = subprocess.run(
            ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-c", f"{IMPORTS}; {sweep}"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout == "[]\n"
        assert (directory / "log").exists()
    assert warden.sweep("nobody", directory) == [f"directory {directory}"]
