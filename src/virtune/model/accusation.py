# SPDX-License-Identifier: Apache-2.0
"""An Accusation: what a diagnosis names as the limit, kept with the study that tests it."""

from dataclasses import dataclass

from virtune.model.bottleneck import Bottleneck


@dataclass(frozen=True, slots=True, kw_only=True)
class Accusation:
    """The accusation of a stored study, and the arms that test it.

    `source` is the diagnosed study, `disk` and `workload` its arm and load. `what` says what takes the place of the
    accused layer, in the arm `replaced`; `stand_in` is the arm with a device of the same mean latency, None without
    one. `share` is the part of an I/O's time that the diagnosis gave to the layer, None where it gave none. `notes`
    are what else a reader must know.
    """

    source: str
    disk: str
    workload: str
    found: Bottleneck
    what: str
    replaced: str
    stand_in: str | None = None
    share: float | None = None
    notes: tuple[str, ...] = ()
