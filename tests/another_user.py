# SPDX-License-Identifier: Apache-2.0
"""virtune as another user of the host calls it, from the Python that runs the tests, wherever that lies."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
import json
from virtune.cli import main
ran = []
for words in json.loads(sys.argv[2]):
    streams = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    pid = os.fork()
    if pid == 0:
        for number, stream in zip((1, 2), streams):
            os.dup2(stream.fileno(), number)
        sys.argv[1:] = words
        main()
        sys.exit()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    texts = [stream.seek(0) or stream.read().decode() for stream in streams]
    ran.append([words, status, *texts])
print(json.dumps(ran))
"""


@dataclass(frozen=True)
class Done:
    """What one call of virtune by that user left."""

    words: Sequence[str]
    status: int
    stdout: str
    stderr: str


def as_user(uid: int, home: Path, *commands: Sequence[str], seconds: float = 170) -> list[Done]:
    """Run virtune under a user id, with these words each time, in one Python that forks for each; only root can."""
    words = ["unshare", "--mount", sys.executable, "-c", _AS_ANOTHER, str(uid), json.dumps(commands)]
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stderr
    return [Done(*one) for one in json.loads(done.stdout)]
