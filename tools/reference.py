# SPDX-License-Identifier: Apache-2.0
"""Writes the generated pages of docs/reference: `python -m tools.reference`, with `--check` to compare only.

Each page is a function without arguments that returns its text; PAGES names them all.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tools.pages import cli, dialects, exit_codes, knobs, metrics, options, plan, remarks, rules, workloads
from tools.schemas.documents import DOCUMENTS, record, schema
from virtune.model.knob import Layer

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"

PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli.page,
    "dialects.md": dialects.page,
    "exit-codes.md": exit_codes.page,
    "knobs.md": knobs.index,
    **{knobs.name_of(layer): partial(knobs.page, layer) for layer in Layer},
    "metrics.md": metrics.page,
    "options.md": options.page,
    "plan.md": plan.page,
    "remarks.md": remarks.page,
    "rules.md": rules.page,
    "workloads.md": workloads.page,
    **{f"{name}.schema.json": partial(schema, name) for name in (*DOCUMENTS, "plan")},
}
"""Every generated page by its file name in docs/reference."""

KEYS = "keys.json"
"""The page that holds the keys of every schema's number, which the next number alone may change."""


def main(arguments: Sequence[str]) -> int:
    """Write all pages, or say which are out of date; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.reference", description="Write docs/reference.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a page is out of date")
    only_check = parser.parse_args(arguments).check
    pages = {name: page() for name, page in PAGES.items()}
    pages[KEYS] = record({name: text for name, text in pages.items() if name.endswith(".schema.json")})
    stale = [name for name, text in pages.items() if _stale(REFERENCE / name, text)]
    for name in stale:
        if only_check:
            sys.stderr.write(f"docs/reference/{name} is out of date; run `python -m tools.reference`\n")
            continue
        REFERENCE.mkdir(parents=True, exist_ok=True)
        (REFERENCE / name).write_text(pages[name], encoding="utf-8")
        sys.stdout.write(f"wrote docs/reference/{name}\n")
    return 1 if stale and only_check else 0


def _stale(path: Path, text: str) -> bool:
    return not path.exists() or path.read_text(encoding="utf-8") != text


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
