# SPDX-License-Identifier: Apache-2.0
"""The figures that are derived from kept evidence, written down with the number of their method.

    python -m tests.tidy.figures     # write them down again, after METHOD was raised or evidence was added

It refuses to change a figure whose METHOD is the one that is written down: who reads a store would take figures of
two ways for figures of one.
"""

import contextlib
import gzip
import json
import math
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.analyse.recordings import RESULTS, recorded

from virtune.analyse.trial.derive import derive
from virtune.analyse.trial.measure import measurement_of
from virtune.fio.results import read_result
from virtune.model.errors import ReadError
from virtune.model.measurement import METHOD, Measurement
from virtune.store.store import Store

WRITTEN = Path(__file__).with_name("data") / "figures.json"
KEPT = Path(__file__).parents[1] / "store" / "data" / "older-method.sqlite.gz"

TRIALS_MAX = 4
"""Of each study that is kept; more of the same rig and load would show the same."""

Figures = dict[str, dict[str, float | str | None]]


def figures_of(found: Measurement) -> dict[str, float | str | None]:
    """Return all that is derived of a trial, under one name each."""
    told: dict[str, float | str | None] = {**dict(found.values)}
    told |= {f"gate {name}": value for name, value in found.gates}
    told |= {f"remark {one.id}": one.weight.value for one in found.remarks}
    for kind, histogram in (("latency", found.histogram), ("sync", found.flushes), *found.others):
        if histogram is not None:
            told |= {f"{kind} p{percent:g}": histogram.percentile(percent) for percent in (50.0, 99.0)}
            told[f"{kind} count"] = histogram.count
    return told | {"profile": math.fsum(found.profile), "profile seconds": found.profile_seconds}


def derived() -> Iterator[tuple[str, dict[str, float | str | None]]]:
    """Yield the figures of every recorded fio result, and of trials of the store that is kept."""
    for name in RESULTS:
        with contextlib.suppress(ReadError):  # some are recorded to be refused
            yield name, figures_of(measurement_of(read_result(recorded(name))))
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "kept.sqlite"
        path.write_bytes(gzip.decompress(KEPT.read_bytes()))
        with Store(path) as store:
            for listed in store.list():
                record = store.get(listed.study.id)  # type: ignore[union-attr] # none of this store is damaged
                for trial in record.trials[:TRIALS_MAX]:
                    parts = {one.name: one.content for one in store.captures(record.study.id, trial.trial.number)}
                    of = {
                        "stack": record.study.arm(trial.trial.arm).stack,
                        "workload": record.study.workload(trial.trial.workload),
                    }
                    yield f"{record.study.id} trial {trial.trial.number}", figures_of(derive(parts, **of))  # type: ignore[arg-type]


def alike(one: float | str | None, other: float | str | None) -> bool:
    """Whether two figures differ by no more than the rounding of their sums."""
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return one == other


def changed(before: Figures, now: Figures) -> list[str]:
    """Name the figures that are not what they were; evidence that only one of the two has says nothing."""
    return [
        f"{name}: {key} was {before[name].get(key)} and is {now[name].get(key)}"
        for name in before.keys() & now.keys()
        for key in sorted(before[name].keys() | now[name].keys())
        if not alike(before[name].get(key), now[name].get(key))
    ]


def written() -> tuple[int, Figures]:
    """Return what is written down: the method, and its figures."""
    document: Any = json.loads(WRITTEN.read_text())
    return int(document["method"]), document["figures"]


def main() -> int:
    """Write the figures down; returns the exit status."""
    now = dict(derived())
    if WRITTEN.exists():
        method, before = written()
        if method == METHOD and (lines := changed(before, now)):
            print(f"figures differ, and METHOD is still {METHOD}: raise it first", *lines[:5], sep="\n")
            return 1
    WRITTEN.parent.mkdir(exist_ok=True)
    WRITTEN.write_text(json.dumps({"method": METHOD, "figures": now}, indent=0, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
