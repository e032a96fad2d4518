# SPDX-License-Identifier: Apache-2.0
"""How this host's kernel runs the disks below an image, and how much it lets be dirty: changed for a trial, and put
back after it.

What is about to be changed is recorded in the run's directory before it is, so the guard puts it back where virtune
is killed, and otherwise the next run or `virtune host clean` (`virtune.warden`). Another scheduler changes further
settings of its disk by itself, so these are recorded too. How fast CPUs must wake up holds only while a file of it is
open, so the kernel itself puts that back.
"""

import contextlib
import fcntl
import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from virtune import warden
from virtune.bench.live.emulators import emulators_here
from virtune.bounded import opened
from virtune.model.errors import PreconditionError, RefusedTargetError, RigError, words_of
from virtune.model.evidence import Check
from virtune.model.knobs import BY_ID
from virtune.model.stack import Stack
from virtune.probe.devices import backing_of

_MOVED: Mapping[str, tuple[str, ...]] = {
    "scheduler": ("nr_requests", "wbt_lat_usec"),
    "dirty_ratio": ("dirty_bytes",), "dirty_bytes": ("dirty_ratio",),
    "dirty_background_ratio": ("dirty_background_bytes",), "dirty_background_bytes": ("dirty_background_ratio",),
}  # fmt: skip
"""What the kernel changes beside a setting, by its name."""

_WAKE_UP = "/dev/cpu_dma_latency"
_MICROSECONDS = struct.Struct("=i")


def files_of(stack: Stack, images: Iterable[Path]) -> dict[str, dict[str, str]]:
    """Return the files that a stack's settings of this host are written to, with the value, by setting: one for each
    disk at the bottom of the images. Raises PreconditionError where there is none.
    """
    images, files = list(images), dict[str, dict[str, str]]()
    for name, value in stack.host.asked.items() if stack.kind.measures else ():
        where = BY_ID[f"host.{name}"].spelled["linux"].partition(",")[0]
        places = [f"/proc/sys/{where.replace('.', '/')}"] if where.startswith("vm.") else [where]
        if where.startswith("/sys/block/"):
            disks = {disk.name for image in images for disk in backing_of(image).disks}
            places = [where.replace("DEV", disk) for disk in sorted(disks)]
        missing = [place for place in places if _held(place) is None]
        if not places or missing:
            why = f"there is no {missing[0]}" if missing else f"{images[0]} lies on no disk of this host"
            raise PreconditionError(f"host.{name} cannot be set: {why}", hint="`virtune host probe` shows the disks")
        files[name] = dict.fromkeys(places, value)
    return files


def require_settable(stacks: Sequence[Stack], image: Path, *, allow_in_use: bool) -> None:
    """Raise PreconditionError where this user cannot change a setting that a stack asks for, or the kernel does not
    offer it; RefusedTargetError where VMs run here that it would be changed for too, unless that is allowed.
    """
    asked = {name: files for stack in stacks for name, files in files_of(stack, [image]).items()}
    for stack in stacks:
        for path in files_of(stack, [image]).get("scheduler", ()):
            offered = re.findall(r"[\w-]+", Path(path).read_text())
            if stack.host.scheduler not in offered:
                others = f"{path} offers {', '.join(offered)}"
                raise PreconditionError(
                    f"host.scheduler={stack.host.scheduler}: {others}",
                    hint="bfq and kyber are modules: `modprobe bfq`, `modprobe kyber-iosched`",
                )
    for path in (path for files in asked.values() for path in files):
        if not os.access(path, os.W_OK):
            raise PreconditionError(f"{path} cannot be written to by this user", hint="host.* settings need root")
    if asked and not allow_in_use and (running := [one.called for one in emulators_here()]):
        what, several = ", ".join(f"host.{name}" for name in asked), len(running) > 1
        raise RefusedTargetError(
            f"{what} would change for the {'VMs' if several else 'VM'} {', '.join(running)} too, which"
            f" {'run' if several else 'runs'} here",
            hint="`--allow-in-use` permits it; each is put back after its trials",
        )


@contextlib.contextmanager
def host_set(stack: Stack, images: Iterable[Path], directory: Path) -> Iterator[Callable[[], tuple[Check, ...]]]:
    """Change this host's kernel as a stack asks while the block runs; yields what checks it. `directory` is the
    run's.

    Raises RigError where the kernel does not take a value, or does not take the former one back; PreconditionError
    where another run has changed the same, or there is no such setting.
    """
    files = files_of(stack, images)
    if not files:
        yield tuple
        return
    values = {path: value for one in files.values() for path, value in one.items()}
    wake_up = values.pop(_WAKE_UP, None)
    with _alone(values), contextlib.ExitStack() as ends:
        beside = (Path(path).with_name(name) for path in values for name in _MOVED.get(Path(path).name, ()))
        held = {path: warden.setting_at(path) for path in (*values, *map(str, beside))}
        noted = {path: (before, None) for path, before in held.items() if before is not None}
        warden.note_settings(directory, noted)
        try:
            for path, value in values.items():
                _write(path, value)
            if wake_up is not None:
                _limit_wake_up(int(wake_up), ends)
            found = {path: (before, warden.setting_at(path)) for path, (before, _) in noted.items()}
            warden.note_settings(directory, found)
            yield lambda: tuple(_checks(files))
        finally:
            warden.put_back(directory)
            for path, (before, _) in warden.noted_settings(directory).items():
                if (now := warden.setting_at(path)) != before:
                    hint = f"`echo {before} > {path}`, or `virtune host clean`"
                    raise RigError(f"{path} is {now} and was not put back to {before}", hint=hint)


@contextlib.contextmanager
def _alone(paths: Iterable[str]) -> Iterator[None]:
    """Lock files against other runs: two of them would take each other's values for the former ones."""
    with contextlib.ExitStack() as ends:
        for path in paths:
            try:
                fcntl.flock(ends.enter_context(opened(path)), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PreconditionError(f"another virtune has changed {path} for its own trial") from None
            except OSError as error:
                raise PreconditionError(f"cannot lock {path}: {words_of(error)}") from None
        yield


def _write(path: str, value: str) -> None:
    try:
        if warden.setting_at(path) != value:
            Path(path).write_text(value)
    except OSError as error:
        raise RigError(f"the kernel does not take {value} in {path}: {words_of(error)}") from None


def _limit_wake_up(microseconds: int, ends: contextlib.ExitStack) -> None:
    """Have every CPU of this host wake up in that time until the end, or in what others ask for if it is less."""
    try:
        os.write(ends.enter_context(opened(_WAKE_UP, os.O_WRONLY)), _MICROSECONDS.pack(microseconds))
    except OSError as error:
        raise RigError(f"the kernel does not take {microseconds} in {_WAKE_UP}: {words_of(error)}") from None


def _held(path: str) -> str | None:
    if path != _WAKE_UP:
        return warden.setting_at(path)
    with contextlib.suppress(OSError, struct.error), opened(path) as held:
        return str(_MICROSECONDS.unpack(os.read(held, _MICROSECONDS.size))[0])
    return None


def _checks(files: Mapping[str, Mapping[str, str]]) -> Iterator[Check]:
    for name, one in files.items():
        found = sorted({_held(path) or "" for path in one})
        yield Check(f"host.{name}", next(iter(one.values())), ", ".join(found) or None, ", ".join(one))
