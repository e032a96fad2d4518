# SPDX-License-Identifier: Apache-2.0
"""Which other processes are named: of many only a few, and none of no interest in the place of one that is."""

from virtune.probe.neighbours import SHOWN_MAX, NeighbourLook, NeighbourSeen, neighbours

VMS = range(100, 110)
"""More than are shown, and each moves more than the others."""

OTHERS = {7: ("backup", 30), 8: ("shell", 0)}
"""What is no VM, with the MiB that it moved in a second."""


def look(seconds: int) -> NeighbourLook:
    """All of them after so many seconds."""
    moved = {pid: (f"qemu-{pid}", pid) for pid in VMS} | OTHERS
    return NeighbourLook(
        seconds=seconds,
        processes={
            pid: NeighbourSeen(started=1, name=name, ticks=0, moved=mib * seconds * 1024**2)
            for pid, (name, mib) in moved.items()
        },
    )


def test_what_is_left_out_takes_no_place_of_what_is_named() -> None:
    every = neighbours(look(1), look(2), by_bytes=True)
    assert [one.pid for one in every] == [*VMS][: -SHOWN_MAX - 1 : -1]
    (other,) = neighbours(look(1), look(2), by_bytes=True, without={*VMS})
    assert (other.pid, other.name, other.bandwidth_bps) == (7, "backup", 30 * 1024**2)
    assert not neighbours(look(1), look(2), without={*VMS, 7})
