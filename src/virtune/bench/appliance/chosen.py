# SPDX-License-Identifier: Apache-2.0
"""The appliance that the rig boots: the one made from the sources last given to `virtune appliance build`."""

import contextlib
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

from virtune.bench.appliance.build import Appliance, appliance_for
from virtune.bench.appliance.sources import GENERAL_KERNEL, KERNEL_PACKAGE, Sources, find_sources
from virtune.model.errors import PreconditionError
from virtune.probe.access import read_trusted

_NAME = "guest.json"

BACK = "`virtune appliance build` without --kernel goes back to the distribution's kernel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The sources of guests: the user's own kernel with its modules, None for the distribution's.

    `key` is the appliance last made from them, empty if none was.
    """

    kernel: Path | None = None
    modules: Path | None = None
    agent: bool = False
    key: str = ""


def chosen(cache: Path) -> Chosen:
    """Return the choice; one that cannot be read, or that others could have made, counts as none."""
    with contextlib.suppress(OSError, ValueError, AttributeError, RecursionError):
        said = json.loads(read_trusted(cache / _NAME))
        key = said.get("key")
        return Chosen(
            kernel=_path(said.get("kernel")),
            modules=_path(said.get("modules")),
            agent=said.get("agent") is True,
            key=key if isinstance(key, str) else "",
        )
    return Chosen()


def choose(cache: Path, what: Chosen) -> None:
    """Store the choice of sources, atomically.

    Raises PreconditionError where the cache cannot be written.
    """
    said = {
        "kernel": None if what.kernel is None else str(what.kernel.absolute()),
        "modules": None if what.modules is None else str(what.modules.absolute()),
        "agent": what.agent,
        "key": what.key,
    }
    work = cache / f"{_NAME}.{os.getpid()}.partial"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        work.write_text(json.dumps(said) + "\n")
        work.chmod(0o644)
        work.rename(cache / _NAME)
    except OSError as error:
        raise PreconditionError(f"cannot write {cache / _NAME}: {error.strerror}") from None


def chosen_appliance(cache: Path) -> Appliance:
    """Return the appliance that the rig boots, building it if needed.

    Raises PreconditionError with what to do when the chosen sources are gone.
    """
    what = chosen(cache)
    found, _ = appliance_for(_sources(what, cache, KERNEL_PACKAGE), cache / "appliances")
    if found.key != what.key:
        # only `virtune appliance list` needs it
        with contextlib.suppress(PreconditionError):
            choose(cache, replace(what, key=found.key))
    return found


def appliance_besides(cache: Path, besides: frozenset[str]) -> Appliance:
    """Return the appliance that the rig boots with further modules in it."""
    sources = _sources(chosen(cache), cache, KERNEL_PACKAGE)
    return appliance_for(sources, cache / "appliances", besides=besides)[0]


def general_appliance(cache: Path, *, module: str, besides: frozenset[str] = frozenset()) -> Appliance:
    """Return an appliance with the distribution's general kernel, for a driver that the cloud kernel lacks.

    Raises PreconditionError where the user chose a kernel, which is never replaced.
    """
    what = chosen(cache)
    if what.kernel is not None:
        raise PreconditionError(
            f"the kernel {what.kernel} that you chose has no {module}, which this bus needs", hint=BACK
        )
    return appliance_for(_sources(what, cache, GENERAL_KERNEL), cache / "appliances", besides=besides)[0]


def _sources(what: Chosen, cache: Path, package: str) -> Sources:
    if what.kernel is not None and not what.kernel.is_file():
        raise PreconditionError(f"the kernel {what.kernel} that you chose is gone", hint=BACK)
    return find_sources(
        cache / "packages", kernel=what.kernel, modules=what.modules, agent=what.agent, package=package
    )


def _path(said: object) -> Path | None:
    return Path(said) if isinstance(said, str) and said.startswith("/") else None
