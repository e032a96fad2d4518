# SPDX-License-Identifier: Apache-2.0
"""Times as fio writes them."""

import re


def milliseconds(text: str) -> int:
    """Read a time as fio writes it (`30`, `300ms`, `2m`), in milliseconds."""
    number = int(re.match(r"[0-9]+", text)[0])  # type: ignore[index]
    unit = text.lstrip("0123456789")
    return (
        number // 1000 if unit == "us" else number * {"": 1000, "s": 1000, "ms": 1, "m": 60_000, "h": 3_600_000}[unit]
    )


def in_milliseconds(seconds: float) -> str:
    """Write a time as fio takes it: `runtime=0.3` is not 300 ms for it."""
    return f"{round(seconds * 1000)}ms"
