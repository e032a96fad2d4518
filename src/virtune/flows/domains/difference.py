# SPDX-License-Identifier: Apache-2.0
"""The diff of two texts of one VM, in the format of `diff -u` and `patch`."""

import difflib

from virtune.dialects.text.masking import masked


def unified(before: bytes, after: bytes, *, name: str) -> str:
    """Return a unified diff of two texts; empty when there is none. Passwords are never shown."""
    lines = difflib.unified_diff(_lines(before), _lines(after), name, f"{name} (changed)", n=2)
    return "".join(lines).removesuffix("\n")


def _lines(text: bytes) -> list[str]:
    """The lines of a text with their ends, which `patch` compares too."""
    *lines, last = masked(text.decode(errors="replace")).split("\n")
    return [*(f"{line}\n" for line in lines), *([f"{last}\n\\ No newline at end of file\n"] if last else [])]
