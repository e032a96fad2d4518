# SPDX-License-Identifier: Apache-2.0
"""Work that is divided: among processes of this Python, which end with us, also where we are killed, or among the
workers of a Dask cluster.
"""

import contextlib
import gc
import multiprocessing
import os
import re
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection
from threading import Thread
from typing import TypeVar

from virtune.model.errors import PreconditionError, UsageError, VirtuneError
from virtune.model.text import printable

Task = TypeVar("Task")
Done = TypeVar("Done")


def cpus() -> int:
    """Return how many CPUs this process may use."""
    return len(os.sched_getaffinity(0))


def divided(
    work: Callable[[Task], Done], tasks: Sequence[Task], *, processes: int = 1, executor: Executor | None = None
) -> Generator[Done, None, None]:
    """Yield what `work` gives for each task, in the order of the tasks: by an executor, else by so many processes of
    this machine; with one process it is done here.

    `work` is a function of a module, and tasks and results can be pickled. What is begun when the iterator is closed
    is done to its end. Raises VirtuneError where one of the processes is killed.
    """
    if executor is not None:
        yield from executor.map(work, tasks)
        return
    if processes < 2 or len(tasks) < 2:
        yield from map(work, tasks)
        return
    # not forked: what this process holds open, and its threads, are no business of theirs
    context = multiprocessing.get_context("spawn")
    count = min(processes, len(tasks))
    words = (gc.get_threshold(),)
    with ProcessPoolExecutor(max_workers=count, mp_context=context, initializer=_begin, initargs=words) as pool:
        try:
            yield from pool.map(work, tasks)
        except BrokenProcessPool:
            raise VirtuneError(
                "one of the processes that did the work was killed",
                hint="what is finished is kept, and the same command goes on; fewer at once need less memory",
            ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


_CLUSTER = re.compile(r"tls://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")

_NO_CLUSTER = "is it up? the files of TLS are those of Dask's own configuration (distributed.comm.tls)"


def require_tls(address: str) -> None:
    """Raise UsageError for an address without TLS, by which anybody on the network could run programs on workers."""
    if not _CLUSTER.fullmatch(address):
        what = f"{printable(address, most=100)!r} is not the address of a cluster that is reached by TLS"
        raise UsageError(what, hint="tls://HOST:PORT, as its scheduler says it")


@contextlib.contextmanager
def dask_cluster(address: str) -> Iterator[tuple[Executor, int]]:
    """Give the executor of a Dask cluster, and how many tasks its workers do at once.

    What a worker had when it was killed is done again by another one. Raises UsageError for an address without TLS,
    and PreconditionError for one of no cluster.
    """
    require_tls(address)
    from distributed import Client, KilledWorker, Security

    try:
        client = Client(address, security=Security(require_encryption=True), set_as_default=False)
    except (OSError, TypeError, ValueError) as error:  # TypeError is what it says where it knows no certificate
        why = " ".join(str(error).split())
        raise PreconditionError(f"cannot use the cluster {address}: {why[:300]}", hint=_NO_CLUSTER) from None
    with client:
        try:
            yield client.get_executor(pure=False), max(1, sum(client.nthreads().values()))
        except KilledWorker:
            raise VirtuneError(
                "a part of the work was given up: each worker that did it was killed",
                hint="what is finished is kept, and the same command goes on; workers with more memory may do it",
            ) from None
        except CancelledError:
            raise PreconditionError(
                f"the connection to the cluster {address} was lost",
                hint="what is finished is kept, and the same command goes on",
            ) from None
        except (ImportError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "deserialization" not in str(error):
                raise
            raise PreconditionError(
                f"the cluster {address} cannot read the work: {str(error).splitlines()[0].partition('. ')[0]}",
                hint="this virtune, with its extra dask, has to be installed where its scheduler and its workers run",
            ) from None


def _begin(objects_before_collection: tuple[int, int, int]) -> None:
    """Leave Ctrl-C to the process that divides the work, end with it, and look for garbage as seldom as it."""
    gc.set_threshold(*objects_before_collection)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with, args=(multiprocessing.parent_process(),), daemon=True).start()


def _end_with(parent: "multiprocessing.process.BaseProcess | None") -> None:
    if parent is not None:
        connection.wait([parent.sentinel])
        # the main thread waits for its next task, which never comes
        os.kill(os.getpid(), signal.SIGKILL)
