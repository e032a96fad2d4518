# SPDX-License-Identifier: Apache-2.0
"""`virtune`, and `python -m virtune`: the command line, which takes a tenth of a second to load."""

import gc
import sys

from virtune import interrupts

_OBJECTS_BEFORE_COLLECTION = 20_000
"""So many new objects make Python look for cycles among them. By its own 700 it looked 200 times while a report was
written, for 9 % of the CPU time, and found nothing: what a command makes first are modules."""


def main() -> None:
    """Load the command line and run it; an interruption shows no traceback either."""
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
    interrupts.take()
    try:
        from virtune.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    try:
        run()
    finally:
        # else Python looks for cycles in all of it, a fifth of a second, and the end of the process frees it anyway
        gc.freeze()


if __name__ == "__main__":
    main()
