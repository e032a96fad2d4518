# SPDX-License-Identifier: Apache-2.0
"""Build the pages of docs/ as the site of this version: `python -m tools.site [PLACE]`, else into site/.

PLACE has a folder for each version (0.1; dev for what is not released), as `mike` lays sites out: the pages find
`versions.json` beside their folder and offer the others. Those that are there already stay as they are; `latest`
leads to the highest that is released. To publish is to copy PLACE to a web server.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from virtune import __version__

ROOT = Path(__file__).parents[1]
DEV = "dev"


def folder_of(version: str) -> str:
    """Return the folder of a version: those that differ by their last number share one."""
    return DEV if "dev" in version else ".".join(version.split(".")[:2])


def build(place: Path, version: str) -> Path:
    """Build the pages into the folder of a version, name it in `versions.json`, and return it. Raises
    subprocess.CalledProcessError for a page that does not build, or a link that leads nowhere.
    """
    folder = place / folder_of(version)
    with tempfile.TemporaryDirectory() as temporary:
        shutil.copytree(ROOT / "docs", f"{temporary}/docs")
        shutil.copy(ROOT / "mkdocs.yml", temporary)
        subprocess.run([Path(sys.executable).with_name("zensical"), "build", "--strict"], cwd=temporary, check=True)
        place.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.move(f"{temporary}/site", folder)
    _list(place)
    return folder


def _list(place: Path) -> None:
    """Write which versions are there, the newest first, and the page that leads to the latest one."""
    found = [one.name for one in place.iterdir() if re.fullmatch(r"\d+\.\d+", one.name)]
    released = sorted(found, key=lambda name: [int(part) for part in name.split(".")], reverse=True)
    every = [*([DEV] if (place / DEV).is_dir() else []), *released]
    latest = (released or every)[0]
    listed = [{"version": one, "title": one, "aliases": ["latest"] if one == latest else []} for one in every]
    (place / "versions.json").write_text(json.dumps(listed, indent=2) + "\n")
    (place / "index.html").write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0; url={latest}/index.html">\n'
    )


if __name__ == "__main__":
    built = build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "site", __version__)
    sys.stdout.write(f"{built}\n")
