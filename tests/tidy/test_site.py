# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/ build into a site without a broken link, and nothing in it is loaded from another host."""

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


def built(place: Path) -> "subprocess.CompletedProcess[str]":
    program = Path(sys.executable).with_name("zensical")
    return subprocess.run([program, "build", "--strict"], cwd=place, capture_output=True, text=True, timeout=120)


def test_the_site_builds_without_a_broken_link_and_needs_no_network(tmp_path: Path) -> None:
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    done = built(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = [*(tmp_path / "site").rglob("*.html")]
    assert len(pages) > 20
    loads = re.compile(
        r"<(?:script|img|iframe)[^>]*\ssrc=[\"']?(?:https?:)?//[^\s>]*|<link[^>]*\shref=[\"']?https?://[^\s>]*"
    )
    assert [found for page in pages for found in loads.findall(page.read_text())] == []
    (tmp_path / "docs" / "words.md").write_text("[broken](nowhere.md)\n")
    assert built(tmp_path).returncode != 0
