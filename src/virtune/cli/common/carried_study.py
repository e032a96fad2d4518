# SPDX-License-Identifier: Apache-2.0
"""A study that a fleet began on this host: whoever carries it is told which study runs, and how far it came."""

from collections.abc import Callable
from dataclasses import dataclass

import click

from virtune.store.progress import RunProgress


@dataclass(slots=True)
class CarriedStudy:
    """`begin` is called with the id of the study before its first trial; `run` is how far it was at the end."""

    begin: Callable[[str], None]
    run: RunProgress | None = None


def carried_now() -> CarriedStudy | None:
    """Return what carries the command that runs; None where a user called it."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.find_object(CarriedStudy)
