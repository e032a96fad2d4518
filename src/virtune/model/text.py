# SPDX-License-Identifier: Apache-2.0
"""Make text from files and other programs safe to show."""


def printable(text: str, *, keep: str = "", most: int | None = None) -> str:
    """Return text without control characters: each unprintable character becomes `?`, except those in `keep`.

    At most `most` characters are returned.
    """
    return "".join(character if character.isprintable() or character in keep else "?" for character in text[:most])


_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""The characters that begin a formula in a spreadsheet; names may come from untrusted files."""


def spreadsheet_cell(text: str) -> str:
    """Return a name that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text
