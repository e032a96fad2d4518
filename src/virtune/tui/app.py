# SPDX-License-Identifier: Apache-2.0
"""The terminal application of `virtune top`: it shows a session's lines and gives it keys; samples come from a
thread.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Static

from virtune.model.errors import VirtuneError
from virtune.model.live import LiveSample
from virtune.tui.session import KEYS, TopSession, screen

Take = Callable[[], LiveSample]


class TopApp(App[None]):
    """Shows a session. With `take` samples are taken in a thread, one each interval; a recording has them already."""

    CSS = "Screen { overflow: hidden; } #lines { width: 100%; height: 100%; }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "quit", show=False, priority=True)]
    ENABLE_COMMAND_PALETTE = True

    def __init__(self, session: TopSession, take: Take | None = None) -> None:
        super().__init__(ansi_color=True)
        self.session = session
        self.error: VirtuneError | None = None
        self._take = take
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._play: Timer | None = None
        self._lines = Static(id="lines", markup=False)

    def compose(self) -> ComposeResult:
        yield self._lines

    def on_mount(self) -> None:
        if self._take is not None:
            self._thread = threading.Thread(target=self._run, args=(self._take,), name="samples", daemon=True)
            self._thread.start()
        self._show()

    def close(self) -> None:
        """Take no further sample; returns when the last one is over. Raises the error that ended the screen."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()
        if self.error is not None:
            raise self.error

    def on_resize(self) -> None:
        self._show()

    def on_key(self, event: events.Key) -> None:
        if not (self.session.typing or self.session.help) and event.character == ":":
            self.action_command_palette()
            return
        printed = event.character is not None and event.character.isprintable() and event.character != " "
        self._press(event.character if printed and event.character is not None else event.key)

    def on_mouse_scroll_down(self) -> None:
        self._press("down")

    def on_mouse_scroll_up(self) -> None:
        self._press("up")

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:  # noqa: ARG002 - Textual's own
        """Offer every key by what it does."""
        for keys, words in KEYS:
            for key in keys.split():
                if key not in (":", "up", "down"):
                    yield SystemCommand(
                        f"{key}: {words}", "", lambda key=key: self._press(key.lower() if len(key) > 1 else key)
                    )

    def _press(self, key: str) -> None:
        try:
            self.session.press(key)
        except VirtuneError as error:  # a line of the recording is damaged
            self._fail(error)
            return
        if self.session.quit:
            self.exit()
            return
        self._show()
        self._follow()

    def _follow(self) -> None:
        """Play a recording, or stop that."""
        if self._play is not None:
            self._play.stop()
            self._play = None
        if self.session.replay and not self.session.paused:
            self._play = self.set_interval(self.session.interval, self._next)

    def _next(self) -> None:
        self.session.step(1)
        self._show()

    def _push(self, sample: LiveSample) -> None:
        self.session.push(sample)
        self._show()

    def _fail(self, error: VirtuneError) -> None:
        self.error = self.error or error
        self.exit()

    def _show(self) -> None:
        try:
            lines = screen(self.session, self.size.width, self.size.height)
        except VirtuneError as error:
            self._fail(error)
            return
        found = Text("\n").join(lines)
        found.no_wrap = True
        self._lines.update(found)  # held here: a sample may still come when the screen has let go of it

    def _run(self, take: Take) -> None:
        """Sample in a thread of its own; the screen takes each when it comes to it."""
        while not self._end.is_set():
            begun = time.monotonic()
            try:
                self.call_later(self._push, take())
            except VirtuneError as error:
                self.call_later(self._fail, error)
                return
            self._end.wait(max(0.0, self.session.interval - (time.monotonic() - begun)))
