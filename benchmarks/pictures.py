# SPDX-License-Identifier: Apache-2.0
"""The pictures of the README: `python -m benchmarks.pictures` draws them anew, from a kept study and a recording.

Needs Chromium. What each picture shows is written down beside it as text, which `tests/tidy/test_pictures.py`
compares with what virtune shows today.
"""

import asyncio
import gzip
import html
import re
import subprocess
import tempfile
from datetime import UTC
from pathlib import Path

from tests.live_samples import HEADER, live

from virtune.cli import run
from virtune.flows.live.top import Recorder, Recording
from virtune.tui.app import TopApp
from virtune.tui.session import TopSession

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "docs" / "pictures"
STUDY = "20261124-034932-ae12-sim"
SIZE = (1000, 660)


def report(place: Path) -> tuple[Path, str]:
    """Write the report of a kept study; its file, and the title and verdicts that its first screen shows."""
    store, page = place / "store.sqlite", place / "report.html"
    store.write_bytes(gzip.decompress((ROOT / "tests" / "golden" / "studies.sqlite.gz").read_bytes()))
    if run(["show", "report", STUDY, "--store", str(store), "-o", str(page)]):
        raise SystemExit(1)
    first = page.read_text().partition('id="pictures"')[0].partition("<body")[2].partition(">")[2]
    text = re.sub(r"<(style|svg).*?</\1>", "", first, flags=re.DOTALL)
    text = text.partition("<h2")[0]
    lines = (" ".join(re.sub(r"<[^>]*>", " ", line).split()) for line in text.splitlines())
    return page, "\n".join(line for line in lines if line) + "\n"


def top(place: Path) -> tuple[str, str]:
    """Return the first screen of `top` over a recording, as SVG and as text."""
    path = place / "top.jsonl"
    with Recorder(path, HEADER) as file:
        for second in range(1, 8):
            file.add(live(second))

    async def work() -> str:
        with Recording(path) as samples:
            app = TopApp(TopSession(samples=samples, position=1, replay=True, paused=True, zone=UTC))
            async with app.run_test(size=(88, 8)) as pilot:
                await pilot.pause()
                return app.export_screenshot(title="virtune top")

    picture = asyncio.run(work())
    words = (html.unescape(found).strip() for found in re.findall(r"<text[^>]*>([^<]*)</text>", picture))
    return picture, "\n".join(word for word in words if word) + "\n"


def main() -> None:
    """Draw both."""
    PLACE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        page, said = report(Path(directory))
        subprocess.run(
            ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={SIZE[0]},{SIZE[1]}",
             f"--screenshot={PLACE / 'report.png'}", str(page)], check=True, timeout=120, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        (PLACE / "report.txt").write_text(said)
        picture, lines = top(Path(directory))
        (PLACE / "top.svg").write_text(picture)
        (PLACE / "top.txt").write_text(lines)


if __name__ == "__main__":
    main()
