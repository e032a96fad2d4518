# SPDX-License-Identifier: Apache-2.0
"""What installed programs say of themselves: versions, engines, drivers. A process asks each once."""

from pathlib import Path

from virtune import shell

_SAID: dict[tuple[object, ...], str] = {}
"""Answers by the program's file as it was, and the options."""


def said_of_itself(path: str, *options: str, timeout_seconds: float = 5.0, ok: tuple[int, ...] = (0,)) -> str:
    """Return what a program prints for options that ask for its version or its abilities.

    It is asked again when its file is another one. Raises VirtuneError as `shell.run` does.
    """
    try:
        file = Path(path).stat()
    except OSError:  # which `shell.run` says better
        return shell.run([path, *options], timeout_seconds=timeout_seconds, ok=ok).stdout
    identity = (file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns)
    key = (path, options, identity)
    if key not in _SAID:
        _SAID[key] = shell.run([path, *options], timeout_seconds=timeout_seconds, ok=ok).stdout
    return _SAID[key]
