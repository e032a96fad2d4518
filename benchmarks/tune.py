# SPDX-License-Identifier: Apache-2.0
"""Does `virtune tune` find the best of 16 real configurations, and is what it says of its distance true?

    python benchmarks/tune.py truth NUMBER [--rounds 4]     # interleaved rounds of all 16, kept; 2.5 minutes
    python benchmarks/tune.py run NUMBER [--budget 210s]    # one search with a seed of its own, kept
    python benchmarks/tune.py show                          # every search against all rounds of the truth together

The truth is the grid, but interleaved: the mean over rounds of ln(IOPS) less its round's mean. Repeat `truth` at
different times until its own standard error, which `show` prints, is small against 3 %. Each call is short, so that a
machine with other users can be had to oneself for one of them.

The 16: native, io_uring x raw, qcow2 x IOThread on, off x 1, 2 queues.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

KEPT = Path("/var/tmp/virtune-tune-benchmark")
AXES = ("disk.aio=native,io_uring", "disk.format=raw,qcow2", "export.iothread=on,off", "export.num_queues=1,2")
DEFAULTS = {"disk.aio": "native", "disk.format": "raw", "export.iothread": "on", "export.num_queues": "1"}
"""What the baseline of the searches is, whose settings name only what differs from the rig's own."""

Key = tuple[str, ...]


def main() -> None:
    """Measure the truth, search, or show what both say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["truth", "run", "show"])
    parser.add_argument("number", type=int, nargs="?", default=1)
    parser.add_argument("--rounds", default="4")
    parser.add_argument("--budget", default="210s")
    parser.add_argument("--span", default="512M")
    asked = parser.parse_args()
    KEPT.mkdir(exist_ok=True)
    if asked.what == "truth":
        words = ["compare", "--rounds", asked.rounds, "--seconds", "1500ms", "--ramp", "500ms", "--set"]
        keep(f"truth-{asked.number}", [*words, "disk.cache=none"], asked.span, 1000 + asked.number)
    elif asked.what == "run":
        words = ["tune", "--mode", "quick", "--budget", asked.budget, "--confirm-seconds", "2s", "--fix"]
        words += ["disk.cache=none", "--baseline", "disk.aio=native"]
        keep(f"run-{asked.number}", words, asked.span, 2000 + asked.number)
    else:
        show()


def keep(name: str, words: list[str], span: str, seed: int) -> None:
    """Run virtune once and keep what it says."""
    command = [sys.executable, "-m", "virtune", *words, "--rig", "vhost-user", "--workload", "randread-4k", "--json"]
    command += [word for axis in AXES for word in ("--vary", axis)]
    command += ["--seed", str(seed), "-q", "--span", span]
    command += ["--scratch", str(KEPT), "--store", str(KEPT / "store.sqlite")]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    (KEPT / f"{name}.json").write_text(text)


def show() -> None:
    """Print the truth with its standard error, and how far below its best each search's winner is."""
    truth = rounds_of([json.loads(path.read_text()) for path in sorted(KEPT.glob("truth-*.json"))])
    level = {key: statistics.fmean(values) for key, values in truth.items()}
    top = max(level.values())
    print(f"truth: {min(len(values) for values in truth.values())} rounds")
    for key, values in sorted(truth.items(), key=lambda pair: -level[pair[0]]):
        error = statistics.stdev(values) / math.sqrt(len(values))
        print(f"  {' '.join(key):32} {100 * math.expm1(level[key] - top):+6.1f} % +- {100 * error:.1f}")
    right = told = 0
    runs = sorted(KEPT.glob("run-*.json"))
    for path in runs:
        found = json.loads(path.read_text())
        winner = next(arm for arm in found["arms"] if arm["name"] == found["winner"])
        below = -math.expm1(level[key_of(winner["settings"])] - top)
        stated = found["distance"]
        right += below <= 0.03
        told += stated is not None and below <= stated
        cost = found["cost"]
        said = "no bound" if stated is None else f"{100 * stated:.1f} %"
        print(
            f"{path.stem}: {' '.join(key_of(winner['settings'])):32} {100 * below:4.1f} % below the best,"
            f" says at most {said}; measured {cost['measured_seconds']:.0f} s,"
            f" elapsed {cost['elapsed_seconds']:.0f} s of {cost['grid_seconds']:.0f} s; {found['recommendation']}"
        )
    print(f"within 3 %: {right} of {len(runs)}; what it says is true: {told} of {len(runs)}")


def rounds_of(studies: list[Any]) -> dict[Key, list[float]]:
    """ln(IOPS) of every configuration less the mean of its round, over all rounds of all studies."""
    found: dict[Key, list[float]] = {}
    for study in studies:
        by_round: dict[int, dict[Key, float]] = {}
        for arm in study["arms"]:
            for one in arm["rounds"]:
                if one["measurement"] is not None:
                    value = math.log(one["measurement"]["values"]["iops"])
                    by_round.setdefault(one["round"], {})[key_of(arm["settings"])] = value
        for values in by_round.values():
            if len(values) == len(study["arms"]):
                middle = statistics.fmean(values.values())
                for key, value in values.items():
                    found.setdefault(key, []).append(value - middle)
    return found


def key_of(settings: dict[str, str]) -> Key:
    """Return a configuration by its values, whatever it is called."""
    return tuple(settings.get(knob, default) for knob, default in DEFAULTS.items())


if __name__ == "__main__":
    main()
