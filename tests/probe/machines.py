# SPDX-License-Identifier: Apache-2.0
"""Recorded machines: unpacks the tree of one into a directory that probes can take for their root."""

import json
from pathlib import Path

CAPTURES = Path(__file__).parents[1] / "captures"


def unpack(machine: str, directory: Path) -> Path:
    """Write the files and links of a recorded machine below a directory, and return that."""
    tree = json.loads((CAPTURES / machine / "tree.json").read_text())
    for path, content in tree["files"].items():
        place = directory / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content + "\n")
    for path, target in tree["links"].items():
        place = directory / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)
    return directory
