# SPDX-License-Identifier: Apache-2.0
"""A configuration language of VMs: how to recognise, read and alter it, and what it lacks (pure).

`alter` changes one setting and keeps everything else byte for byte; a setting that a language cannot express is
refused with the reason.
"""

import json
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from virtune.model.domain import Domain, SettingChange
from virtune.model.errors import PlanError
from virtune.model.knob import Layer
from virtune.model.knobs import BY_ID

ROWS: Mapping[str, Mapping[str, Any]] = json.loads(pkgutil.get_data("virtune.dialects", "languages.json") or b"")
"""Of each language the notation of every supported knob (`says`), and of the others, by the reason, which they are
(`refusals`); of every language the settings that no VM configuration has; and the `words` of libvirt's XML.
"""


def refusals_of(language: str) -> dict[str, str]:
    """Return the reasons why a language cannot set knobs, as far as it has its own."""
    rows = ROWS.get(language, {}).get("refusals", {})
    return {knob: because for because, knobs in rows.items() for knob in knobs}


IMAGE_REFUSALS: Mapping[str, str] = refusals_of("every language")
"""Settings that no VM configuration has, in any language."""

DESCRIBED = frozenset({Layer.DEVICE, Layer.BLOCK, Layer.PLACEMENT})
"""The layers that a VM's configuration covers; the others belong to the guest, the host or the storage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """One language. `text` is the name of a configuration in it, with its article.

    `says` has the notation of every supported knob, `refusals` the reasons for the others: those of the table under
    the language's name, unless they are given. `implied` are knobs that follow from others: a system that makes an
    IOThread for each disk that requests one has no count to set, and a change of it has no effect. `turn` gets the
    text, the change and the name of the domain, for texts with several. `require_accepted` gets the text before and
    after all changes, and raises PlanError for what the system would refuse. `commands` returns the same change as
    command lines; `given_back` is False where only these can make the change, since the system does not take the
    text back. `live` reads the running configuration, where a text separates it from the pending one.
    """

    name: str
    title: str
    text: str
    knows: Callable[[bytes], bool]
    domains: Callable[[bytes], tuple[Domain, ...]]
    turn: Callable[[bytes, SettingChange, str], bytes]
    says: Mapping[str, str] = field(default_factory=dict)
    refusals: Mapping[str, str] = field(default_factory=dict)
    implied: frozenset[str] = frozenset()
    require_accepted: Callable[[bytes, bytes], None] | None = None
    commands: Callable[[bytes, bytes, str], tuple[str, ...]] | None = None
    given_back: bool = True
    live: Callable[[bytes], Domain | None] | None = None

    def __post_init__(self) -> None:
        """Take what is not given from the table."""
        object.__setattr__(self, "says", self.says or ROWS.get(self.name, {}).get("says", {}))
        object.__setattr__(self, "refusals", self.refusals or refusals_of(self.name))

    @property
    def writes(self) -> bool:
        """Whether virtune writes any setting in it."""
        return bool(self.says)

    def read(self, text: bytes) -> Domain:
        """Read the domain of a text, the first where it holds several; raises ReadError."""
        return self.domains(text)[0]

    def refusal(self, knob: str) -> str | None:
        """Return why this language cannot set a knob; None if it can."""
        if knob in self.says:
            return None
        known = self.refusals.get(knob) or IMAGE_REFUSALS.get(knob)
        if known is not None:
            return known
        if knob.startswith(("memory.", "limits.")):
            return "it is about the VM's memory or its process, which virtune leaves as they are"
        row = BY_ID.get(knob)
        if row is not None and row.layer in DESCRIBED:
            return f"{self.title} has no word for it, or none that virtune knows"
        return "it is not part of a VM's configuration"

    def alter(self, text: bytes, *turns: SettingChange, domain: str = "") -> bytes:
        """Return a text with settings changed, one after the other.

        Raises PlanError for a setting that the language cannot express, a missing place, or a value that the system
        would refuse, ReadError for a text that is not in this language.
        """
        after = text
        for _, changed in self.steps(text, turns, {}, domain=domain):
            after = changed
        return after

    def steps(
        self, text: bytes, turns: Sequence[SettingChange], names: dict[str, str], *, domain: str = ""
    ) -> Iterator[tuple[SettingChange, bytes]]:
        """Yield each change with the text after it; raises like `alter`.

        Changes use a disk's original name; `names` has its present name, where a change renamed it.
        """
        before = text
        for turn in turns:
            if turn.knob not in self.implied:
                because = self.refusal(turn.knob)
                if because is not None:
                    raise PlanError(f"{turn.knob} cannot be written into {self.text}: {because}")
                changed = self.turn(text, replace(turn, at=names.get(turn.at, turn.at)), domain)
                if turn.knob == "device.bus" and changed != text:
                    names.update(self._renamed(text, changed, names))
                text = changed
            yield turn, text
        if self.require_accepted is not None and text != before:
            self.require_accepted(before, text)

    def _renamed(self, before: bytes, after: bytes, names: Mapping[str, str]) -> dict[str, str]:
        first = {now: once for once, now in names.items()}
        pairs = zip(self.read(before).disks, self.read(after).disks, strict=True)
        return {first.get(old.target, old.target): new.target for old, new in pairs if old.target != new.target}


def one_of(turn: SettingChange, words: Mapping[str, str], *, otherwise: str = "") -> str:
    """Return a language's notation of a value; raises PlanError with the values that it has."""
    if turn.value is not None and turn.value in words:
        return words[turn.value]
    because = otherwise or f"it has {', '.join(words)}"
    raise PlanError(f"{turn.knob}={(turn.value or '')[:40]} cannot be written here: {because}")


def no_disk(turn: SettingChange, there: Iterable[str]) -> PlanError:
    names = sorted(there)
    hint = f"its disks: {', '.join(names[:12])}" if names else "it has no disks at all"
    if turn.at:
        return PlanError(f"there is no disk {turn.at[:60]!r} here", hint=hint)
    value = "" if turn.value is None else turn.value[:40]
    return PlanError(f"{turn.knob} needs a disk: write {turn.knob}@DISK={value}", hint=hint)
