# SPDX-License-Identifier: Apache-2.0
"""A study under bad luck: killed, interrupted, lied to; nothing is lost and nothing is left."""

import contextlib
import os
import re
import shutil
import signal
import stat
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.conftest import CALM, User, end_started, eventually, marked_processes, require_both_ends
from tests.forkserver import Started

from virtune import warden

pytestmark = [pytest.mark.real, pytest.mark.once, pytest.mark.xdist_group("study")]

ARMS = ("--arm", "metal:rig=metal", "--arm", "daemon:disk.aio=native", "--arm", "fuse:disk.export=fuse")
SHORT = ("--rounds", "2", "--seconds", "0.5", "--ramp", "0.1", "-q")


def directories() -> list[Path]:
    return sorted(warden.run_directory("").parent.glob(f"{warden.run_directory('').name}*"))


def children(pid: int, name: str) -> list[int]:
    """Processes of that name below a process, or marked as of its run."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            if entry.name.isdigit() and (entry / "comm").read_text().strip() == name:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == pid:
                    found.append(int(entry.name))
    return found


def under_load(process: Started) -> int:
    """Wait until a load runs (fio is also asked for its engines, and fills scratch); returns fio's pid."""

    found: list[int] = []

    def load_runs() -> bool:
        for pid in children(process.pid, "fio"):
            with contextlib.suppress(OSError):  # it may end between our look at the list and at it
                if b"load.fio" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return bool(found)

    assert eventually(load_runs, seconds=90), process.poll()
    time.sleep(0.3)
    return found[-1]


def kill_with_guard(process: Started) -> None:
    """Kill a virtune and the guard that would end what it started; its other children are no Python programs."""
    names = {"python", "python3", "python3.11", Path(os.path.realpath("/proc/self/exe")).name[:15]}
    guards = [pid for name in names for pid in children(process.pid, name)]
    for pid in (*guards, process.pid):
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=90)


def nothing_is_left() -> bool:
    return marked_processes() == [] and directories() == []


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory, scratch_directory: Path) -> tuple[User, Any]:
    """A user with one study of three rigs, and its document."""
    user = User(tmp_path_factory.mktemp("user"), scratch_directory, once=True)
    return user, user.run("compare", *ARMS, *SHORT, "--report", str(user.home / "report.txt"), "--json").json()


def test_a_comparison_ends_in_everything_that_was_promised(compared: tuple[User, Any]) -> None:
    user, found = compared
    assert [arm["name"] for arm in found["arms"]] == ["metal", "daemon", "fuse"]
    for arm in found["arms"]:
        assert len(arm["rounds"]) == 2
        assert all(check["agrees"] in (True, None) for check in arm["in_force"])
        values = arm["workloads"][0]["values"]
        wanted = {"iops", "bandwidth", "latency.mean", "latency.p50", "latency.p99.9", "slat.mean", "clat.mean",
                  "cpu.load.usr", "cpu.load.sys"}  # fmt: skip
        assert wanted <= values.keys()
        require_both_ends(user, arm)
        assert values["iops"]["value"] > 0
    seen = {check["setting"]: check["found"] for check in found["arms"][1]["in_force"] if check["found"]}
    assert seen["disk.aio"] == "native"
    assert seen["O_DIRECT"] == "on"
    assert [c["baseline"] for c in found["comparisons"]] == ["metal", "metal"]
    assert {c["verdict"] for c in found["comparisons"]} == {"undecided"}  # two rounds can decide nothing
    text = (user.home / "report.txt").read_text()
    assert "\x1b" not in text
    for words in ("verdicts on IOPS", "single rounds", "how it was measured", "to repeat it", "Verified settings"):
        assert words in text
    assert nothing_is_left()


def test_a_study_is_listed_shown_again_and_its_evidence_is_kept(compared: tuple[User, Any]) -> None:
    user, first = compared
    again = user.run("show", "last", "--json").json()
    assert again["arms"] == first["arms"]
    assert again["comparisons"] == first["comparisons"]
    listed = user.run("show", "list", "--json").json()["studies"]
    assert [(study["id"], study["finished"], study["trials_done"]) for study in listed] == [
        (first["study"]["id"], True, 6)
    ]
    names = user.run("show", first["study"]["id"][:15], "--trial", "2").stdout
    for name in ("fio.json", "job.fio", "counters.jsonl", "command.txt", "rig.txt"):
        assert f"{name} " in names
    assert "no trial 99" in user.run("show", "last", "--trial", "99", status=1).stderr


def test_a_plan_file_asks_what_flags_ask(user: User) -> None:
    plan = user.home / "plan.toml"
    plan.write_text(
        'workload = ["rw=randread,bs=16k,iodepth=4"]\nrounds = 1\nseconds = "300ms"\nramp = "100ms"\nseed = 42\n'
        'baseline = "b"\n[[arm]]\nname = "a"\nrig = "metal"\n[[arm]]\nname = "b"\ndisk.aio = "io_uring"\n'
    )
    found = user.run("compare", str(plan), "--json", "-q").json()
    assert found["study"]["baseline"] == "b"
    assert found["study"]["seed"] == 42
    assert found["arms"][1]["stack"]["disk"]["aio"] == "io_uring"


def test_a_plan_file_s_job_files_lie_beside_it(user: User) -> None:
    folder = user.home / "plans"
    folder.mkdir()
    (folder / "mine.fio").write_text("[mine]\nrw=randread\nbs=4k\nnumber_ios=7\n")
    (folder / "plan.toml").write_text(
        'workload = "mine.fio"\nrounds = 1\nrig = "metal"\n[[arm]]\nname = "a"\n[[arm]]\nname = "b"\n'
    )
    found = user.run("compare", "plans/plan.toml", "--json", "-q").json()
    assert [workload["name"] for workload in found["study"]["workloads"]] == ["mine"]
    ran = user.run("compare", "plans/plan.toml", "--workload", "mine.fio", status=2)
    assert "cannot read mine.fio" in ran.stderr


def test_engines_of_a_job_file_are_compared_with_what_runs(user: User) -> None:
    own = "[global]\nrw=randread\ndirect=1\nioengine=libaio   # as the application does\n[data]\n"
    (user.home / "commented.fio").write_text(own)
    (user.home / "both.fio").write_text(f"{own}[wal]\nioengine=psync\n")
    words = (
        "--set",
        "rig=metal",
        "--rounds",
        "1",
        "--seconds",
        "1",
        "--ramp",
        "0.2",
        "--attempts",
        "3",
        "--json",
        "-q",
    )
    found = user.run("compare", "measure", "--workload", "both.fio", "--workload", "commented.fio", *words).json()
    (arm,) = found["arms"]
    seen = {(check["asked"], check["found"]) for check in arm["in_force"] if check["setting"] == "load.engine"}
    # psync leaves no trace, and neither does what was looked at too early on a busy machine
    assert ("libaio", "libaio") in seen
    assert seen <= {("libaio", "libaio"), ("libaio", None), ("libaio+psync", None)}


def interrupted(user: User, *words: str) -> None:
    """Start a study and stop it in its second trial."""
    process = user.start("compare", "measure", *words, *CALM, "--rounds", "3", "--seconds", "1", "--ramp", "0")
    assert process.stderr is not None
    for line in process.stderr:
        if "trial 1 of" in line:
            break
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=90)
    assert process.returncode == 130


def test_a_target_that_was_replaced_is_not_gone_on_with(user: User) -> None:
    target = user.home / "mine.raw"
    content = os.urandom(8 * 1024**2)
    target.write_bytes(content)
    os.sync()
    interrupted(user, "--rig", "metal", "--target", str(target))
    kept = target.rename(user.home / "kept.raw")
    target.write_bytes(content)  # the same bytes, the same size: another file
    ran = user.run("compare", "resume", status=3)
    assert f"{target} is not what study" in ran.stderr
    assert "another file has its name now" in ran.stderr
    target.unlink()
    assert "it is gone" in user.run("compare", "resume", status=3).stderr
    kept.rename(target)
    assert user.run("compare", "resume", "--json", "-q").json()["study"]["finished"]


def test_a_scratch_image_that_was_made_anew_is_not_gone_on_with(user: User, tmp_path: Path) -> None:
    user.scratch = tmp_path / "own"
    interrupted(user, "--set", "disk.format=qcow2")
    user.run("host", "clean", "--scratch", str(user.scratch), "--images")
    assert "it is gone" in user.run("compare", "resume", status=3).stderr
    user.run("compare", "measure", "--set", "disk.format=qcow2", *CALM, "--rounds", "1", "--seconds", "100ms", "-q")
    first = user.run("show", "list", "--json").json()["studies"][-1]["id"]
    assert "another file has its name now" in user.run("compare", "resume", first, status=3).stderr


def test_the_same_seed_gives_the_same_order(user: User) -> None:
    orders = []
    for _ in range(2):
        words = ("--rig", "simulated", "--vary", "disk.aio=threads,native,io_uring", "--seed", "3", "--rounds", "4")
        found = user.run("compare", *words, "-q", "--json").json()
        orders.append(sorted((r["number"], arm["name"]) for arm in found["arms"] for r in arm["rounds"]))
    assert orders[0] == orders[1]


@pytest.mark.parametrize("program", ["qemu-storage-daemon", pytest.param("fio", marks=pytest.mark.long)])
def test_a_killed_program_costs_one_attempt_and_the_study_goes_on(program: str, user: User) -> None:
    # on a busy host a look takes its time, and what is to be killed must still be there then
    words = ("--rounds", "1", "--seconds", "3", "--ramp", "0.1", "--json")
    process = user.start("compare", *ARMS[2:], *CALM, *words)
    fio = under_load(process)
    os.kill(fio if program == "fio" else children(process.pid, program[:15])[0], signal.SIGKILL)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    assert "failed, repeated" in err
    assert "SIGKILL" in err
    found = user.run("show", "last", "--json").json()
    assert all(r["measurement"] for arm in found["arms"] for r in arm["rounds"])
    assert user.run("show", "list", "--json").json()["studies"][0]["attempts_failed"] == 1
    assert out.startswith("{")
    assert nothing_is_left()


def test_ctrl_c_keeps_what_is_done_shows_it_and_leaves_a_clean_host(user: User) -> None:
    process = user.start("compare", "-v", *ARMS[:4], *CALM, "--rounds", "4", "--seconds", "1", "--ramp", "0.1")
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith("round 2 of at most 4, trial 1 of 2"):
            break
    under_load(process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 130, err
    # on a busy host the trial that was to be interrupted may be over by then
    stored = re.search(r"interrupted in round (\d) of at most 4; (\d) trials are stored", err)
    assert stored is not None, err
    assert (stored[1], stored[2]) in {("2", "3"), ("2", "4"), ("3", "4")}
    assert "virtune compare resume" in err
    assert f"{stored[2]} of at most 8 trials" in out
    assert f" {stored[2]}/8\n" in user.run("show", "list").stdout
    assert nothing_is_left()
    found = user.run("compare", "resume", "--json", "-q").json()
    assert found["study"]["finished"]
    assert found["study"]["trials_done"] == 8
    assert nothing_is_left()


@pytest.mark.parametrize("kills", [4, pytest.param(40, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
def test_kills_at_random_instants_lose_nothing_and_leave_nothing(user: User, kills: int) -> None:
    chance = Random(4)
    words = ("compare", *ARMS, *CALM, "--rounds", "4", "--seconds", "0.4", "--ramp", "0.1", "-q")
    process = user.start(*words)
    kept: list[tuple[int, str]] = []
    for _ in range(kills):
        time.sleep(chance.uniform(0.1, 2.0))
        process.kill()
        process.communicate(timeout=90)
        assert eventually(nothing_is_left), (marked_processes(), directories())
        shown = user.run("show", "last", "--json", status=None)
        if shown.status:
            assert not kept, shown.stderr
            process = user.start(*words)
            continue
        rounds = [r for arm in shown.json()["arms"] for r in arm["rounds"]]
        measured = [r for r in rounds if r["measurement"]]
        assert set(kept) <= {(r["number"], r["ended"]) for r in measured}, "a finished trial was lost or run again"
        # what a neighbour disturbed may be run again
        disturbed = {
            r["number"] for r in measured for remark in r["measurement"]["remarks"] if remark["weight"] == "invalid"
        }
        kept = [(r["number"], r["ended"]) for r in measured if r["number"] not in disturbed]
        process = user.start("compare", "resume", "-q")
    process.communicate(timeout=120)
    found = user.run("show", "last", "--json").json()
    assert found["study"]["finished"]
    assert found["study"]["trials_done"] == 12
    assert eventually(nothing_is_left)


def test_what_a_failed_test_leaves_running_is_ended(user: User) -> None:
    process = user.start("compare", *ARMS[2:], *CALM, "--rounds", "2", "--seconds", "60", "-q")
    under_load(process)
    end_started()
    assert process.returncode == -signal.SIGKILL
    assert eventually(nothing_is_left)


def test_when_the_guard_is_killed_as_well_clean_finds_and_removes_all(user: User) -> None:
    process = user.start("compare", *ARMS[2:], *CALM, "--rounds", "2", "--seconds", "20", "-q")
    under_load(process)
    kill_with_guard(process)
    assert marked_processes()
    said = user.run("host", "clean", "--scratch", str(user.scratch)).stdout
    assert "(fio)" in said
    assert nothing_is_left()
    assert "nothing was left behind" in user.run("host", "clean", "--scratch", str(user.scratch)).stdout


@pytest.mark.long(always="bench/test_rigs.py has a study with such a daemon in each run")
def test_a_daemon_that_lies_stops_the_study_with_exit_3_and_says_why(user: User, tmp_path: Path) -> None:
    shim = tmp_path / "bin" / "qemu-storage-daemon"
    shim.parent.mkdir()
    shim.write_text((Path(__file__).parents[1] / "bench" / "lying_daemon.py").read_text())
    shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
    user.env["REAL_PATH"] = os.environ["PATH"]
    ran = user.run(
        "compare", "measure", "--set", "disk.aio=io_uring", path=f"{shim.parent}:{os.environ['PATH']}", status=3
    )
    assert "arm 'io_uring': disk.aio=io_uring was requested, but threads is running" in ran.stderr
    assert "hint: seen by:" in ran.stderr
    assert nothing_is_left()


def test_what_qemu_refuses_is_a_failure_with_its_words(user: User, tmp_path: Path) -> None:
    wrong = tmp_path / "bin" / "qemu-storage-daemon"
    wrong.parent.mkdir()
    wrong.write_text("#!/bin/sh\necho 'no license to store' >&2\nexit 7\n")
    wrong.chmod(0o755)
    path = f"{wrong.parent}:{os.environ['PATH']}"
    ran = user.run("compare", "--arm", "a:", "--arm", "b:", "--rounds", "1", path=path, status=3)
    assert "arm 'a' does not start" in ran.stderr
    assert "no license to store" in ran.stderr


def test_an_arm_whose_load_always_fails_costs_the_others_nothing(user: User, tmp_path: Path) -> None:
    real = shutil.which("fio")
    shim = tmp_path / "bin" / "fio"
    shim.parent.mkdir()
    shim.write_text(
        "#!/bin/sh\nfor word; do case $word in *.fio) grep -q '^ioengine=nbd' \"$word\" &&"
        f" {{ echo 'the disk went away' >&2; exit 1; }};; esac; done\nexec {real} \"$@\"\n"
    )
    shim.chmod(0o755)
    path = f"{shim.parent}:{os.environ['PATH']}"
    words = (*CALM, "--rounds", "4", "--seconds", "0.3", "--ramp", "0", "--budget", "60s")
    ran = user.run("compare", *ARMS, *words, "--json", path=path)
    found = ran.json()
    rounds = {arm["name"]: [one["failure"] is None for one in arm["rounds"]] for arm in found["arms"]}
    assert rounds == {"metal": [True] * 4, "daemon": [False] * 3, "fuse": [True] * 4}
    for one in found["comparisons"]:
        assert ("daemon gave no measurement in 3 rounds" in one["why"]) is (
            "daemon" in (one["baseline"], one["candidate"])
        )
    assert "the other arms go on without it" in ran.stderr
    assert "the disk went away" in " ".join(user.run("show").stdout.split())
    ran = user.run("compare", *ARMS[:4], *words, path=path, status=1)
    assert "no trial of arm 'daemon' gave a measurement" in ran.stderr


@pytest.mark.parametrize("program", ["fio", "qemu-storage-daemon"])
def test_a_missing_program_is_one_sentence_and_how_to_get_it(program: str, user: User, tmp_path: Path) -> None:
    place = tmp_path / "path"
    place.mkdir()
    for name in ("fio", "qemu-storage-daemon", "qemu-img"):
        real = next(p for d in os.environ["PATH"].split(":") if (p := Path(d) / name).exists())
        if name != program:
            (place / name).symlink_to(real)
    ran = user.run("compare", "--arm", "a:", "--arm", "b:", path=str(place), status=3)
    assert f"`{program}` is not installed" in ran.stderr
    assert "apt-get install" in ran.stderr


def test_writes_go_through_every_cache_mode(user: User) -> None:
    modes = ("none", "writeback", "writethrough", "directsync", "unsafe")
    found = user.run("compare", "--vary", f"disk.cache={','.join(modes)}", "--workload", "log-sync-16k",
                     "--rounds", "1", "--seconds", "0.3", "--ramp", "0", "--json", "-q").json()  # fmt: skip
    assert [arm["name"] for arm in found["arms"]] == [f"cache={mode}" for mode in modes]
    for arm in found["arms"]:
        found_values = arm["rounds"][0]["measurement"]["values"]
        assert found_values["sync.mean"] > 0
        assert 0 < found_values["sync.p50"] <= found_values["sync.p99"] <= found_values["sync.p99.9"]
    assert "sync p99" in user.run("show", "last").stdout


def test_a_resume_after_everything_was_killed_sweeps_and_goes_on(user: User) -> None:
    process = user.start("compare", *ARMS[2:], *CALM, "--rounds", "2", "--seconds", "1", "-q")
    under_load(process)
    kill_with_guard(process)
    found = user.run("compare", "resume", "-q", "--json").json()
    assert found["study"]["finished"]
    assert nothing_is_left()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--set disk.backend=null-co --vary disk.aio=threads,native", "opens nothing, so aio means nothing there"),
        (
            "--set disk.backend=null-co --vary disk.cache=none,writeback",
            "opens nothing, so cache means nothing there",
        ),
        ("--vary disk.preallocation=off,full", "virtune writes raw images in full"),
        ("--vary disk.backing_depth=0,1", "backing_depth is a qcow2 option here, and the format is raw"),
        ("--vary disk.encryption=none,luks", "encryption is a qcow2 option here, and the format is raw"),
        (
            "--set disk.format=qcow2 --set disk.data_file=on --vary disk.backing_depth=0,1",
            "backing_depth and data_file exclude each other here: an image has one of them",
        ),
        (
            "--set disk.format=qcow2 --set disk.preallocation=full --vary disk.backing_depth=0,1",
            "an image with images below it is empty at first, so preallocation=full cannot be",
        ),
        (
            "--set disk.format=qcow2 --set disk.preallocation=off --vary disk.data_file=off,on",
            "data_file=on has its metadata preallocated here, so preallocation=off cannot be",
        ),
    ],
)
def test_a_setting_that_would_have_no_effect_is_refused(words: str, sentence: str, user: User) -> None:
    assert sentence in user.run("compare", *words.split(), status=2).stderr


def test_fio_s_own_words_may_hold_a_slash(user: User) -> None:
    words = ("--workload", "rw=randread,bssplit=4k/60:64k/40", "--rounds", "1", "--seconds", "0.3", "--json", "-q")
    assert user.run("compare", "measure", "--rig", "metal", *words).json()["arms"][0]["rounds"][0]["measurement"]


def test_a_report_that_cannot_be_written_is_known_before_anything_runs(user: User) -> None:
    ran = user.run("compare", "measure", "--rig", "metal", "--report", "/nonexistent/r.txt", status=3)
    assert "cannot write /nonexistent/r.txt" in ran.stderr
    assert "trial" not in ran.stderr


def test_scratch_in_memory_is_said_to_be_no_disk(user: User) -> None:
    user.scratch = Path(f"/dev/shm/virtune-no-disk-{os.getpid()}")
    try:
        found = user.run(
            "compare", "measure", "--rig", "metal", *CALM, "--rounds", "1", "--seconds", "1", "--json", "-q"
        ).json()
        assert "no-device" in {remark["id"] for remark in found["arms"][0]["workloads"][0]["remarks"]}
    finally:
        user.run("host", "clean", "--scratch", str(user.scratch), "--images")
        shutil.rmtree(user.scratch)
