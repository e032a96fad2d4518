# SPDX-License-Identifier: Apache-2.0
"""A study that a fleet began on this host: whoever carries it is told which study runs, how long it is expected to
take, and how far it came.
"""

from collections.abc import Callable
from dataclasses import dataclass

import click

from virtune.model.errors import VirtuneError
from virtune.store.progress import RunProgress


class EstimatedError(VirtuneError):
    """Ends a study before its first step: only how long it would take was asked."""


@dataclass(slots=True)
class CarriedStudy:
    """`begin` is called with the id of the study before its first trial; `run` is how far it was at the end.

    `planned` is called with the expected seconds when all preconditions hold and nothing is made yet; None where no
    time can be said. It may raise EstimatedError.
    """

    begin: Callable[[str], None]
    planned: Callable[[float | None], None] = lambda _: None
    run: RunProgress | None = None


def carried_now() -> CarriedStudy | None:
    """Return what carries the command that runs; None where a user called it."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.find_object(CarriedStudy)
