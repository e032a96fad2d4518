# SPDX-License-Identifier: Apache-2.0
"""Runs of fio in folders, of which each file tells when it ended."""

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from tests.cli.kept_results import result

BEGUN = 1_790_000_000
"""September 2026, in seconds since 1970."""


def timed(
    folder: Path,
    order: str,
    *,
    step: float = 1.0,
    of_arm: Mapping[str, float] | None = None,
    noise: float = 0.0,
    gap: float = 60.0,
    times: Mapping[int, Mapping[str, Any]] | None = None,
) -> tuple[str, str]:
    """Write one real result again and again, a run for each letter of `order`, which is its arm: `gap` seconds after
    the one before, and `step` times as fast. `times` are the times that some of them tell instead, by their number;
    None takes one away. Returns the folders of A and B.
    """
    chance, count = Random(order), dict[str, int]()
    for number, arm in enumerate(order):
        count[arm] = count.get(arm, 0) + 1
        scale = step**number * (of_arm or {}).get(arm, 1.0) * (1 + chance.gauss(0, noise))
        path = result(folder / arm, f"run-{count[arm]}.json", scale=scale)
        document = json.loads(path.read_text())
        ended = BEGUN + gap * number
        told = {"timestamp": int(ended), "timestamp_ms": int(ended * 1000)} | dict((times or {}).get(number, {}))
        document.update(told)
        for key in [key for key, value in told.items() if value is None]:
            del document[key]
        path.write_text(json.dumps(document))
    return str(folder / "A"), str(folder / "B")
