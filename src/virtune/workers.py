# SPDX-License-Identifier: Apache-2.0
"""Work that is divided among processes of this Python. They end with us, also where we are killed."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection
from threading import Thread
from typing import TypeVar

from virtune.model.errors import VirtuneError

Task = TypeVar("Task")
Done = TypeVar("Done")


def cpus() -> int:
    """Return how many CPUs this process may use."""
    return len(os.sched_getaffinity(0))


def divided(work: Callable[[Task], Done], tasks: Sequence[Task], *, processes: int) -> Iterator[Done]:
    """Yield what `work` gives for each task, in the order of the tasks; with one process it is done here.

    `work` is a function of a module, and tasks and results can be pickled. What is begun when the iterator is closed
    is done to its end. Raises VirtuneError where one of the processes is killed.
    """
    if processes < 2 or len(tasks) < 2:
        yield from map(work, tasks)
        return
    # not forked: what this process holds open, and its threads, are no business of theirs
    context = multiprocessing.get_context("spawn")
    count = min(processes, len(tasks))
    with ProcessPoolExecutor(max_workers=count, mp_context=context, initializer=_begin) as pool:
        try:
            yield from pool.map(work, tasks)
        except BrokenProcessPool:
            raise VirtuneError(
                "one of the processes that did the work was killed",
                hint="what is finished is kept, and the same command goes on; fewer at once need less memory",
            ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _begin() -> None:
    """Leave Ctrl-C to the process that divides the work, and end when that one is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with, args=(multiprocessing.parent_process(),), daemon=True).start()


def _end_with(parent: "multiprocessing.process.BaseProcess | None") -> None:
    if parent is not None:
        connection.wait([parent.sentinel])
        # the main thread waits for its next task, which never comes
        os.kill(os.getpid(), signal.SIGKILL)
