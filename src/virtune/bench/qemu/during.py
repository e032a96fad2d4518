# SPDX-License-Identifier: Apache-2.0
"""What a test guest with Linux does beside its load, or what is done to it: it discards, or its VM is migrated.

Discards are a second fio's in the guest (`rw=trimwrite`), so they go the way of all of its discards: through its
driver and the device's queue. They are on a zone behind the blocks that are loaded, by which the disk grows while
they last. Each piece of 1 MiB is discarded and then written, so that each discard has something to give back. They
are counted where they are done, by the driver of the image's file: the device also counts what `discard=ignore`
drops.

A migration is its pre-copy, by QEMU's defaults (128 MiB/s, 300 ms of downtime), into a pipe whose other end throws it
away. When so little is left that the VM would be switched over, QEMU stops it and waits. That is seen within 20 ms;
then it is cancelled, so the VM goes on, and begun anew.

A page of zeros is sent as nine bytes, and most of a test guest's memory was never written. So once in a machine,
before its load begins, what is free is filled and freed again: a free page keeps what it holds.
"""

import contextlib
import time
from collections.abc import Callable, Iterator

from virtune.bench.during import Ask, DuringLoad
from virtune.bench.guest.agent import ARM_SECONDS, Guest, must
from virtune.model.errors import LoadError, RigError
from virtune.model.evidence import UNDER_LOAD
from virtune.model.stack import During
from virtune.model.text import format_bytes

_MIB = 1024**2

ZONE_BYTES = 64 * _MIB
"""As much is left free beside scratch images."""

_TICK_SECONDS = 0.02

_TRIM = (
    "fio --name=during --ioengine=psync --direct=1 --rw=trimwrite --bs=1M --time_based --runtime=1d"
    " --allow_file_create=0 --output-format=terse"
)
_FILL = (
    "[ -e /run/filled ] || {{ mkdir -p /fill && mount -t tmpfs -o size=100% fill /fill"
    " && head -c 1048576 /dev/urandom >/fill/piece && cat $(yes /fill/piece | head -n {pieces}) >/fill/all"
    " && umount /fill && touch /run/filled; }}"
)

_SPARED_BYTES = 64 * _MIB
"""What stays free of a guest's memory while the rest is filled."""

_FILLED_BPS = 4e6
"""An emulated guest on a busy host fills its memory at twice this."""


class _Beside(DuringLoad):
    """What needs programs of the guest."""

    def __init__(self, kind: During, ask: Ask, guest: Guest) -> None:
        super().__init__(kind)
        self._ask, self._guest = ask, guest

    def _shell(self, words: str, seconds: float = ARM_SECONDS) -> str:
        return must(self._guest, ["sh", "-c", words], timeout_seconds=seconds).decode(errors="replace").strip()

    def _said(self) -> str | None:
        """Return the end of what the second fio said, which is nothing before its end."""
        return self._shell("cat /run/during 2>/dev/null; true")[-300:] or None

    def _await(self, done: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + ARM_SECONDS
        while not done():
            if time.monotonic() > deadline:
                raise RigError(f"{otherwise} within {ARM_SECONDS:g} s", hint=self._said())
            time.sleep(_TICK_SECONDS)


class Discards(_Beside):
    """Discards behind the end of the guest's disk `device` of `size` bytes, which QEMU has on the node `top`, its
    image's file on the node `file`.
    """

    shown_by = "QMP query-blockstats"

    def __init__(self, ask: Ask, guest: Guest, *, device: str, size: int, top: str, file: str) -> None:
        super().__init__("discard", ask, guest)
        self._device, self._bytes, self._top, self._file = device, size, top, file
        self._shown = f"/sys/block/{device.rpartition('/')[2]}"

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        before = self._counts()
        try:
            self._resize(self._bytes + ZONE_BYTES)
            zone = f"--filename={self._device} --offset={self._bytes} --size={ZONE_BYTES}"
            pid = self._shell(f"{_TRIM} {zone} >/run/during 2>&1 & echo $!")
            self._await(lambda: self._counts() > before, "the guest discarded nothing")
            yield
            if self._shell(f"kill -INT {pid} || echo gone"):
                raise LoadError("the discards of the guest ended early", hint=self._said())
            self._await(lambda: self._said() is not None, "the fio that discards in the guest did not end")
            self._resize(self._bytes)
        finally:
            # an image of another size would be filled anew
            with contextlib.suppress(RigError):
                self._ask("block_resize", {"node-name": self._top, "size": self._bytes})

    def tend(self) -> None:
        """Do nothing: fio goes on by itself, and whether it did is seen at the end."""

    def _progress(self) -> tuple[bool, str]:
        number, size = self._done()
        return number > 0, f"{number} discards of {format_bytes(size)} done by the image's file {UNDER_LOAD}"

    def _counts(self) -> tuple[int, ...]:
        nodes = self._ask("query-blockstats", {"query-nodes": True})
        done = next(one["driver-specific"] for one in nodes if one.get("node-name") == self._file)
        return int(done["discard-nb-ok"]), int(done["discard-bytes-ok"])

    def _resize(self, size: int) -> None:
        """Give the disk another size, of which the guest learns by itself, but for a SCSI disk."""
        self._ask("block_resize", {"node-name": self._top, "size": size})
        self._shell(f"[ ! -e {self._shown}/device/rescan ] || echo 1 >{self._shown}/device/rescan")
        seen, otherwise = f"cat {self._shown}/size", f"the guest did not see {format_bytes(size)} of disk"
        self._await(lambda: int(self._shell(seen)) * 512 == size, otherwise)


class Migrations(_Beside):
    """Migrations of the VM, one after the other, of which none is completed."""

    shown_by = "QMP query-migrate"

    def __init__(self, ask: Ask, guest: Guest) -> None:
        super().__init__("migration", ask, guest)
        self._sums: tuple[int, ...] = (0, 0, 0)
        self._now = (0, 0, 0)

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        self._fill()
        never_over = {"capability": "pause-before-switchover", "state": True}
        self._ask("migrate-set-capabilities", {"capabilities": [never_over]})
        self._begin()
        yield
        self._ask("migrate_cancel", {})
        self._await(lambda: self._look() == "cancelled", "the migration of the VM did not end")

    def tend(self) -> None:
        status = self._look()
        if status in ("failed", "completed"):
            raise LoadError(f"the migration of the VM {status}, and nobody ended it")
        if status == "pre-switchover":
            self._ask("migrate_cancel", {})
        if status == "cancelled":
            self._sums = self._counts()
            self._begin()

    def _progress(self) -> tuple[bool, str]:
        sent, zeros, syncs = self._done()
        proof = f"{format_bytes(sent)} of memory and {format_bytes(zeros)} of zeros sent {UNDER_LOAD}, "
        return sent > zeros, f"{proof}{syncs} syncs of what was written meanwhile, begun {self._passes} times"

    def _counts(self) -> tuple[int, ...]:
        return tuple(before + now for before, now in zip(self._sums, self._now, strict=True))

    def _begin(self) -> None:
        self._now = (0, 0, 0)
        self._ask("migrate", {"uri": "exec:exec cat >/dev/null"})
        self._passes += 1

    def _look(self) -> str:
        """Return the state of the migration, and note how far it is."""
        said = self._ask("query-migrate", {})
        if (ram := said.get("ram")) is not None:
            self._now = ram["normal-bytes"], ram["duplicate"] * ram["page-size"], ram["dirty-sync-count"]
        return str(said["status"])

    def _fill(self) -> None:
        told = dict(line.split(":") for line in self._shell("cat /proc/meminfo").splitlines())
        free, whole = (int(told[name].split()[0]) * 1024 for name in ("MemAvailable", "MemTotal"))
        if 2 * (size := free - _SPARED_BYTES) < whole:
            why = f"the guest has {format_bytes(free)} of {format_bytes(whole)} free to be filled"
            raise RigError(f"{why}, and a migration of zeros costs nothing", hint="a larger machine.memory")
        self._shell(_FILL.format(pieces=size // _MIB), ARM_SECONDS + size / _FILLED_BPS)
