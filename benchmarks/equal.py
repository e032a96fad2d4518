# SPDX-License-Identifier: Apache-2.0
"""The same stack twice, many times over: how often is it called better or worse? It must not be.

    python benchmarks/equal.py [RUNS]

Each run is what a user would type: `virtune compare --rig metal --arm a: --arm b: --quick`.
"""

import json
import subprocess
import sys
import tempfile
from collections import Counter


def main() -> None:
    """Run the comparisons and count their verdicts."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    verdicts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "virtune", "compare", "--rig", "metal", "--arm", "a:", "--arm", "b:"]
        command += ["--quick", "-q", "--json", "--store", f"{directory}/store.sqlite"]
        for number in range(1, runs + 1):
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            (comparison,) = json.loads(done.stdout)["comparisons"]
            verdicts[comparison["verdict"]] += 1
            ratio = comparison["ratio"]
            change, low, high = ((ratio[key] - 1) * 100 for key in ("estimate", "low", "high"))
            print(f"{number:3} {comparison['verdict']:9} {change:+6.2f} % [{low:+.2f}, {high:+.2f}]", flush=True)
    print(f"\n{runs} runs: {dict(verdicts)}")


main()
