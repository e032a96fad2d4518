# SPDX-License-Identifier: Apache-2.0
"""The tools of a simulated study, which needs no program, scratch image or target."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from virtune.bench.port import DiskImageSpec, Surroundings
from virtune.bench.rigs import session
from virtune.bench.scratch import Scratch
from virtune.fio.generator import Clients
from virtune.fio.options import ENGINES
from virtune.flows.run.trial import Tools
from virtune.model.errors import PreconditionError, RigError
from virtune.model.event import Event
from virtune.model.study import Study
from virtune.plan.guests import require_fit
from virtune.shell import Warden


@contextlib.contextmanager
def simulated_tools(study: Study, say: Callable[[Event], None]) -> Iterator[Tools]:
    """Yield the tools of a simulated study; raises PreconditionError for a target, which nothing would load."""
    if study.target is not None:
        raise PreconditionError("the simulated rig loads nothing, so it takes no --target", hint="omit --target")
    clients = Clients(engines=frozenset(ENGINES))
    require_fit(study, clients=clients)
    scratch = Scratch(Path(study.scratch), span_bytes=study.span_bytes, say=say)
    with Warden(study.id) as warden, session(Surroundings(warden=warden, scratch=scratch.directory)) as rigs:
        for arm in study.arms:
            try:
                with rigs.up(arm.stack, DiskImageSpec(image=None, size_bytes=study.span_bytes, writes=False)):
                    pass
            except RigError as error:
                raise PreconditionError(f"arm {arm.name!r}: {error.message}", hint=error.hint) from None
        yield Tools(programs={}, clients=clients, rigs=rigs, scratch=scratch, warden=warden, target=None)
