# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/ build into a site without a broken link, and nothing in it is loaded from another host."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def pages_of(nav: object) -> set[str]:
    """Every page that the navigation names, however deep."""
    if isinstance(nav, str):
        return {nav}
    inner = nav.values() if isinstance(nav, dict) else nav
    return {page for one in inner for page in pages_of(one)}  # type: ignore[attr-defined]


def test_every_page_is_in_the_navigation() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert pages_of(nav) == {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}


def built(place: Path, version: str) -> "subprocess.CompletedProcess[str]":
    """Build the site of a version from a copy of what is in `place`."""
    script = (
        f"import pathlib, tools.site as s; s.ROOT = pathlib.Path('.'); s.build(pathlib.Path('site'), {version!r})"
    )
    env = dict(os.environ) | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", script], cwd=place, env=env, capture_output=True, text=True, timeout=120
    )


def test_the_site_builds_without_a_broken_link_and_needs_no_network(tmp_path: Path) -> None:
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for version in ("0.9.1", "0.10.0", "0.9.2", "0.11.0.dev0"):
        done = built(tmp_path, version)
        assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "site"
    pages = [*(site / "dev").rglob("*.html")]
    assert len(pages) > 20
    loads = re.compile(
        r"<(?:script|img|iframe)[^>]*\ssrc=[\"']?(?:https?:)?//[^\s>]*|<link[^>]*\shref=[\"']?https?://[^\s>]*"
    )
    assert [found for page in pages for found in loads.findall(page.read_text())] == []
    listed = [(one["version"], one["aliases"]) for one in json.loads((site / "versions.json").read_text())]
    assert listed == [("dev", []), ("0.10", ["latest"]), ("0.9", [])]
    assert "url=0.10/index.html" in (site / "index.html").read_text()
    (tmp_path / "docs" / "words.md").write_text("[broken](nowhere.md)\n")
    assert built(tmp_path, "0.9.3").returncode != 0
    assert (site / "0.9" / "words.html").stat().st_size > 1000, "what was there stays where the new one is broken"
