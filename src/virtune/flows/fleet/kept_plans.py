# SPDX-License-Identifier: Apache-2.0
"""Plans of what is done on many hosts, each kept in a file where it was made before it begins, and found by its name.

So whoever comes next goes on with a run, or undoes a change, that was killed.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import TypeAdapter

from virtune.bounded import read_bounded
from virtune.model.errors import PreconditionError, UsageError
from virtune.model.fleet import FleetChange, FleetRun
from virtune.model.text import printable
from virtune.shell import data_directory

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_BYTES_MAX = 16 * 1024**2

Plan = TypeVar("Plan", FleetRun, FleetChange)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPlans(Generic[Plan]):
    """The plans of one kind: `what` is one of them in a sentence, `made_by` says which command makes one."""

    kind: type[Plan]
    folder: str
    what: str
    made_by: str

    def keep(self, plan: Plan) -> None:
        """Write a plan, whole or not at all. Raises PreconditionError where it cannot be written."""
        path = self.place / f"{plan.name}.json"
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            part = path.with_suffix(f".{os.getpid()}")
            part.write_bytes(TypeAdapter(self.kind).dump_json(plan))
            part.replace(path)
        except OSError as error:
            why = (error.strerror or "").lower()
            raise PreconditionError(f"cannot keep the {self.what} in {path.parent}: {why}") from None

    def find(self, name: str) -> Plan:
        """Return a plan by its name, the beginning of it, or `last`. Raises UsageError where there is none."""
        known = sorted(path.stem for path in self.place.glob("*.json") if _NAME.fullmatch(path.stem))
        fitting = known[-1:] if name == "last" else [one for one in known if name and one.startswith(name)]
        if len(fitting) > 1:
            hint = f"write more of it: {', '.join(fitting[:5])}"
            raise UsageError(f"{printable(name, most=60)!r} fits {len(fitting)} {self.what}s", hint=hint)
        if not fitting:
            hint = f"the newest here: {', '.join(known[-3:])}" if known else self.made_by
            raise UsageError(f"no {self.what} {printable(name, most=60)!r} of a fleet", hint=hint)
        try:
            return TypeAdapter(self.kind).validate_json(read_bounded(self.place / f"{fitting[0]}.json", _BYTES_MAX))
        except (OSError, ValueError):
            raise PreconditionError(f"the plan of the {self.what} {fitting[0]} is damaged") from None

    @property
    def place(self) -> Path:
        """The directory of the plans."""
        return data_directory() / self.folder


RUNS = KeptPlans(kind=FleetRun, folder="fleet-runs", what="run", made_by="`virtune fleet run` makes one")
CHANGES = KeptPlans(
    kind=FleetChange,
    folder="fleet-changes",
    what="change",
    made_by="`virtune fleet apply` says the name of the change that it makes",
)
