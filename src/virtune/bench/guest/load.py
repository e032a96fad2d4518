# SPDX-License-Identifier: Apache-2.0
"""fio as the load of a guest: in a test VM or in an existing domain. It reaches a barrier after its set-up and before
its first I/O (`exec_prerun`), so that its clock starts when the host releases it.
"""

import abc
import contextlib

from virtune.bench.guest.channel import Guest, GuestError, GuestOutput, GuestProcess
from virtune.bench.load import LOG_MS, Load, Loaded
from virtune.bench.port import LoadJob
from virtune.model.errors import LoadError

ARM_SECONDS = 60.0
"""How long a load may take to be ready."""

_RESULT_SECONDS = 60.0


class FioLoad(Load):
    """fio in a guest. Files with its error message are `complaints`: with --output it goes into that file."""

    complaints: tuple[str, ...]
    process: GuestProcess

    def __init__(self, bench: Loaded, job: LoadJob, guest: Guest) -> None:
        super().__init__(bench, job)
        self.guest = guest

    def words(self, *, barrier: str, place: str) -> list[str]:
        """Return fio's command line: `place` is before the names of its files."""
        logging = (f"--write_iops_log={place}load", f"--log_avg_msec={LOG_MS}")
        output = ("--output-format=json+", f"--output={place}load.json", "--eta=never")
        return ["fio", *self.job.job.arguments, f"--exec_prerun=. {barrier}", *logging, *output, f"{place}load.fio"]

    @abc.abstractmethod
    def waits(self) -> bool:
        """Wait until all jobs are at the barrier; False when they do not reach it in time."""

    def arm(self) -> None:
        if self.waits():
            return
        ended = self.process.wait(1.0)
        if ended is None:
            self.process.end("INT")
            raise LoadError(f"fio in the guest was not ready within {ARM_SECONDS:g} s")
        hint = self._complaint(ended)
        raise LoadError(f"fio in the guest ended before it began: status {ended.status}", hint=hint)

    def has_ended(self, seconds: float) -> bool:
        """Wait so long for its end; raises LoadError when it did not end well."""
        output = self.process.wait(seconds)
        if output is not None and output.status:
            raise LoadError(f"fio in the guest ended with status {output.status}", hint=self._complaint(output))
        return output is not None

    def stop(self) -> None:
        self.process.end("INT", "TERM")

    def fetched(self, path: str) -> bytes:
        """Return what a file of the guest holds."""
        return self.guest.get(path, timeout_seconds=_RESULT_SECONDS)

    def _complaint(self, output: GuestOutput) -> str | None:
        said = output.stderr.decode(errors="replace").strip()
        for file in self.complaints if not said else ():
            with contextlib.suppress(GuestError):
                lines = self.fetched(file).decode(errors="replace").splitlines()
                said = said or next((line for line in lines if line.startswith("fio:")), "")
        return said[-300:] or None
