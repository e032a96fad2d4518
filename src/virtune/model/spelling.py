# SPDX-License-Identifier: Apache-2.0
"""What a misspelled word may have meant."""

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST = 40
"""Comparing words costs the square of their length, and nobody misspells a longer one."""


def did_you_mean(word: str, choices: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return "did you mean `x`?" for the choice closest to the word, None when none is close.

    `cutoff` is how much of the two must agree (difflib's ratio); more where the word may well be right elsewhere.
    """
    known = sorted(choices)
    folded = {choice.casefold(): choice for choice in reversed(known)}
    close = get_close_matches(word[:LONGEST].casefold(), folded, n=1, cutoff=cutoff)
    return f"did you mean `{folded[close[0]]}`?" if close else None


def quoted(text: str) -> str:
    """Quote what a user wrote for a message: one line, not too long, nothing that could garble a terminal."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
