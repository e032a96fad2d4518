# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C: the first one stops what is done, also where Python would drop it, and the next let it be taken down."""

import os
import signal
import sys
import threading
from types import FrameType

_PATIENCE = 3
"""The third Ctrl-C ends virtune at once, and the guard cleans up; the second one only says so."""

_SOON_SECONDS = 0.005
"""By then Python is done with what dropped an exception."""


class _Interrupts:
    """The first Ctrl-C stops what is done; those that come while it is taken down do not stop that."""

    def __init__(self) -> None:
        self._count = 0
        self.came = False

    def __call__(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - what Python hands over
        self.came = True
        while frame is not None:
            if frame.f_code is _Interrupts.dropped.__code__:  # raised there it would be dropped once more
                self._once_more()
                return
            frame = frame.f_back
        self._count += 1
        if self._count == 1:
            raise KeyboardInterrupt
        if self._count >= _PATIENCE:
            os._exit(130)
        os.write(2, b"stopping and cleaning up; Ctrl-C once more stops at once\n")

    def dropped(self, what: "sys.UnraisableHookArgs") -> None:
        """Raise it again: Python drops what is raised in a finalizer or a callback, as imports have by the hundred.
        Nothing else that it drops is of use to a user.
        """
        if what.exc_type is KeyboardInterrupt:
            self._count = 0
            self._once_more()
        elif os.environ.get("VIRTUNE_DEBUG"):
            sys.__unraisablehook__(what)

    def _once_more(self) -> None:
        """Have it come again soon, to the main thread, whose sleep or read it ends."""
        main = threading.main_thread().ident or 0
        threading.Timer(_SOON_SECONDS, signal.pthread_kill, (main, signal.SIGINT)).start()


def came() -> bool:
    """Whether there was one, so that an error which nobody foresaw is what somebody's code made of it."""
    handler = signal.getsignal(signal.SIGINT)
    return isinstance(handler, _Interrupts) and handler.came


def take() -> None:
    """Take Ctrl-C from here on, unless it is taken already or our parent has it ignored."""
    if isinstance(signal.getsignal(signal.SIGINT), _Interrupts):
        return
    interrupts = _Interrupts()
    sys.unraisablehook = interrupts.dropped
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupts)
