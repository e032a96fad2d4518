# SPDX-License-Identifier: Apache-2.0
"""Other people's text made safe to show."""


def printable(text: str, *, keep: str = "", most: int | None = None) -> str:
    """Return text that does nothing to a terminal: what is not printable is a `?`, but for the characters in `keep`.

    At most `most` characters are returned.
    """
    return "".join(character if character.isprintable() or character in keep else "?" for character in text[:most])
