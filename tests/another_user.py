# SPDX-License-Identifier: Apache-2.0
"""virtune as another user of the host calls it, from the Python that runs the tests, wherever that lies."""

import sys

_AS_ANOTHER = """
import os, subprocess, sys, tempfile
from pathlib import Path
needed = [Path(sys.base_prefix).resolve(), Path(sys.prefix), Path.cwd()]
closed = [p for p in reversed(needed[0].parents) if not p.stat().st_mode & 1]
if closed:  # an interpreter in root's home is nobody else's to run, so in here that home holds nothing else
    kept = {path: tempfile.mkdtemp() for path in needed if path.is_relative_to(closed[0])}
    for path, place in kept.items():
        subprocess.run(["mount", "--bind", path, place], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "none", closed[0]], check=True)
    for path, place in kept.items():
        path.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--bind", place, path], check=True)
        subprocess.run(["umount", place], check=True)
        os.rmdir(place)
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
os.chdir("/")
os.execv(sys.executable, [sys.executable, "-m", "virtune", *sys.argv[2:]])
"""


def as_user(uid: int, *words: str) -> list[str]:
    """The command line that runs virtune under a user id; only root can run it."""
    return ["unshare", "--mount", sys.executable, "-c", _AS_ANOTHER, str(uid), *words]
