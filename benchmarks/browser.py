# SPDX-License-Identifier: Apache-2.0
"""What a real browser makes of the report of each kind of study: headless Chromium in an empty network namespace.

    python -m benchmarks.browser AXE.MIN.JS PAGE.html ... [--pictures DIR]

AXE.MIN.JS is axe-core's file (`npm install axe-core`). Of each page, light and dark: axe-core's violations (contrast
and names among them), every figure with its drawing, what is wider than the window at 360, 1100 and 1920 px, and
whether the keyboard reaches every link, summary and region that scrolls. With --pictures also screenshots and the
printed page as PDF. Needs Chromium and `unshare` (as root). The pages' own policy allows no script, so that copies
without it are looked at.
"""

import argparse
import html
import json
import re
import subprocess
import tempfile
from pathlib import Path

WIDTHS = (360, 1100, 1920)

_LOOK = """
<script>
addEventListener('load', async () => {
  const seen = document.createElement('pre'); seen.id = 'seen';
  const root = document.documentElement;
  const wide = root.scrollWidth > root.clientWidth ? root.scrollWidth : 0;
  const outside = [...document.querySelectorAll('body *')].filter(e => !e.closest('svg, .wide, .picture, pre')
    && e.getBoundingClientRect().right > root.clientWidth + 1).map(e => e.tagName + '.' + e.className).slice(0, 5);
  const scrolls = [...document.querySelectorAll('.wide, .picture, pre')]
    .filter(e => e.scrollWidth > e.clientWidth + 1 && e.checkVisibility());
  const unreachable = scrolls.filter(e => e.tabIndex < 0).map(e => e.tagName + '.' + e.className);
  const focusable = [...document.querySelectorAll('a, summary')].filter(e => e.checkVisibility());
  const dumb = focusable.filter(e => { e.focus(); return document.activeElement !== e; }).length;
  const figures = [...document.querySelectorAll('figure')];
  const drawn = f => f.querySelector('svg') && f.querySelector('svg').getBoundingClientRect().width >= 50;
  const empty = figures.filter(f => !drawn(f)).map(f => f.id);
  document.querySelectorAll('details').forEach(d => { d.open = true; });
  const axe_found = await axe.run(document, {resultTypes: ['violations', 'incomplete']});
  const told = v => ({id: v.id, impact: v.impact, nodes: v.nodes.length, first: v.nodes[0].html.slice(0, 160),
    why: (v.nodes[0].failureSummary || '').slice(0, 200)});
  seen.textContent = JSON.stringify({wide, outside, unreachable, dumb, figures: figures.length, empty,
    violations: axe_found.violations.map(told),
    undecided: axe_found.incomplete.map(v => v.id + ' ' + v.nodes.length)});
  document.body.append(seen);
});
</script>
"""


def chromium(*words: str) -> str:
    """Run headless Chromium without a network and return what it wrote."""
    argv = ["unshare", "--net", "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    done = subprocess.run([*argv, *words], capture_output=True, text=True, timeout=300, check=True)
    return done.stdout


def look(page: Path, axe: str, *, width: int, dark: bool) -> dict[str, object]:
    """Return what a browser of that width finds in a page."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.html"
        copy.write_text(text.replace("</head>", f"<script>{axe}</script>{_LOOK}</head>"))
        dumped = chromium(
            f"--user-data-dir={folder}/profile", f"--window-size={width},900", *_scheme(dark=dark), "--dump-dom",
            "--virtual-time-budget=30000", copy.as_uri(),
        )  # fmt: skip
    found = re.search(r'<pre id="seen">(.*?)</pre>', dumped, re.DOTALL)
    assert found is not None, f"{page}: the browser did not finish"
    return dict(json.loads(html.unescape(found[1])))


def _scheme(*, dark: bool) -> list[str]:
    return ["--blink-settings=preferredColorScheme=0" if dark else "--blink-settings=preferredColorScheme=1"]


def picture(page: Path, folder: Path, *, width: int, dark: bool, height: int = 2400) -> None:
    """Write a screenshot of a page."""
    name = folder / f"{page.stem}-{width}-{'dark' if dark else 'light'}.png"
    with tempfile.TemporaryDirectory() as profile:
        chromium(f"--user-data-dir={profile}", f"--window-size={width},{height}", *_scheme(dark=dark),
                 f"--screenshot={name}", page.absolute().as_uri())  # fmt: skip


def printed(page: Path, folder: Path) -> None:
    """Write a page as it is printed."""
    with tempfile.TemporaryDirectory() as profile:
        chromium(f"--user-data-dir={profile}", "--no-pdf-header-footer",
                 f"--print-to-pdf={folder / page.stem}.pdf", page.absolute().as_uri())  # fmt: skip


def main() -> None:
    """Print a line for each page, width and colour scheme."""
    parser = argparse.ArgumentParser()
    parser.add_argument("axe", type=Path)
    parser.add_argument("pages", type=Path, nargs="+")
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--widths", default=",".join(map(str, WIDTHS)))
    asked = parser.parse_args()
    axe = asked.axe.read_text().replace("</script", "<\\/script")
    for page in asked.pages:
        for width in map(int, asked.widths.split(",")):
            for dark in (False, True):
                found = look(page, axe, width=width, dark=dark)
                print(f"{page.stem} {width} px {'dark' if dark else 'light'}: {json.dumps(found)}", flush=True)
                if asked.pictures:
                    picture(page, asked.pictures, width=width, dark=dark)
        if asked.pictures:
            printed(page, asked.pictures)


if __name__ == "__main__":
    main()
