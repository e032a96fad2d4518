# SPDX-License-Identifier: Apache-2.0
"""A workload of what ESXi's `vscsiStats -p all -c` counted of one virtual disk, in fio's options.

Its histograms give the sizes of reads and of writes, how far each request begins from the nearest of the 16 before
it (1 is the block behind that), and how many were outstanding when each came, itself included, which is what an
`iodepth` is. A size is known to its bucket, whose limit is taken; those beyond the last limit have what the mean
leaves for them. Flushes are not counted, and how bursts follow each other is not told.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from virtune.fio.workloads import file_label, parse_workload, pattern_words, size_word
from virtune.model.errors import PlanError
from virtune.model.text import quoted
from virtune.model.workload import Workload

_BEGINS = "Histogram: "
_PROMPT = re.compile(r"\[[^\]]*@[^\]]*\]")
"""How ESXi's shell begins a line, which is copied with what stands below it."""

_HINT = "vscsiStats -w WORLD -i HANDLE -p all -c > FILE prints all of one disk"
_HEAD = re.compile(
    r"Histogram: (?P<what>[^\n]{1,100}?),virtual machine worldGroupID\s*[,:]\s*(?P<world>\d{1,12})"
    r",\s*virtual disk handleID\s*[,:]\s*(?P<disk>[^\n]{1,60})"
)
_READS, _WRITES = "IO lengths of Read commands", "IO lengths of Write commands"
_DISTANCE = "distance (in LBNs) between each command from the closest of previous 16"
_OUTSTANDING = "number of outstanding IOs when a new IO is issued"
_LINES_MAX = 100_000
_SECTOR = 512
_LARGEST = 1024**2 * 32


@dataclass(frozen=True, slots=True)
class _Histogram:
    """Counts by their buckets' upper limits, in their order; the last bucket has what is beyond the limit before."""

    mean: float
    count: int
    buckets: tuple[tuple[int, int], ...]


def is_printout(text: str) -> bool:
    """Whether this is a printout of vscsiStats, maybe behind other lines; no job file has such a line."""
    return re.search(f"^{_BEGINS}", text, re.MULTILINE) is not None


def vscsi_workload(text: str, name: str) -> Workload:
    """Read a printout of one disk; lines before it are passed over. Raises PlanError for several disks, or where a
    histogram that is needed is missing, holds nothing or contradicts itself.
    """
    label = file_label(name)
    found: dict[str, _Histogram] = {}
    disks: dict[tuple[str, str], None] = {}
    for what, disk, histogram in _histograms(text, label):
        disks[disk] = None
        if what in found and len(disks) == 1:
            raise PlanError(f"{label} holds several printouts of one disk", hint="give the last one alone")
        found[what] = histogram
    if len(disks) > 1:
        names = ", ".join(f"{one} of world {world}" for world, one in [*disks][:8])
        raise PlanError(f"{label} has {len(disks)} disks: {names}", hint=_HINT)
    missing = [one for one in (_READS, _WRITES, _DISTANCE, _OUTSTANDING) if one not in found]
    if missing:
        raise PlanError(f"{label} has no histogram {quoted(missing[0])}", hint=_HINT)
    reads, writes = found[_READS], found[_WRITES]
    if not reads.count + writes.count:
        raise PlanError(
            f"{label} counted no I/O", hint="`vscsiStats -s` starts it, and it is printed some minutes later"
        )
    near = sum(count for limit, count in found[_DISTANCE].buckets if limit == 1)
    words = pattern_words(reads.count, writes.count, near / max(1, found[_DISTANCE].count))
    splits = [_split(one) for one in (reads, writes) if one.count]
    same = splits[:1] if len(set(splits)) == 1 else splits
    alone = all(split.endswith("/100") and ":" not in split for split in same)
    sizes = ",".join(split.removesuffix("/100") if alone else split for split in same)
    words += [f"{'bs' if alone else 'bssplit'}={sizes}", f"iodepth={max(1, round(found[_OUTSTANDING].mean))}"]
    (workload,) = parse_workload(f"{label}: {','.join(words)}")
    return workload


def _histograms(text: str, label: str) -> Iterator[tuple[str, tuple[str, str], _Histogram]]:
    lines = text.replace("\r\n", "\n").split("\n")
    if len(lines) > _LINES_MAX:
        raise PlanError(f"{label} has more than {_LINES_MAX} lines", hint=_HINT)
    heads = [number for number, line in enumerate(lines) if line.startswith(_BEGINS)]
    for begin, end in pairwise([*heads, len(lines)]):
        where = f"{label} line {begin + 1}"
        if (head := _HEAD.fullmatch(lines[begin].strip())) is None:
            raise PlanError(f"{where} is no head of a histogram as vscsiStats -c writes it", hint=_HINT)
        yield head["what"], (head["world"], head["disk"]), _histogram(lines[begin + 1 : end], where)


def _histogram(lines: list[str], where: str) -> _Histogram:
    told: dict[str, int] = {}
    buckets = []
    for line in filter(None, map(str.strip, lines)):
        first, _, second = line.partition(",")
        if re.fullmatch(r"-?\d{1,18}", second) and first in ("min", "max", "mean", "count"):
            told[first] = int(second)
        elif re.fullmatch(r"\d{1,18}", first) and re.fullmatch(r"-?\d{1,18}", second):
            buckets.append((int(second), int(first)))
        elif first != "Frequency" and _PROMPT.match(line) is None:
            raise PlanError(f"{where}: {quoted(line)} is no line of a histogram", hint=_HINT)
    if (
        not told.keys() >= {"mean", "count"}
        or len(buckets) < 2
        or sum(count for _, count in buckets) != told["count"]
    ):
        raise PlanError(f"{where}: what it counted is not what its buckets hold", hint=_HINT)
    return _Histogram(told["mean"], told["count"], tuple(buckets))


def _split(sizes: _Histogram) -> str:
    """Return fio's `bssplit` of one direction: sizes in whole sectors, with whole percents that sum to 100."""
    counts: dict[int, int] = {}
    *within, (_, beyond) = sizes.buckets
    for limit, count in within:
        size = _whole_sectors(limit)
        counts[size] = counts.get(size, 0) + count
    if beyond:
        rest = sizes.mean * sizes.count - sum(size * count for size, count in counts.items())
        largest = max(_whole_sectors(round(rest / beyond)), _whole_sectors(within[-1][0]))
        counts[largest] = counts.get(largest, 0) + beyond
    return ":".join(f"{size_word(size)}/{share}" for size, share in _percents(counts).items())


def _whole_sectors(size: int) -> int:
    return min(_LARGEST, max(_SECTOR, -(-size // _SECTOR) * _SECTOR))


def _percents(counts: Mapping[int, int]) -> dict[int, int]:
    """Return whole percents by the largest remainders, without those of none."""
    total = sum(counts.values())
    found = {size: 100 * count // total for size, count in counts.items()}
    missing = 100 - sum(found.values())
    for size in sorted(counts, key=lambda size: -(100 * counts[size] % total))[:missing]:
        found[size] += 1
    return {size: share for size, share in found.items() if share}
