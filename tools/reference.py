# SPDX-License-Identifier: Apache-2.0
"""Writes the generated pages of docs/reference: `python -m tools.reference`, with `--check` to compare only.

Each page is a function without arguments that returns its text; PAGES names them all.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.pages import cli, dialects, exit_codes, knobs, metrics, options, plan, remarks, rules, workloads
from tools.schemas import advice as advice_schema
from tools.schemas import audit as audit_schema
from tools.schemas import check as check_schema
from tools.schemas import derive as derive_schema
from tools.schemas import diagnose as diagnose_schema
from tools.schemas import domains as domains_schema
from tools.schemas import explain as explain_schema
from tools.schemas import fleet_apply as fleet_apply_schema
from tools.schemas import fleet_audit as fleet_audit_schema
from tools.schemas import fleet_gather as fleet_gather_schema
from tools.schemas import fleet_install as fleet_install_schema
from tools.schemas import fleet_inventory as fleet_inventory_schema
from tools.schemas import fleet_probe as fleet_probe_schema
from tools.schemas import fleet_report as fleet_report_schema
from tools.schemas import fleet_run as fleet_run_schema
from tools.schemas import keys
from tools.schemas import knobs as knobs_schema
from tools.schemas import listing as list_schema
from tools.schemas import plan as plan_schema
from tools.schemas import probe as probe_schema
from tools.schemas import result as result_schema
from tools.schemas import sweep as sweep_schema
from tools.schemas import top as top_schema
from tools.schemas import tune as tune_schema

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"

PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli.page,
    "dialects.md": dialects.page,
    "exit-codes.md": exit_codes.page,
    "knobs.md": knobs.page,
    "metrics.md": metrics.page,
    "options.md": options.page,
    "plan.md": plan.page,
    "remarks.md": remarks.page,
    "rules.md": rules.page,
    "workloads.md": workloads.page,
    "advice.schema.json": advice_schema.schema,
    "audit.schema.json": audit_schema.schema,
    "diagnose.schema.json": diagnose_schema.schema,
    "domains.schema.json": domains_schema.schema,
    "check.schema.json": check_schema.schema,
    "explain.schema.json": explain_schema.schema,
    "fleet-audit.schema.json": fleet_audit_schema.schema,
    "fleet-probe.schema.json": fleet_probe_schema.schema,
    "fleet-run.schema.json": fleet_run_schema.schema,
    "fleet-install.schema.json": fleet_install_schema.schema,
    "derive.schema.json": derive_schema.schema,
    "fleet-apply.schema.json": fleet_apply_schema.schema,
    "fleet-gather.schema.json": fleet_gather_schema.schema,
    "fleet-report.schema.json": fleet_report_schema.schema,
    "fleet-inventory.schema.json": fleet_inventory_schema.schema,
    "knobs.schema.json": knobs_schema.schema,
    "list.schema.json": list_schema.schema,
    "plan.schema.json": plan_schema.schema,
    "probe.schema.json": probe_schema.schema,
    "result.schema.json": result_schema.schema,
    "sweep.schema.json": sweep_schema.schema,
    "top.schema.json": top_schema.schema,
    "tune.schema.json": tune_schema.schema,
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
    pages[KEYS] = keys.record({name: text for name, text in pages.items() if name.endswith(".schema.json")})
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
