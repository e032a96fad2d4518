# SPDX-License-Identifier: Apache-2.0
"""The recorded fio results: where they lie, and a `both` file taken apart."""

from pathlib import Path

FOLDER = Path(__file__).parents[1] / "captures" / "fio"
BOTH = sorted(path.name for path in FOLDER.glob("*.both"))
RESULTS = sorted(path.name for path in FOLDER.iterdir() if path.suffix in (".both", ".json", ".txt"))


def recorded(name: str) -> str:
    return (FOLDER / name).read_bytes().decode()


def text_of(name: str) -> str:
    """The text of a `both` file, without the JSON."""
    both = recorded(name)
    start = both.index("\n{\n")
    return both[:start] + both[both.index("\n}\n", start) + 2 :]
