# SPDX-License-Identifier: Apache-2.0
"""Check whether a target may be loaded. virtune writes to nothing it did not make, unless the user allows writing to
it by name.

A name may lead elsewhere at any time. So a target is opened once, and that open file is checked and loaded, under a
path in /proc that nobody can replace.
"""

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from virtune.bench.scratch import never_written
from virtune.bounded import opened
from virtune.model.errors import RefusedTargetError
from virtune.model.facts import Claim, ClaimKind
from virtune.model.text import format_bytes
from virtune.probe.access import ours_alone
from virtune.probe.claims import claim, claims, lasting, signed
from virtune.probe.holders import identities, locks_on, loops_over, opened_by_any, processes_with, unseen_processes
from virtune.probe.tree import other_names

_LEAST_BYTES = 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A target that may be loaded: `path` leads to it while it is held, even if its name changes."""

    path: Path
    size_bytes: int


@contextlib.contextmanager
def admit(
    target: Path, *, span_bytes: int, writes: bool, allow_write_to: Iterable[str], allow_in_use: bool
) -> Iterator[Held]:
    """Hold an existing target open while the block runs; raises RefusedTargetError with the reason if it may not be
    loaded.

    Writing needs the target's own name in `allow_write_to`, and `allow_in_use` if the target is in use. Reading
    changes nothing and needs no permission, but never-written blocks in the used part (`span_bytes`) are refused:
    they are read without accessing the disk.
    """
    with contextlib.ExitStack() as ends:
        try:  # opening it with O_PATH has no side effects
            held = Path(f"/proc/{os.getpid()}/fd/{ends.enter_context(opened(target, os.O_PATH))}")
        except OSError as error:
            raise RefusedTargetError(f"cannot use {target}: {error.strerror}") from None
        found = held.stat()
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISBLK(found.st_mode)):
            raise RefusedTargetError(f"{target} is neither a file nor a block device")
        if writes:
            _refuse_writing(target, held, found, allow_write_to=allow_write_to, allow_in_use=allow_in_use)
        try:
            with opened(held, os.O_RDONLY) as descriptor:
                size = os.lseek(descriptor, 0, os.SEEK_END)
        except OSError as error:
            raise RefusedTargetError(f"cannot read {target}: {error.strerror}") from None
        if size < _LEAST_BYTES:
            raise RefusedTargetError(
                f"{target} holds {format_bytes(size)}; at least 1 MiB is needed to measure anything"
            )
        if stat.S_ISREG(found.st_mode) and (empty := never_written(held, min(size, span_bytes))):
            hint = "write it once in full, or leave out `--target` and let virtune make a filled scratch image"
            share = format_bytes(empty)
            raise RefusedTargetError(
                f"{share} of {target} were never written: reading them does not measure the disk", hint=hint
            )
        yield Held(path=held, size_bytes=size)


def _refuse_writing(
    target: Path, held: Path, found: os.stat_result, *, allow_write_to: Iterable[str], allow_in_use: bool
) -> None:
    if not any(_same(name, found) for name in allow_write_to):
        hint = f"if its contents may be lost: `--allow-write-to {target}`"
        raise RefusedTargetError(f"the load writes to {target}, which virtune did not create", hint=hint)
    if not os.access(held, os.W_OK):
        raise RefusedTargetError(f"{target} cannot be written to: it, or its filesystem, is read-only")
    reasons = list(dict.fromkeys(one.text for one in lasting(lambda: _uses(held, found))))
    if reasons and not allow_in_use:
        hint = "`--allow-in-use` overrides this, and destroys what is there"
        raise RefusedTargetError(f"{target} is in use: {'; '.join(reasons)}", hint=hint)


def _same(name: str, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(Path(name).stat(), found)
    except OSError:
        return False


def _uses(held: Path, found: os.stat_result) -> Iterator[Claim]:
    """Say who uses a target, what is on it, and what could not be checked."""
    name = str(held.readlink())
    files, names = identities(held.readlink(), found), list(other_names(held.readlink()))
    holders: list[str] = []
    if stat.S_ISBLK(found.st_mode):
        yield from claims(held)
    else:
        holders += [words for _, words in loops_over(found, files)]
        yield from signed(str(held), name)
        if found.st_nlink > 1:
            words = f"it has {found.st_nlink} names (hard links), and is overwritten under all of them"
            yield claim(ClaimKind.HELD, name, words)
    holders += [f"open in process {pid} ({name})" for pid, name in processes_with(*files)]
    holders += locks_on(held)
    for other in names:
        if other.is_file():
            holders += [f"{words}, as {other}" for words in locks_on(other)]
    if not holders and any(opened_by_any(one) for one in (held, *names)):
        holders = ["something has it open, and no process shows it: a container, a socket, an io_uring, the kernel"]
    yield from (claim(ClaimKind.OPEN, name, words) for words in holders)
    unseen = [] if ours_alone(held, found) else unseen_processes()
    if unseen:
        words = f"the files of {len(unseen)} processes could not be looked at: {unseen[0]}"
        yield claim(ClaimKind.UNSEEN, name, f"others may write to it, and {words}")
