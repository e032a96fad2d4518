# SPDX-License-Identifier: Apache-2.0
"""How long 1,000 stored trials take to be read, analysed and set: `python benchmarks/reading.py STORE [TRIALS]`.

STORE is a store with a study in it; its newest study's trials are copied until there are as many as asked for. Timed
are a whole `virtune show` in a process of its own, and the derivation of all trials anew from their raw captures.
"""

import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from virtune.analyse.trial.derive import derive
from virtune.store.store import Store


def main() -> None:
    """Copy, then time."""
    source, count = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "store.sqlite"
        with Store(source) as store:
            name = store.find("last")
            record = store.get(name)
            captures = {trial.trial.number: store.captures(name, trial.trial.number) for trial in record.trials}
        numbered = [
            replace(record.trials[i % len(record.trials)], attempt=1, trial=replace(
                record.trials[i % len(record.trials)].trial, number=i + 1, round=i // len(record.study.arms) + 1))
            for i in range(count)
        ]  # fmt: skip
        rounds = numbered[-1].trial.round
        study = replace(record.study, id="copy", rounds=rounds, trials=tuple(one.trial for one in numbered))
        with Store(copy) as store:
            store.add_study(study, facts=record.facts)
            for i, one in enumerate(numbered):
                store.add_trial("copy", one, captures[record.trials[i % len(record.trials)].trial.number])
        begun = time.perf_counter()
        command = [sys.executable, "-m", "virtune", "show", "copy", "--store", str(copy)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        print(f"virtune show of {count} trials: {time.perf_counter() - begun:.2f} s")
        begun = time.perf_counter()
        with Store(copy) as store:
            for one in numbered:
                parts = {part.name: part.content for part in store.captures("copy", one.trial.number)}
                stack, workload = study.arm(one.trial.arm).stack, study.workload(one.trial.workload)
                derive(parts, stack=stack, workload=workload)
        print(f"deriving {count} trials anew from raw evidence: {time.perf_counter() - begun:.2f} s")


main()
