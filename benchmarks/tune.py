# SPDX-License-Identifier: Apache-2.0
"""Does `virtune tune` find the best of 20 real configurations, and is what it says of its distance true?

    python -m benchmarks.tune truth NUMBER [--rounds 3]     # interleaved rounds of all 20, kept; 2.5 minutes
    python -m benchmarks.tune run NUMBER [--budget 210s]    # one search with a seed of its own, kept
    python -m benchmarks.tune aa NUMBER [--budget 25s]      # one configuration against itself, kept
    python -m benchmarks.tune show                          # the searches against all rounds of the truth together
    python -m benchmarks.tune pack                          # the rounds of the truth as one small file of data

The truth is the grid, but interleaved: the mean over rounds of ln(IOPS) less its round's mean. Repeat `truth` with
other numbers until its own standard error, which `show` prints, is small against 3 %; 17 pieces of 3 rounds are 40
minutes. Each call is short and keeps its own result, so that a machine with other users can be had to oneself for one
of them, and a piece that was interrupted is simply run again; one that is kept is not.

The 20: threads, native, io_uring x raw, qcow2 x cache none, writeback (which native cannot have) x IOThread on, off.
What they write is flushed after every 64 writes, so the page cache promises no less than the disk.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

KEPT = Path("/var/tmp/virtune-tune-benchmark")
DATA = Path(__file__).with_name("data") / "tune-truth.json"
WORKLOAD = "rw=randwrite,bs=4k,iodepth=16,fsync=64"
AXES = {
    "disk.aio": ("threads", "native", "io_uring"),
    "disk.format": ("raw", "qcow2"),
    "disk.cache": ("none", "writeback"),
    "export.iothread": ("on", "off"),
}
DEFAULTS = {"disk.aio": "threads", "disk.format": "raw", "disk.cache": "none", "export.iothread": "on"}
"""What the baseline of the searches is, whose settings name only what differs from the rig's own."""

Key = tuple[str, ...]
Rounds = list[dict[Key, float]]
"""One dictionary a round: configuration -> IOPS."""


def main() -> None:
    """Measure the truth, search, compare equals, or show what all of it says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["truth", "run", "aa", "show", "pack"])
    parser.add_argument("number", type=int, nargs="?", default=1)
    parser.add_argument("--rounds", default="3")
    parser.add_argument("--budget")
    parser.add_argument("--span", default="512M")
    asked = parser.parse_args()
    KEPT.mkdir(exist_ok=True)
    match asked.what:
        case "truth":
            words = ["compare", "--rounds", asked.rounds, "--seconds", "1500ms", "--ramp", "500ms"]
            words += [word for key in configurations() for word in ("--arm", written(key))]
            keep(f"truth-{asked.number}", words, asked.span, 1000 + asked.number)
        case "run":
            words = ["tune", "--mode", "quick", "--budget", asked.budget or "210s", "--confirm-seconds", "2s"]
            words += [word for knob, values in AXES.items() for word in ("--vary", f"{knob}={','.join(values)}")]
            keep(f"run-{asked.number}", words, asked.span, 2000 + asked.number)
        case "aa":
            words = ["compare", "--budget", asked.budget or "25s", "--seconds", "1s", "--arm", "a:", "--arm", "b:"]
            keep(f"aa-{asked.number}", words, asked.span, 3000 + asked.number)
        case "pack":
            pack()
        case _:
            show()


def configurations() -> list[Key]:
    """Return the 20, in the order of AXES."""
    return [key for key in product(*AXES.values()) if (key[0], key[2]) != ("native", "writeback")]


def written(key: Key) -> str:
    """Write one as an arm: a name, and its settings."""
    return f"{'.'.join(key)}:{','.join(f'{knob}={value}' for knob, value in zip(AXES, key, strict=True))}"


def keep(name: str, words: list[str], span: str, seed: int) -> None:
    """Run virtune once and keep what it says; what is kept is not run again."""
    kept = KEPT / f"{name}.json"
    if kept.exists():
        print(f"{kept} is there already")
        return
    command = [sys.executable, "-m", "virtune", *words, "--rig", "vhost-user", "--workload", WORKLOAD, "--json"]
    command += ["--seed", str(seed), "-q", "--span", span]
    command += ["--scratch", str(KEPT), "--store", str(KEPT / "store.sqlite")]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    json.loads(text)
    kept.write_text(text)


def show() -> None:
    """Print the truth with its standard error, how far below its best each search's winner is, and the equals."""
    rounds = truth()
    if rounds:
        level = _show_truth(rounds)
        _show_searches(level)
    verdicts = Counter(
        one["verdict"]
        for path in sorted(KEPT.glob("aa-*.json"))
        for one in json.loads(path.read_text())["comparisons"]
    )
    if verdicts:
        print(f"{verdicts.total()} comparisons of a configuration with itself: {dict(verdicts)}")


def _show_truth(rounds: Rounds) -> dict[Key, float]:
    values = centered(rounds)
    level = {key: statistics.fmean(found) for key, found in values.items()}
    top = max(level.values())
    print(f"truth: {len(rounds)} rounds")
    for key, found in sorted(values.items(), key=lambda pair: -level[pair[0]]):
        error = statistics.stdev(found) / math.sqrt(len(found)) if len(found) > 1 else math.nan
        print(f"  {' '.join(key):32} {100 * math.expm1(level[key] - top):+6.1f} % +- {100 * error:.1f}")
    return level


def _show_searches(level: dict[Key, float]) -> None:
    right = undecided = told = 0
    top, runs = max(level.values()), sorted(KEPT.glob("run-*.json"))
    for path in runs:
        found = json.loads(path.read_text())
        winner = next((arm for arm in found["arms"] if arm["name"] == found["winner"]), None)
        cost = found["cost"]
        spent = (
            f"measured {cost['measured_seconds']:.0f} s, elapsed {cost['elapsed_seconds']:.0f} s of"
            f" {cost['grid_seconds']:.0f} s; {found['recommendation']}: {found['why']}"
        )
        if winner is None:
            print(f"{path.stem}: no winner; {spent}")
            continue
        below = -math.expm1(level[key_of(winner["settings"])] - top)
        stated = found["distance"]
        right += below <= 0.03
        undecided += below > 0.03 and not found["certified"]
        told += stated is None or below <= stated
        said = "no bound" if stated is None else f"at most {100 * stated:.1f} %"
        words = " ".join(key_of(winner["settings"]))
        print(f"{path.stem}: {words:32} {100 * below:4.1f} % below the best, says {said}; {spent}")
    print(
        f"within 3 %: {right} of {len(runs)}; others called certain: {len(runs) - right - undecided};"
        f" what is said of the distance is true: {told} of {len(runs)}"
    )


def truth() -> Rounds:
    """Return every complete round that was measured: of this machine's pieces, else of the data that is kept."""
    pieces = sorted(KEPT.glob("truth-*.json"))
    if not pieces and DATA.exists():
        return packed(DATA)
    return [one for path in pieces for one in rounds_of(json.loads(path.read_text()))]


def packed(path: Path) -> Rounds:
    """Return the rounds of a file that `pack` wrote."""
    return [{tuple(key.split(".")): iops for key, iops in one.items()} for one in json.loads(path.read_text())]


def rounds_of(study: Any) -> Rounds:
    """Return the rounds of a comparison in which every arm gave a value."""
    by_round: dict[int, dict[Key, float]] = {}
    for arm in study["arms"]:
        for one in arm["rounds"]:
            if one["measurement"] is not None:
                by_round.setdefault(one["round"], {})[key_of(arm["settings"])] = one["measurement"]["values"]["iops"]
    return [by_round[number] for number in sorted(by_round) if len(by_round[number]) == len(study["arms"])]


def centered(rounds: Rounds) -> dict[Key, list[float]]:
    """Return ln(IOPS) of every configuration less the mean of its round."""
    found: dict[Key, list[float]] = {}
    for one in rounds:
        middle = statistics.fmean(map(math.log, one.values()))
        for key, iops in one.items():
            found.setdefault(key, []).append(math.log(iops) - middle)
    return found


def pack() -> None:
    """Write the rounds of the truth as one file, small enough to be kept beside this."""
    rounds = truth()
    DATA.parent.mkdir(exist_ok=True)
    lines = (json.dumps({".".join(key): round(iops, 1) for key, iops in one.items()}) for one in rounds)
    DATA.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{DATA}: {len(rounds)} rounds")


def key_of(settings: dict[str, str]) -> Key:
    """Return a configuration by its values, whatever it is called."""
    return tuple(settings.get(knob, default) for knob, default in DEFAULTS.items())


if __name__ == "__main__":
    main()
