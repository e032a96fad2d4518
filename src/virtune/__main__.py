# SPDX-License-Identifier: Apache-2.0
"""`virtune`, and `python -m virtune`: the command line, which takes a tenth of a second to load."""

import sys


def main() -> None:
    """Load the command line and run it; an interruption shows no traceback either."""
    try:
        from virtune.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
