# SPDX-License-Identifier: Apache-2.0
"""The same recorded rounds judged by a plan and as before plans: which pairs are decided, after how many rounds?

    python -m benchmarks.sooner                  # the table, from the recorded rounds in data/
    python -m benchmarks.sooner --from STORE     # keep the rounds of a store's last comparison in data/

Before: an interval that holds at any time for every pair of arms, all together at 95 %, and a sign test at 5 %. Now:
the error spent over a plan of as many rounds as are recorded, for the pairs with the baseline. Both are the product's
own code, on the same values, looking after every round: before from the sixth on, now from the fifth. The records: a
demo's comparison (bare metal, threads, native and io_uring) on a loaded host, and threads, writeback, native and
io_uring, all on raw images, in the two recorded hours of `tune.py`; each in stretches of rounds. Two demos that were
recorded at night are judged as they ran, and without their first three rounds, in which the disk was not warm. Two
demos of a quiet machine are judged from the second round on as well, as if there were no fewest: for the pairs with
the baseline, and for all pairs. Last comes every stretch of the quiet hour: in how many does each judgement decide
more, or the same sooner?
"""

import argparse
import itertools
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from virtune.analyse.stats.paired import Family, compare_at_any_time, compare_planned
from virtune.analyse.stats.planned import dunnett_alpha, level_of
from virtune.model.metric import BY_ID
from virtune.model.verdict import ROUNDS_MIN, Comparison, Interval, Verdict, fewest_planned

DATA = Path(__file__).parent / "data"
DEMO = DATA / "demo-rounds.json"
NIGHT = DATA / "demo-night.json"
QUIET = DATA / "demo-quiet.json"
COLD = 3
"""The first rounds of a night's demo: all arms did 10 to 70 % of what they did from then on."""

DEMO_ROUNDS = 11
"""The most rounds that the 150 s of a quiet demo with five arms have room for."""

ERROR, MARGIN = 0.05, 0.03
STRETCHES = (13, 25)
"""Rounds of a stretch: the 150 s of the demo, and the five minutes of a default comparison, with four arms."""

APART = 6
"""How many rounds apart two stretches begin."""

HOURS = {"quiet hour": "tune-truth.json", "restless hour": "tune-truth-restless.json"}
ARMS = ("threads.raw.none.off", "threads.raw.writeback.off", "native.raw.none.off", "io_uring.raw.none.off")

Rows = dict[str, list[float]]
"""IOPS of every arm in every round, the baseline first; NaN where a trial gave none."""


Judge = Callable[[Rows, int], list[Comparison]]

Pairs = Sequence[tuple[str, str]]


def main() -> None:
    """Keep rounds, or judge those that are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="store", type=Path)
    asked = parser.parse_args()
    if asked.store:
        DEMO.write_text(json.dumps(kept(asked.store), indent=1) + "\n", encoding="utf-8")
        return
    print("| rounds | stretches | pairs | decided before | decided now | rounds run before | rounds run now |")
    print("|---|---|---|---|---|---|---|")
    for length in STRETCHES:
        for name, rows in records():
            print(told(name, length, list(stretches(rows, length))))
    for name, rows in nights():
        print(told(name, len(rows["metal"]), [rows]))
    for name, rows in demos(QUIET):
        print(told(f"demo at {name}, quiet machine", DEMO_ROUNDS, [rows]))
    print("\n| demo, quiet machine | pairs | told after | told before | told now | width before | width now |")
    print("|---|---|---|---|---|---|---|")
    for name, rows in demos(QUIET):
        for line in round_by_round(name, rows):
            print(line)
    print("\n| quiet hour, stretches of | stretches | more or sooner now | alike | more or sooner before |")
    print("|---|---|---|---|---|")
    for length in STRETCHES:
        print(sooner_or_later(length))


def round_by_round(name: str, rows: Rows) -> Iterator[str]:
    """Yield rows of a table: which intervals leave out "no change" after each round, and how wide they are."""
    names = list(rows)
    families = {
        f"{len(names) - 1} with the baseline": [(names[0], other) for other in names[1:]],
        f"all {len(names) * (len(names) - 1) // 2}": list(itertools.combinations(names, 2)),
    }
    for family, pairs in families.items():
        for seen in range(2, len(rows[names[0]]) + 1):
            part = {arm: values[:seen] for arm, values in rows.items()}
            found = (before(part, DEMO_ROUNDS, pairs), by_plan(part, DEMO_ROUNDS, pairs, first=2))
            known = [[one.ratio for one in each if one.ratio is not None] for each in found]
            left_out = [f"{sum(not ratio.low <= 1 <= ratio.high for ratio in each)}" for each in known]
            words = " | ".join((*left_out, *map(_width, known)))
            yield f"| {name}, {family} | {len(pairs)} | {seen} rounds | {words} |"


def _width(ratios: Sequence[Interval]) -> str:
    """Return the middle width of intervals, as a share of their lower ends."""
    if not ratios:
        return "-"
    width = statistics.median(ratio.high / ratio.low for ratio in ratios) - 1
    return f"{100 * width:.0f} %" if width < 9 else "x10 or more"


def sooner_or_later(length: int) -> str:
    """Return a row of a table: in how many stretches of the quiet hour does which judgement decide more or sooner?"""
    counts = [0, 0, 0]
    rows = dict(records())["quiet hour"]
    some = list(stretches(rows, length, apart=1))
    for one in some:
        gains = []
        for found in decided(one):
            moments = [at for at, _ in found.values()]
            gains.append(
                (sum(at is not None for at in moments), -max(length if at is None else at for at in moments))
            )
        counts[0 if gains[1] > gains[0] else 1 if gains[1] == gains[0] else 2] += 1
    return f"| {length} rounds | {len(some)} | {' | '.join(map(str, counts))} |"


def records() -> Iterator[tuple[str, Rows]]:
    """Yield every record with its name."""
    rows = json.loads(DEMO.read_text(encoding="utf-8"))
    yield (
        "demo, loaded host",
        {arm: [math.nan if one is None else one for one in found] for arm, found in rows.items()},
    )
    for name, file in HOURS.items():
        rounds = json.loads((DATA / file).read_text(encoding="utf-8"))
        yield name, {arm: [one.get(arm, math.nan) for one in rounds] for arm in ARMS}


def nights() -> Iterator[tuple[str, Rows]]:
    """Yield the demos of a night, whole and warm."""
    for name, rows in demos(NIGHT):
        yield f"demo at {name}", rows
        yield f"demo at {name} from round {COLD + 1}", {arm: values[COLD:] for arm, values in rows.items()}


def demos(file: Path) -> Iterator[tuple[str, Rows]]:
    """Yield the demos in a file, by the time when each was begun."""
    for name, found in json.loads(file.read_text(encoding="utf-8")).items():
        yield name, {arm: [math.nan if one is None else one for one in values] for arm, values in found.items()}


def stretches(rows: Rows, length: int, apart: int = APART) -> Iterator[Rows]:
    """Yield stretches of so many rounds."""
    for begin in range(0, len(next(iter(rows.values()))) - length + 1, apart):
        yield {arm: found[begin : begin + length] for arm, found in rows.items()}


def told(name: str, length: int, some: Sequence[Rows]) -> str:
    """Return a row of the table: how many pairs are decided, and after how many rounds all are or the plan ends."""
    pairs, rounds = [0, 0], [0, 0]
    for rows in some:
        for place, found in enumerate(decided(rows, length)):
            moments = [at for at, _ in found.values()]
            pairs[place] += sum(at is not None for at in moments)
            rounds[place] += max(length if at is None else at for at in moments)
    count = sum(len(rows) - 1 for rows in some)
    return (
        f"| {name}, {length} rounds | {len(some)} | {count} | {pairs[0]} | {pairs[1]} | {rounds[0]} | {rounds[1]} |"
    )


def decided(
    rows: Rows, planned: int | None = None
) -> tuple[dict[str, tuple[int | None, str]], dict[str, tuple[int | None, str]]]:
    """Return of each arm when it was decided against the baseline, and how: before plans, and by the plan. Without
    `planned` that is of as many rounds as there are.
    """
    names = list(rows)
    count = len(rows[names[0]]) if planned is None else planned
    return _first(rows, count, before, ROUNDS_MIN), _first(rows, count, by_plan, fewest_planned(len(names)))


def _first(rows: Rows, planned: int, judge: Judge, fewest: int) -> dict[str, tuple[int | None, str]]:
    found: dict[str, tuple[int | None, str]] = dict.fromkeys(list(rows)[1:], (None, "undecided"))
    for seen in range(fewest, len(next(iter(rows.values()))) + 1):
        for one in judge({name: values[:seen] for name, values in rows.items()}, planned):
            if found[one.candidate][0] is None and one.verdict is not Verdict.UNDECIDED:
                found[one.candidate] = (seen, one.verdict.value)
    return found


def before(rows: Rows, planned: int, pairs: Pairs | None = None) -> list[Comparison]:  # noqa: ARG001 - as `by_plan`
    """Judge as before plans: all pairs of arms shared the error, at any time. Without `pairs` those with the
    baseline.
    """
    names = list(rows)
    count = len(names) * (len(names) - 1) // 2
    against = [(names[0], name) for name in names[1:]] if pairs is None else pairs
    family = Family(metric=BY_ID["iops"], workload="w", margin=MARGIN, confidence=1 - ERROR / count)
    return compare_at_any_time(family, rows, against)


def by_plan(rows: Rows, planned: int, pairs: Pairs | None = None, *, first: int | None = None) -> list[Comparison]:
    """Judge by a plan of so many rounds, looked at after each from `first` on. Without `pairs` those with the
    baseline, as by default; any others share the error by Bonferroni, as with `--pairs all`.
    """
    names = list(rows)
    fewest = fewest_planned(len(names))
    against = [(names[0], name) for name in names[1:]]
    alpha = dunnett_alpha(len(names) - 1, ERROR)
    if pairs is not None and list(pairs) != against:
        against, alpha = list(pairs), ERROR / len(pairs)
    looks = tuple((float(n), n / planned) for n in range(fewest if first is None else first, len(rows[names[0]]) + 1))
    family = Family(metric=BY_ID["iops"], workload="w", margin=MARGIN, confidence=1 - alpha, fewest=fewest)
    return compare_planned(family, rows, against, level=level_of(looks, alpha))


def kept(store: Path) -> dict[str, list[float | None]]:
    """Return IOPS of the last comparison in a store, arm by arm, the baseline first; None where a trial gave none."""
    words = [sys.executable, "-m", "virtune", "show", "last", "--json", "--store", str(store)]
    found = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)
    arms = sorted(found["arms"], key=lambda arm: arm["name"] != found["study"]["baseline"])
    rounds = range(1, found["study"]["looks"][-1]["round"] + 1)
    each = {arm["name"]: {one["round"]: one["measurement"] for one in arm["rounds"]} for arm in arms}
    return {
        name: [ran[number]["values"].get("iops") if ran.get(number) else None for number in rounds]
        for name, ran in each.items()
    }


if __name__ == "__main__":
    main()
