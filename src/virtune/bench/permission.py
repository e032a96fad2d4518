# SPDX-License-Identifier: Apache-2.0
"""May this target be loaded? virtune writes to nothing it did not make, unless told so by name."""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from virtune.bench.scratch import never_written
from virtune.model.errors import RefusedTargetError
from virtune.model.units import format_bytes
from virtune.probe.claims import claims, signed


def admit(target: Path, *, span_bytes: int, writes: bool, allow_write_to: str | None, allow_in_use: bool) -> int:
    """Return the size in bytes of a user's own target if it may be loaded; raises RefusedTargetError with the reason.

    Writing needs the target's own name in `allow_write_to`, and, where somebody uses the target, `allow_in_use` too.
    Reading changes nothing and needs no leave, but blocks that were never written are refused, in as much of the
    target as is used (`span_bytes`): they are answered without asking the disk.
    """
    try:
        real = target.resolve(strict=True)
        kind = real.stat().st_mode
    except OSError as error:
        raise RefusedTargetError(f"cannot use {target}: {error.strerror}") from None
    if not (stat.S_ISREG(kind) or stat.S_ISBLK(kind)):
        raise RefusedTargetError(f"{target} is neither a file nor a block device")
    if writes:
        _refuse_writing(target, real, allow_write_to=allow_write_to, allow_in_use=allow_in_use)
    try:
        size = _size(real)
    except OSError as error:
        raise RefusedTargetError(f"cannot read {target}: {error.strerror}") from None
    if size < 1024**2:
        raise RefusedTargetError(f"{target} holds {format_bytes(size)}; at least 1 MiB is needed to measure anything")
    if stat.S_ISREG(kind):
        _refuse_unwritten(target, real, min(size, span_bytes))
    return size


def _refuse_writing(target: Path, real: Path, *, allow_write_to: str | None, allow_in_use: bool) -> None:
    if allow_write_to is None or Path(allow_write_to).resolve() != real:
        hint = f"if its contents may be lost: `--allow-write-to {target}`"
        raise RefusedTargetError(f"the workload writes to {target}, which virtune did not create", hint=hint)
    if not os.access(real, os.W_OK):
        raise RefusedTargetError(f"{target} cannot be written to: it, or its filesystem, is read-only")
    is_device = stat.S_ISBLK(real.stat().st_mode)
    found = claims(real) if is_device else signed(str(real))
    reasons = [*([] if is_device else _loops_over(real)), *(claim.text for claim in found)]
    reasons += [f"open in process {pid} ({name})" for pid, name in _holders(real)]
    if reasons and not allow_in_use:
        hint = "`--allow-in-use` overrides this, and destroys what is there"
        raise RefusedTargetError(f"{target} is in use: {'; '.join(reasons)}", hint=hint)


def _refuse_unwritten(target: Path, real: Path, size: int) -> None:
    empty = never_written(real, size)
    if empty:
        share = format_bytes(empty)
        hint = "write it once in full, or leave out `--target` and let virtune make a filled scratch image"
        raise RefusedTargetError(
            f"{share} of {target} were never written: reading them does not measure the disk", hint=hint
        )


def _size(real: Path) -> int:
    descriptor = os.open(real, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.lseek(descriptor, 0, os.SEEK_END)
    finally:
        os.close(descriptor)


def _loops_over(real: Path) -> Iterator[str]:
    """Loop devices that stand on the file, mounted or not: the kernel holds it, and no process is seen to."""
    wanted = real.stat()
    for name in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            found = Path(name.read_text().rstrip("\n")).stat()
            if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                yield f"the loop device {name.parts[3]} stands on it"


def _holders(real: Path) -> Iterator[tuple[int, str]]:
    """Processes that hold the very file open, whatever name they know it by."""
    wanted = real.stat()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            for entry in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    found = entry.stat()
                    if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                        yield int(process.name), (process / "comm").read_text().strip()
                        break
