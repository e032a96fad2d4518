# SPDX-License-Identifier: Apache-2.0
"""How long trials take: what is asked of them, what each costs besides, and how many have to be repeated."""

from collections.abc import Sequence

from virtune.model.rig import RIGS
from virtune.model.stack import Stack
from virtune.model.study import Study

_GENERATOR_SECONDS = 0.1
"""The same where virtune-load runs: it starts and ends in 0.01 s."""

_GUEST_SECONDS = 0.5
"""What each further guest of a stack adds: they are made ready one after another."""

FILL_BYTES_PER_SECOND = 250e6
"""How fast a scratch image is filled; disks do between 100 MB/s and 2 GB/s."""

START_SECONDS = 1.5
"""What every run costs besides: Python and libraries are loaded, tools are asked, and the result is worked out."""

_LONGEST_REPEAT = 6
"""After so many attempts a cause that spoils most of them no longer repeats any (`analyse.trial.rejection`)."""

_RECENT = 6
"""How many attempts back it counts what had to be repeated: a disturbance comes and goes."""


def beside_seconds(stack: Stack) -> float:
    """Return what an attempt with this stack costs beside its warm-up and run."""
    rig = RIGS[stack.rig]
    if rig.front == "export" and stack.export == "vhost-user-blk":
        return _GENERATOR_SECONDS
    return rig.beside_seconds + _GUEST_SECONDS * (stack.guests - 1)


def round_seconds(study: Study) -> float:
    """Return about how long one round of all arms and workloads takes."""
    arms = sum(study.seconds + study.ramp_seconds + beside_seconds(arm.stack) for arm in study.arms)
    return len(study.workloads) * arms


def setup_seconds(study: Study, *, bytes_to_fill: int) -> float:
    """Return about what a study takes before its first trial: images filled, guests booted, every arm up once."""
    rigs = [RIGS[arm.stack.rig] for arm in study.arms]
    up, boot = sum(rig.up_seconds for rig in rigs), max(rig.boot_seconds for rig in rigs)
    return START_SECONDS + bytes_to_fill / FILL_BYTES_PER_SECOND + boot + up


def attempts_for(trials: int, repeated: Sequence[bool], *, busy: bool = False) -> float:
    """Return how many attempts so many trials take.

    `repeated` says of every attempt so far whether it had to be repeated; before the first one, `busy` says whether
    the host is. What spoils most attempts is soon taken as the host's state, and then repeats nothing.
    """
    recent = repeated[-_RECENT:]
    share = sum(recent) / len(recent) if recent else float(busy)
    more = trials * (share + share**2)
    if share > 0.5:
        more = min(more, max(0, _LONGEST_REPEAT - len(repeated)) * 2 / 3)
    return trials + more
