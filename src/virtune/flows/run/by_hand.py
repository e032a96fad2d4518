# SPDX-License-Identifier: Apache-2.0
"""What a user does by hand where virtune writes no configuration: a QEMU's command line, running or in a file."""

import contextlib
from collections.abc import Iterator, Sequence

from virtune.bench.live.emulators import emulators_here
from virtune.bench.live.monitor import monitored
from virtune.flows.domains.domains import FoundDomain
from virtune.flows.run.fix import DRIVEN
from virtune.model.domain import SettingChange
from virtune.model.errors import PreconditionError, RigError
from virtune.model.knobs import find
from virtune.model.stack import LIMITS


def by_hand(found: FoundDomain, target: str, turns: Sequence[SettingChange]) -> Iterator[str]:
    """Yield what makes these changes of a disk: its limits at once, where it runs and its monitor tells how, and all
    of them from the next start on, but for limits that it has now alone.
    """
    limits = {one.knob: one for one in LIMITS}
    if any(turn.knob in limits and turn.value is None for turn in turns):
        for command in _lifts(found, target):
            yield f"at once and until QEMU ends, by QMP, the limits of {target} are lifted by: {command}"
        if found.subject.running is not None:
            yield f"`virtune diagnose {found.subject.like or found.subject.domain.name}` tells what limits it now"
    written = found.subject.domain.disk(target)
    for turn in turns:
        limit, at = limits.get(turn.knob), turn.at or "the VM"
        if limit is not None and turn.value is None:
            if written is None or limit.libvirt not in written.rate_limits:
                continue
            how = f"leave out throttling.{limit.qmp} ({limit.drive}) of its -drive, or x-{limit.qmp} of its group"
        else:
            how = f"no {turn.knob}" if turn.value is None else f"{turn.knob}={turn.value}"
            spelled = find(turn.knob).spelled.get("qemu")
            how += f" ({spelled})" if spelled else ""
            how += ", once its guest has the driver" if turn.knob in DRIVEN else ""
        yield f"from its next start on, in what starts it, for {at}: {how}"


def _lifts(found: FoundDomain, target: str) -> tuple[str, ...]:
    """Return the commands of the monitor that lift the limits of a disk that runs here; none where it has none."""
    sockets = (one.sockets for one in emulators_here() if str(one.command_line) == found.origin)
    for place in (place for some in sockets for place in some):
        with contextlib.suppress(PreconditionError, RigError), monitored(place, paused_too=True) as view:
            return tuple(
                dict.fromkeys(way for one in view.vm.disks if one.target == target for way in one.lifts.values())
            )
    return ()
