# SPDX-License-Identifier: Apache-2.0
"""The knob table: every knob on the I/O path, one row each, in the order of the path.

The command line, plan files, the reference page and the queries to QEMU all read this table, which is data
(`knobs.json`): a knob that virtune turns has a `place` in a Stack and the `rigs` that it applies to, the others are
only explained. Knobs that our knowledge base treats together share a number (K01..K108).

A line of `source` begins with its kind of evidence: `[T]` tried by hand, `[C]` read in source code or a commit, `[D]`
official documentation, `[P]` a patch or post by the feature's author (numbers are the author's), `[B]` a blog or a
vendor's note, `[U]` unverified: commonly said, but not proven.
"""

import difflib
import re
from collections.abc import Callable
from typing import Any

from virtune.model import knob as kinds
from virtune.model.errors import PlanError
from virtune.model.stack import Stack, setting_of, writes_through


def _knob(row: dict[str, Any]) -> kinds.Knob:
    ask = row.get("ask")
    return kinds.Knob(
        id=row["id"],
        number=row["number"],
        layer=kinds.Layer(row["layer"]),
        domain=_domain(**row["domain"]),
        default=row["default"],
        needs=tuple(row.get("needs", ())),
        ask=None if ask is None else next(kind for key, kind in _ASKS.items() if key in ask)(**ask),
        change=kinds.Change(row["change"]),
        in_guest=kinds.Change(row["in_guest"]) if "in_guest" in row else None,
        risk=kinds.Risk(row.get("risk", kinds.Risk.NONE)),
        risk_note=row.get("risk_note", ""),
        what=row["what"],
        why=row["why"],
        spelled=row.get("spelled", {}),
        source=tuple(row["source"]),
        place=tuple(row.get("place", ())),
    )


_ASKS: dict[str, type[kinds.AskSchema | kinds.AskDevice | kinds.AskObject]] = {
    "command": kinds.AskSchema,
    "device": kinds.AskDevice,
    "object": kinds.AskObject,
}
"""The kinds of questions, by the key that each has alone."""


def _domain(kind: str, **words: Any) -> kinds.Domain:
    plain = {name: tuple(value) if isinstance(value, list) else value for name, value in words.items()}
    return _DOMAINS[kind](**plain)


_DOMAINS: dict[str, Callable[..., kinds.Domain]] = {
    "choice": kinds.Choice,
    "number": kinds.Number,
    "size": kinds.Size,
    "switch": kinds.Switch,
    "text": kinds.Text,
}


KNOBS: tuple[kinds.Knob, ...] = tuple(map(_knob, kinds.ROWS))
"""All knobs, from the application down to the medium."""

BY_ID: dict[str, kinds.Knob] = {knob.id: knob for knob in KNOBS}

TURNED = tuple(knob for knob in KNOBS if knob.place)

_FIXED = frozenset({kinds.Change.POWEROFF, kinds.Change.HOST_REBOOT})
"""Changes that need a new process."""

_ANEW = frozenset({kinds.Change.REPLUG, kinds.Change.POWEROFF, kinds.Change.HOST_REBOOT})
"""Changes that need a new device or machine in a guest."""

_NUMBER = re.compile(r"[Kk]0*([0-9]{1,3})", re.ASCII)


def find(knob_id: str) -> kinds.Knob:
    """Return the knob of an id (`disk.aio`) or of a number (`K45`: its first knob).

    Raises PlanError with the nearest id as a hint.
    """
    return matching(knob_id)[0]


def matching(name: str) -> tuple[kinds.Knob, ...]:
    """Return the knobs that a name means: one id, all of a number (`K50`), or all of a family (`iothread`).

    Raises PlanError with the nearest id as a hint.
    """
    name = name.strip()
    if name in BY_ID:
        return (BY_ID[name],)
    if found := _NUMBER.fullmatch(name):
        wanted = f"K{int(found[1]):02d}"
        same = tuple(knob for knob in KNOBS if knob.number == wanted)
    else:
        same = tuple(knob for knob in KNOBS if knob.id.startswith(f"{name}."))
    if not same:
        raise PlanError(f"there is no knob {name!r}", hint=_nearest(name))
    return same


def turned(before: Stack, after: Stack) -> tuple[kinds.Knob, ...]:
    """Return the knobs in which two stacks differ."""
    return tuple(knob for knob in TURNED if setting_of(before, knob) != setting_of(after, knob))


def needs_new_process(before: Stack, after: Stack) -> kinds.Knob | None:
    """Return the first differing knob of two stacks that cannot be changed on a running process, None without one."""
    return next((knob for knob in turned(before, after) if knob.change in _FIXED), None)


def whole_plot(stack: Stack) -> tuple[object, ...]:
    """Return the settings for which the rig has to make a new device (in a guest) or a new process (elsewhere).

    Stacks with equal settings of these can be swapped without a new device or process; each group of them is a whole
    plot of a split-plot design.
    """
    if stack.kind.own_guest:
        anew = (knob for knob in TURNED if (knob.in_guest or knob.change) in _ANEW)
        return writes_through(stack), *(setting_of(stack, knob) for knob in anew)
    return tuple(setting_of(stack, knob) for knob in TURNED if knob.change in _FIXED)


def _nearest(name: str) -> str:
    """Suggest the knob that was probably meant; people often write its last word only, or hyphens for underscores."""
    plain = name.lower().replace("-", "_")
    if plain in BY_ID:
        return f"did you mean `{plain}`?"
    # of two that could be meant, the one that can be set
    last = {knob.id.rpartition(".")[2]: knob.id for knob in (*reversed(KNOBS), *reversed(TURNED))}
    close = [last[plain.rpartition(".")[2]]] if plain.rpartition(".")[2] in last else []
    for ids in ([knob.id for knob in TURNED], [*BY_ID]):
        close += difflib.get_close_matches(plain, ids, n=1, cutoff=0.75)
        close += [last[word] for word in difflib.get_close_matches(plain.rpartition(".")[2], last, n=1, cutoff=0.75)]
    close += difflib.get_close_matches(plain, BY_ID, n=1)
    return f"did you mean `{close[0]}`?" if close else "`virtune host knobs` lists them all"
