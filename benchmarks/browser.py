# SPDX-License-Identifier: Apache-2.0
"""What a real browser makes of reports and of the local page: headless Chromium in an empty network namespace.

    python -m benchmarks.browser AXE.MIN.JS [PAGE.html ...] [--serve STORE] [--live] [--pictures DIR]

AXE.MIN.JS is the file of axe-core (`npm pack axe-core`). PAGE.html are reports; --serve adds every page of `serve`
over a store, --live the page of a run while it runs, and after it was killed. Of each page, light and dark, at 360,
1100 and 1920 px: axe-core's violations (contrast and names among them), errors on the console, requests that leave
the page's own server, figures without a drawing, what is wider than the window, and what the Tab key does not reach,
sent as a real key: links, summaries, fields, and regions that scroll. With --pictures screenshots and the printed
page. Needs Chromium and root.
"""

import argparse
import base64
import contextlib
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WIDTHS = (360, 1100, 1920)
TABS_MAX = 600
NEW_NETWORK = 0x40000000

_SEEN = """
(() => {
  const root = document.documentElement;
  const outside = [...document.querySelectorAll('body *')].filter(e => !e.closest('svg, .wide, .picture, pre')
    && e.getBoundingClientRect().right > root.clientWidth + 1).map(e => e.tagName + '.' + e.className).slice(0, 5);
  const figures = [...document.querySelectorAll('figure')];
  const drawn = f => f.querySelector('svg') && f.querySelector('svg').getBoundingClientRect().width >= 50;
  return {wide: root.scrollWidth > root.clientWidth ? root.scrollWidth : 0, outside, figures: figures.length,
    empty: figures.filter(f => !drawn(f)).map(f => f.id)};
})()
"""

_FOCUSED = """
(() => {
  const e = document.activeElement;
  if (!e || e === document.body || e === document.documentElement) return null;
  if (!e.dataset.tabbed) e.dataset.tabbed = '1';
  const style = getComputedStyle(e);
  return {name: e.tagName, shown: style.outlineStyle !== 'none' || style.boxShadow !== 'none'};
})()
"""

_UNREACHED = """
(() => {
  const scrolls = e => (e.scrollWidth > e.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(e).overflowX))
    || (e.scrollHeight > e.clientHeight + 1 && /auto|scroll/.test(getComputedStyle(e).overflowY));
  const radios = new Set();
  const wanted = [...document.querySelectorAll('a[href], summary, button, input, select')].filter(e => {
    if (e.type !== 'radio') return true;
    if (radios.has(e.name)) return false;  // a group of them is one stop
    radios.add(e.name);
    return true;
  });
  const regions = [...document.querySelectorAll('body, body *')].filter(e => scrolls(e) && e.tagName !== 'BODY');
  return [...wanted, ...regions].filter(e => e.checkVisibility() && !e.dataset.tabbed)
    .map(e => e.tagName + '.' + e.className + ' ' + (e.textContent || '').slice(0, 30)).slice(0, 8);
})()
"""

_AXE = """
(async () => {
  document.querySelectorAll('details').forEach(d => { d.open = true; });
  const found = await axe.run(document, {resultTypes: ['violations', 'incomplete']});
  const told = v => ({id: v.id, impact: v.impact, nodes: v.nodes.length, first: v.nodes[0].html.slice(0, 160),
    why: (v.nodes[0].failureSummary || '').slice(0, 200)});
  return {violations: found.violations.map(told), undecided: found.incomplete.map(v => v.id + ' ' + v.nodes.length)};
})()
"""


class Browser:
    """A headless Chromium, asked over its debugging pipe."""

    def __init__(self, folder: Path) -> None:
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        words = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
                 f"--user-data-dir={folder / 'profile'}", "about:blank"]  # fmt: skip
        script = f'exec 3<&{theirs_in} 4>&{theirs_out}; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", *words], pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out, self._rest, self._number = ours_in, ours_out, b"", 0
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for room in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{room}.enable")

    _session: str | None = None

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait(60)

    def ask(self, method: str, **values: Any) -> dict[str, Any]:
        """Send a command and return its answer; what else comes meanwhile is kept in `events`."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": values}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._in, 2**20)
            assert part, "the browser has ended"
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(line))

    def run(self, script: str) -> Any:
        """Return the value of a script, of a promise when it is kept."""
        found = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def open(self, address: str, *, width: int, dark: bool) -> None:
        """Open a page and wait until it is loaded."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.ask("Page.navigate", url=address)
        deadline = time.monotonic() + 120
        while self.run("document.readyState") != "complete" and time.monotonic() < deadline:
            time.sleep(0.05)

    def press(self, key: str) -> None:
        """Press and release a key."""
        code, text = {"Tab": (9, {}), "Enter": (13, {"text": "\r"})}[key]
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)

    def complaints(self) -> list[str]:
        """Return the errors and warnings on the console, and exceptions."""
        found = []
        for one in self.events:
            params = one.get("params", {})
            match one.get("method"):
                case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                    found.append(str(params["args"])[:300])
                case "Runtime.exceptionThrown":
                    found.append(str(params["exceptionDetails"])[:300])
                case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                    found.append(params["entry"]["text"][:300])
                case _:
                    pass
        return found

    def strangers(self, own: str) -> list[str]:
        """Return the addresses that were asked for and are not the page's own."""
        asked = (one["params"]["request"]["url"] for one in self.events
                 if one.get("method") == "Network.requestWillBeSent")  # fmt: skip
        return [url[:120] for url in asked if not url.startswith((own, "data:", "blob:"))]


def look(browser: Browser, address: str, axe: str, *, width: int, dark: bool) -> dict[str, Any]:
    """Return what a browser of that width finds in a page."""
    browser.open(address, width=width, dark=dark)
    own = address if address.startswith("file:") else "/".join(address.split("/")[:3])
    found = {**browser.run(_SEEN), **tabbed(browser)}
    browser.run(f"{axe}; 0")
    found |= browser.run(_AXE)
    return {**found, "console": browser.complaints(), "strangers": browser.strangers(own)}


def tabbed(browser: Browser) -> dict[str, Any]:
    """Send the Tab key through a page, and open its first summary with Enter."""
    stops, hidden = 0, set()
    for _ in range(TABS_MAX):
        browser.press("Tab")
        focused = browser.run(_FOCUSED)
        if focused is None:
            break
        stops += 1
        if not focused["shown"]:
            hidden.add(focused["name"])
    unreached = browser.run(_UNREACHED)  # before a summary shows what no Tab could reach
    opened = True
    if browser.run("!!document.querySelector('summary')"):
        browser.run("document.querySelector('summary').focus()")
        browser.press("Enter")
        opened = bool(browser.run("document.querySelector('summary').parentElement.open"))
    return {"stops": stops, "unreached": unreached, "unmarked": sorted(hidden), "opened": opened}


def picture(browser: Browser, file: Path) -> None:
    """Write a screenshot of the whole page that is open."""
    taken = browser.ask("Page.captureScreenshot", captureBeyondViewport=True)
    file.write_bytes(base64.b64decode(taken["data"]))


def printed(browser: Browser, address: str, file: Path) -> None:
    """Write a page as it is printed."""
    browser.open(address, width=1100, dark=False)
    file.write_bytes(base64.b64decode(browser.ask("Page.printToPDF", printBackground=False)["data"]))


@contextlib.contextmanager
def served(store: Path) -> Iterator[str]:
    """Run `virtune serve` over a store and yield its address."""
    argv = [sys.executable, "-m", "virtune", "serve", "--store", str(store), "--port", "0"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield process.stderr.readline().strip()
        finally:
            process.terminate()


def pages_of(store: Path, address: str) -> dict[str, str]:
    """Return the pages of the local page over a store, by name."""
    from virtune.model.evidence import Listed
    from virtune.store.store import Store

    with Store(store, reading=True) as kept:
        found = [one.study for one in kept.list() if isinstance(one, Listed) and one.done]
    first = {study.kind.value: study.id for study in found}
    pair = "&".join(f"{side}={study.id}" for side, study in zip("ab", [*found, *found][:2], strict=True))
    own = {"studies": address, "host": f"{address}host", "pair": f"{address}pair?{pair}",
           "ended": f"{address}live/{found[0].id}"}  # fmt: skip
    return own | {f"study-{kind}": f"{address}study/{name}" for kind, name in first.items()}


@contextlib.contextmanager
def running(folder: Path) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Run a simulated comparison that waits after its ninth round; yield the page of the run, and its process."""
    from virtune.store.progress import runs_of

    store = folder / "live.sqlite"
    argv = [sys.executable, "-m", "tests.web.paused_run", str(store), "9"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout is not None
            run.stdout.readline()
            (found,) = runs_of(store)
            with served(store) as address:
                yield f"{address}live/{found.study}", run
        finally:
            run.kill()


def look_at_live(browser: Browser, axe: str, folder: Path, asked: argparse.Namespace) -> None:
    """Look at the page of a run, and whether it says by itself that the run was killed."""
    with running(folder) as (address, run):
        _look_at({"live": address}, browser, axe, asked)
        browser.open(address, width=1100, dark=False)
        before = browser.run("document.querySelector('[role=status]').textContent")
        run.kill()
        deadline = time.monotonic() + 30
        status = before
        while status == before and time.monotonic() < deadline:
            time.sleep(0.2)
            status = browser.run("document.querySelector('[role=status]').textContent")
        print(f"live: {before!r} became, without a reload, {status!r}; {browser.complaints()}")


def _look_at(pages: dict[str, str], browser: Browser, axe: str, asked: argparse.Namespace) -> None:
    for name, address in pages.items():
        for width in map(int, asked.widths.split(",")):
            for dark in (False, True):
                found = look(browser, address, axe, width=width, dark=dark)
                print(f"{name} {width} px {'dark' if dark else 'light'}: {json.dumps(found)}", flush=True)
                if asked.pictures:
                    browser.open(address, width=width, dark=dark)
                    picture(browser, asked.pictures / f"{name}-{width}-{'dark' if dark else 'light'}.png")
        if asked.pictures:
            printed(browser, address, asked.pictures / f"{name}.pdf")


def main() -> None:
    """Print a line for each page, width and colour scheme."""
    parser = argparse.ArgumentParser()
    parser.add_argument("axe", type=Path)
    parser.add_argument("pages", type=Path, nargs="*")
    parser.add_argument("--serve", type=Path)
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--widths", default=",".join(map(str, WIDTHS)))
    asked = parser.parse_args()
    axe = asked.axe.read_text()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.unshare(NEW_NETWORK) == 0, os.strerror(ctypes.get_errno())
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Browser(Path(folder))) as browser:
        _look_at({page.stem: page.absolute().as_uri() for page in asked.pages}, browser, axe, asked)
        if asked.serve:
            with served(asked.serve) as address:
                _look_at(pages_of(asked.serve, address), browser, axe, asked)
        if asked.live:
            look_at_live(browser, axe, Path(folder), asked)


if __name__ == "__main__":
    main()
