# SPDX-License-Identifier: Apache-2.0
"""Work in a process of its own that SIGKILL ends at an instant of the test's."""

import os
import signal
import traceback
import warnings
from collections.abc import Callable

from virtune.model.errors import VirtuneError


def dies(work: Callable[[], object]) -> bool:
    """Do some work in a process of its own; whether it died, and did not get to the end."""
    with warnings.catch_warnings():  # newer Pythons warn of threads: this child uses none that it did not make
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except (VirtuneError, AssertionError):
            traceback.print_exc()
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0
