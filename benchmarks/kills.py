# SPDX-License-Identifier: Apache-2.0
"""SIGKILL of virtune at random instants of a comparison in a guest: what is left, and does the study go on?

    python -m benchmarks.kills [KILLS] [SEED]

Each time a comparison of two engines in a guest is begun, or the one that was killed before is resumed, and virtune
alone is killed at an instant drawn from its whole length. 15 s later at most, no process and no directory of the run
may be there, `virtune clean` must have nothing more to do, and in the end `virtune resume` must complete what was
killed last. Prints what every kill left.
"""

import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORDS = ("compare", "--rig", "qemu", "--arm", "a:", "--arm", "b:disk.aio=native", "--rounds", "2", "--seconds", "0.7")
LONGEST_SECONDS = 14.0
PATIENCE_SECONDS = 15.0


def left(mark: str) -> list[str]:
    """Every process that runs of ours started, found by the directory that they were given."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            variables = (entry / "environ").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if mark.encode() in variables:
                found.append(f"{entry.name} {(entry / 'comm').read_text().strip()}")
    return found


class Runs:
    """Calls virtune with a store, a scratch directory and a temporary directory of its own."""

    def __init__(self, home: Path) -> None:
        self.temporary = home / "t"
        self.temporary.mkdir()
        self.place = ("--store", str(home / "store.sqlite"))
        self.scratch = ("--scratch", str(home / "scratch"), "--span", "64M")
        self.env = os.environ | {"TMPDIR": str(self.temporary)}
        self.mark = f"TMPDIR={self.temporary}"

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        """Start virtune."""
        argv = [sys.executable, "-m", "virtune", *words]
        return subprocess.Popen(argv, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *words: str) -> str:
        """Run it to its end and return what it said."""
        child = self.start(*words)
        out, err = child.communicate(timeout=300)
        assert child.returncode == 0, (words, err.decode())
        assert b"Traceback" not in err, err.decode()
        return (out + err).decode()

    def remains(self) -> list[str]:
        """What a killed run left: processes, and directories with its sockets."""
        return [*left(self.mark), *(str(path) for path in self.temporary.iterdir())]


def main() -> None:
    """Kill, look, clean, and resume in the end."""
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    chance = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 20)
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="vk") as directory:
        runs = Runs(Path(directory))
        resumed = False
        for number in range(1, kills + 1):
            words = ("resume", *runs.place, "-q") if resumed else (*WORDS, *runs.scratch, *runs.place, "-q")
            child = runs.start(*words)
            instant = chance.uniform(0.1, LONGEST_SECONDS)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(instant)
            ended = child.poll()
            child.kill()
            child.communicate()
            begun = time.monotonic()
            while runs.remains() and time.monotonic() - begun < PATIENCE_SECONDS:
                time.sleep(0.02)
            gone = time.monotonic() - begun
            remains = runs.remains()
            said = runs.run("clean", "--scratch", runs.scratch[1]).strip().replace("\n", "; ")
            assert not runs.remains(), runs.remains()
            state = "had ended" if ended is not None else f"killed after {instant:4.1f} s"
            print(
                f"{number:2} {words[0]:7} {state}: gone in {gone:.2f} s, left {remains or 'nothing'}; {said}",
                flush=True,
            )
            listed = runs.run("list", *runs.place)
            resumed = any(f" {done}/4" in listed for done in range(4))
        if resumed:
            print(next(line for line in runs.run("resume", *runs.place, "-q").splitlines() if "trials" in line))
        assert not runs.remains()


main()
