# SPDX-License-Identifier: Apache-2.0
"""What a trial left behind: raw captures as they came, and what was found in force."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """Raw evidence by name (`fio.json`, `job.fio`, `counters.jsonl`, ...), byte for byte as it came."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One setting: what was asked for, what was found on the running process, and how it was seen.

    `found` is None where the running system gives no way to see the setting; that is said, never assumed to agree.
    """

    setting: str
    asked: str
    found: str | None
    proof: str

    @property
    def agrees(self) -> bool | None:
        """Whether what was asked is what runs; None when it could not be seen."""
        return None if self.found is None else self.asked == self.found


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """All checks of one stack that is up."""

    checks: tuple[Check, ...] = ()

    @property
    def mismatches(self) -> tuple[Check, ...]:
        """The checks in which something else runs than was asked for."""
        return tuple(check for check in self.checks if check.agrees is False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything one trial left: captures, what was in force, and whether fio came to its end."""

    captures: tuple[Capture, ...]
    in_force: InForce

    def capture(self, name: str) -> bytes | None:
        """Return the content of the capture of that name, or None."""
        return next((c.content for c in self.captures if c.name == name), None)
