# SPDX-License-Identifier: Apache-2.0
"""The disk of store and scratch is full, read-only or away in mid-run, or its quota used up: no finished trial is
lost.
"""

import fcntl
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conftest import CALM
from tests.rationed import no_quota, use_up

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("loop devices")]

MIB = 1024**2
ROUNDS = 4
SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN of linux/ext4.h; 2: not even its journal is written, as when the power fails."""

SAID = {
    "full": r"error: cannot write to the store .*: no space left on ",
    "read-only": r"error: cannot write to the store .*: read-only file system in ",
    "quota": r"error: cannot write to the store .*: disk quota exceeded in ",
    "away": r"error: (cannot (read|use|write to) .*|.* takes nothing more): input/output error",
}


@dataclass
class Alone:
    """A mount namespace, so that no other process keeps a copy of what is mounted in it, and its disk busy."""

    pid: int
    place: Path
    device: str

    def call(self, *words: object) -> list[str]:
        return ["nsenter", f"--mount=/proc/{self.pid}/ns/mnt", "--", *(str(word) for word in words)]

    def run(self, *words: object, ok: tuple[int, ...] = (0,)) -> str:
        done = subprocess.run(self.call(*words), capture_output=True, text=True, timeout=60)
        assert done.returncode in ok, (words, done.stdout, done.stderr)
        return done.stdout

    def virtune(self, *words: object) -> list[str]:
        return self.call("env", f"XDG_DATA_HOME={self.place}", sys.executable, "-m", "virtune", *words)

    @property
    def seen(self) -> Path:
        """What is mounted, from outside."""
        return Path(f"/proc/{self.pid}/root{self.place}")

    def trials(self) -> list[list[int]]:
        """Number and attempt of each trial in the store. SQLite would resolve `seen` to another file."""
        script = """import json, sqlite3, sys
print(json.dumps(sqlite3.connect(sys.argv[1]).execute("select number, attempt from trials order by 1, 2").fetchall()))
"""
        said = self.run(sys.executable, "-c", script, self.place / "virtune" / "virtune.sqlite")
        found: list[list[int]] = json.loads(said)
        return found


@pytest.fixture
def alone(how: str, tmp_path: Path) -> Iterator[Alone]:
    place, image = tmp_path / "place", tmp_path / "image"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate((1024 if how == "quota" else 112) * MIB)
    make = ["mkfs.btrfs", "-q"] if how == "quota" else ["mkfs.ext4", "-q", "-m", "0", "-F"]
    subprocess.run([*make, image], check=True)
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo; exec sleep 600"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as sleeping:
        assert sleeping.stdout is not None
        sleeping.stdout.readline()
        attached = subprocess.run(["losetup", "-f", "--show", image], check=True, capture_output=True, text=True)
        found = Alone(sleeping.pid, place, attached.stdout.strip())
        try:
            if how == "quota":
                found.run("mount", found.device, place)
                found.run("btrfs", "quota", "enable", place)
            else:
                found.run("mount", "-o", "errors=remount-ro", found.device, place)
            yield found
            found.run("umount", place)
        finally:
            sleeping.kill()
            subprocess.run(["losetup", "-d", found.device], check=True)


def break_it(how: str, place: Path) -> None:
    if how == "quota":
        use_up(place)
    elif how == "full":
        with (place / "filler").open("wb") as file:
            size = shutil.disk_usage(place).free
            while size >= 1024:
                try:
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), size)
                except OSError:
                    size //= 2
    elif how == "read-only":
        number = place.stat().st_dev
        device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve().name
        Path(f"/sys/fs/ext4/{device}/trigger_fs_error").write_text("by a test")
    else:
        descriptor = os.open(place, os.O_RDONLY)
        fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", 2))
        os.close(descriptor)


@pytest.mark.parametrize(
    ("how", "rig"),
    [
        *[(how, "metal" if how in ("full", "quota") else "storage-daemon") for how in SAID],
        *[
            pytest.param(how, "storage-daemon" if how in ("full", "quota") else "metal", marks=pytest.mark.long)
            for how in SAID
        ],
    ],
)
def test_a_disk_that_fails_in_mid_run_costs_no_finished_trial(how: str, rig: str, alone: Alone) -> None:
    scratch = ("--scratch", alone.place / "scratch")
    once = ("--span", "16M", "--attempts", "1", "--rounds", ROUNDS, "--seconds", "0.3", "--ramp", "0s")
    words = alone.virtune("compare", "measure", "--rig", rig, *CALM, *once, *scratch)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any(line.startswith("round 1") for line in process.stderr)
        break_it(how, alone.seen)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1, said
    assert len([line for line in said.splitlines() if line.startswith(("error", "Traceback"))]) == 1
    assert re.search(SAID[how], said), said
    if how == "full":
        (alone.seen / "filler").unlink()
    elif how == "quota":
        alone.run(*no_quota(of=alone.place))
    else:
        alone.run("umount", alone.place)
        alone.run("e2fsck", "-fy", alone.device, ok=(0, 1))
        alone.run("mount", alone.device, alone.place)
    before = alone.trials()
    assert 0 < len(before) < ROUNDS
    subprocess.run(alone.virtune("compare", "resume", "-q"), check=True, timeout=60)
    assert alone.trials()[: len(before)] == before
    assert len(alone.trials()) == ROUNDS
    done = subprocess.run(alone.virtune("host", "clean", *scratch), capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("nothing was left behind\n", "")
