# SPDX-License-Identifier: Apache-2.0
"""Removing what killed runs left behind, and scratch images on request."""

from pathlib import Path

from virtune import warden
from virtune.bench.scratch import Scratch, private, scratch_files
from virtune.flows.appliance import clean_halves
from virtune.model.units import format_bytes


def clean(scratch: Path, *, images: bool) -> list[str]:
    """Remove what runs whose virtune is gone left behind; returns what was removed, in words.

    `images` removes virtune's scratch images too. Raises PreconditionError while another virtune measures there.
    """
    removed: list[str] = []
    for directory in warden.abandoned():
        removed += warden.sweep(warden.run_id_of(directory), directory)
    removed += clean_halves()
    if scratch.is_dir():
        place = private(scratch)
        removed += _scratch(place, images=images) if any(scratch_files(place)) else []
    return removed


def _scratch(scratch: Path, *, images: bool) -> list[str]:
    halves = [path for path in scratch_files(scratch) if path.name.endswith(".partial")]
    sizes = {path: path.stat().st_size for path in scratch_files(scratch)}
    # The lock is what tells that no other virtune measures here; taking it removes the halves.
    with Scratch(scratch, span_bytes=0, say=lambda _: None):
        gone = halves + ([path for path in scratch_files(scratch) if path not in halves] if images else [])
        for path in gone:
            path.unlink(missing_ok=True)
    return [f"{path} ({format_bytes(sizes.get(path, 0))})" for path in gone]
