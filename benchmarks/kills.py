# SPDX-License-Identifier: Apache-2.0
"""SIGKILL, or two quick Ctrl-C, at random instants of every verb and rig: what is left, and what is lost?

    python -m benchmarks.kills [COUNT] [SEED] [kill|interrupt]

Each time one of the calls of `benchmarks.runs` is begun, and virtune alone is killed at an instant drawn from its
whole length, or interrupted twice within 0.4 s. 15 s later at most no process and no directory of the run may be
there, `virtune clean` must have nothing more to do, no trial may be gone from the store, and nothing may print a
traceback.
Prints a line for each, a table in the end, and completes what was cut short with `virtune resume`.
"""

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from random import Random

from benchmarks.runs import CALLS, Call, Runs


def stop(child: "subprocess.Popen[bytes]", how: str, chance: Random) -> tuple[int | None, str]:
    """End a run in the way that was asked for; return its exit code and what it had said."""
    if how == "kill":
        child.kill()
    else:
        for wait in (chance.uniform(0.02, 0.4), 0.0):
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(signal.SIGINT)
            time.sleep(wait)
    _, err = child.communicate(timeout=120)
    return child.returncode, err.decode(errors="replace")


def once(runs: Runs, call: Call, how: str, chance: Random) -> tuple[str, list[str]]:
    """Begin one call and end it at some instant; return what happened and what was wrong with it."""
    before, wrong = runs.kept(), []
    child = runs.start(runs.words(call))
    instant = chance.uniform(0.05, call.seconds)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(instant)
    ended = child.poll() is not None
    code, said = (child.returncode, child.communicate()[1].decode()) if ended else stop(child, how, chance)
    gone, left = runs.wait_for_nothing()
    wrong += [f"left {', '.join(left)}"] if left else []
    # an interpreter that is still loading its modules has nothing of ours yet to catch an interrupt with
    wrong += (
        ["traceback"] if "Traceback" in said and not (how == "interrupt" and "virtune/cli/__init__" in said) else []
    )
    wrong += [f"exit {code}"] if how == "interrupt" and not ended and code not in (0, 1, 130, -signal.SIGINT) else []
    cleaned = runs.run("clean", "--scratch", str(runs.scratch)).strip()
    processes = [line for line in cleaned.splitlines() if "process" in line or "directory" in line]
    wrong += [f"clean found {line}" for line in processes]
    after = runs.kept()
    wrong += [f"{before - after} trials lost"] if after < before else []
    state = f"had ended ({code})" if ended else f"ended after {instant:5.2f} s ({code})"
    return f"{state}, gone in {gone:.2f} s, {after - before} trials more", wrong


def main() -> None:
    """Kill, look, clean; resume in the end."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 25
    chance = Random(int(sys.argv[2]) if len(sys.argv) > 2 else 20)
    how = sys.argv[3] if len(sys.argv) > 3 else "kill"
    seen: dict[str, list[list[str]]] = defaultdict(list)
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="vk") as directory:
        runs = Runs(Path(directory))
        runs.fill()
        order = [call for _ in range(-(-count // len(CALLS))) for call in chance.sample(CALLS, len(CALLS))]
        for number, call in enumerate(order[:count], 1):
            said, wrong = once(runs, call, how, chance)
            seen[call.name].append(wrong)
            print(f"{number:3} {call.name:18} {said}{'  WRONG: ' if wrong else ''}{'; '.join(wrong)}", flush=True)
        print("resume:", runs.run("resume", "-q", "--store", str(runs.store), ok=(0, 1, 2)).strip().splitlines()[:1])
        assert not runs.remains(), runs.remains()
    for name, found in sorted(seen.items()):
        print(f"{name:18} {len(found):3} times, {sum(map(bool, found))} wrong")
    bad = sum(bool(one) for found in seen.values() for one in found)
    print(f"{sum(map(len, seen.values()))} in all, {bad} wrong")


if __name__ == "__main__":
    main()
