# SPDX-License-Identifier: Apache-2.0
"""Printouts as ESXi's `vscsiStats -p all -c` writes them, of the histograms that are read."""

from collections.abc import Mapping

SIZES = (512, 1024, 2048, 4095, 4096, 8191, 8192, 16383, 16384, 32768, 49152, 65535, 65536, 81920, 131072, 262144,
         524288, 524288)  # fmt: skip
FAR = (500000, 100000, 50000, 10000, 5000, 1000, 500, 128, 64, 32, 16, 8, 6, 4, 2, 1)
PLACES = (*(-one for one in FAR), 0, *reversed(FAR), 500000)
WAITING = (1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32, 64, 64)
DISTANCE = "distance (in LBNs) between each command from the closest of previous 16"
OUTSTANDING = "number of outstanding IOs when a new IO is issued"


def histogram(
    what: str, limits: tuple[int, ...], counts: Mapping[int, int], *, mean: int = 0, disk: str = "8194 (scsi0:0)"
) -> str:
    """One histogram as `vscsiStats -c` prints it; counts are by the bucket's number where that is below 0."""
    lines = [f"Histogram: {what},virtual machine worldGroupID,2099979,virtual disk handleID,{disk}", "min,0", "max,9",
             f"mean,{mean}", f"count,{sum(counts.values())}", "Frequency,Histogram Bucket Limit"]  # fmt: skip
    found = [[0, limit] for limit in limits]
    for limit, count in counts.items():
        found[limit if limit < 0 else limits.index(limit)][0] += count
    return "\n".join([*lines, *(f"{count},{limit}" for count, limit in found), ""])


def printout(
    reads: Mapping[int, int], writes: Mapping[int, int], *, behind: int = 0, waiting: int = 4, mean: int = 4096,
    disk: str = "8194 (scsi0:0)",
) -> str:  # fmt: skip
    total = sum(reads.values()) + sum(writes.values())
    parts = [
        histogram("IO lengths of Read commands", SIZES, reads, mean=mean, disk=disk),
        histogram("IO lengths of Write commands", SIZES, writes, mean=mean, disk=disk),
        histogram(DISTANCE, PLACES, {1: behind, 500000: total - behind}, disk=disk),
        histogram(OUTSTANDING, WAITING, {waiting: total}, mean=waiting, disk=disk),
    ]
    return "".join(parts)
