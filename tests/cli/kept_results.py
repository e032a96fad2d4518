# SPDX-License-Identifier: Apache-2.0
"""Results of fio in files, and what is kept of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.published import strictly

from virtune.cli import run

Capture = pytest.CaptureFixture[str]
BENCH = Path(__file__).parents[1] / "captures" / "bench-fio"


class Kept:
    """A store in a folder, and what virtune prints of it."""

    def __init__(self, folder: Path, capsys: Capture) -> None:
        self.store, self.capsys = folder / "store.sqlite", capsys

    def __call__(self, *words: str, status: int = 0) -> str:
        assert run([*words, "--store", str(self.store)]) == status
        out, self.err = self.capsys.readouterr()
        return out

    def document(self, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = strictly(self("show", *words, "--json"))
        return found


def result(folder: Path, name: str, **changes: object) -> Path:
    """A real result, with some of its job's options changed."""
    document = json.loads((BENCH / "ssd" / "4k" / "randread-8-1.json").read_text())
    document["jobs"][0]["jobname"] = changes.pop("jobname", "job")
    scale = changes.pop("scale", 1.0)
    assert isinstance(scale, float)
    for key, value in changes.items():
        document["jobs"][0]["job options"][key] = value
    read = document["jobs"][0]["read"]
    for kind in ("clat_ns", "lat_ns", "slat_ns"):
        read[kind]["N"] = round(read[kind]["N"] * scale)
    for key in ("total_ios", "io_bytes", "iops", "bw_bytes"):
        read[key] = type(read[key])(read[key] * scale)
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path
