# SPDX-License-Identifier: Apache-2.0
"""The same stack twice, many times over: how often is it called better or worse? In one of twenty at most.

    python benchmarks/equal.py [RUNS] [--quick]

Each run is what a user would type: `virtune compare --rig metal --arm a: --arm b:`, which takes five minutes where it
is not decided sooner. With `--quick` it is ten rounds of a second: a test that is broken on purpose shows no false
alarm in 20 such runs with probability 0.41, in 40 of five minutes with 0.02.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter


def main() -> None:
    """Run the comparisons and count their verdicts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=int, nargs="?", default=20)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    verdicts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "virtune", "compare", "--rig", "metal", "--arm", "a:", "--arm", "b:"]
        command += ["-q", "--json", "--store", f"{directory}/store.sqlite", *(["--quick"] if asked.quick else [])]
        for number in range(1, asked.runs + 1):
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            (comparison,) = json.loads(done.stdout)["comparisons"]
            verdicts[comparison["verdict"]] += 1
            ratio = comparison["ratio"]
            ends = [(ratio[key] - 1) * 100 for key in ("estimate", "low", "high")] if ratio else []
            told = "{:+6.2f} % [{:+.2f}, {:+.2f}]".format(*ends) if ends else "no interval"
            print(f"{number:3} {comparison['verdict']:9} after {comparison['rounds']:3} rounds {told}", flush=True)
    print(f"\n{asked.runs} runs: {dict(verdicts)}")


main()
