# SPDX-License-Identifier: Apache-2.0
"""What each call of virtune costs besides its work: counted, since times depend on the machine."""

import subprocess
import sys

_COUNTED = """
import atexit, gc, sys
def collections():
    return sum(one["collections"] for one in gc.get_stats())
before = collections()
atexit.register(lambda: print(collections() - before, gc.get_freeze_count()))
from virtune.__main__ import main
sys.argv = ["virtune", "knobs", "--json"]
sys.stdout = open("/dev/null", "w")
atexit.register(setattr, sys, "stdout", sys.__stdout__)
main()
"""


def test_python_hardly_looks_for_cycles_where_there_are_none() -> None:
    done = subprocess.run([sys.executable, "-c", _COUNTED], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    collections, left_alone = map(int, done.stdout.split())
    assert collections < 20, "it looks for cycles as it starts"
    assert left_alone > 10_000, "it looks for cycles in all that there is as it ends"
