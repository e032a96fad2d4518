# SPDX-License-Identifier: Apache-2.0
"""A process that goes on when whoever started it is gone: a session of its own, no terminal, its output in a file."""

import subprocess
from collections.abc import Sequence
from pathlib import Path


def detach(command: Sequence[str], *, log: Path, keep: Sequence[int] = ()) -> int:
    """Start a program and leave it; returns its process id. `keep` are our open descriptors that it inherits.

    Hanging up a terminal or an SSH connection does not reach it, since it is of no session that they end. Raises
    OSError where it cannot be started.
    """
    with log.open("ab") as stream:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            cwd="/",
            start_new_session=True,
            pass_fds=tuple(keep),
        )
    process.returncode = 0  # it is waited for by nobody, and that is meant
    return process.pid
