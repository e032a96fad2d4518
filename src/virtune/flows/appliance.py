# SPDX-License-Identifier: Apache-2.0
"""The appliance: made, tried on KVM, listed, removed; and what an interrupted build left taken away."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from virtune import shell
from virtune.bench.appliance.build import Appliance, appliance_for, appliances, remove, remove_halves
from virtune.bench.appliance.chosen import Chosen, choose, chosen
from virtune.bench.appliance.sources import find_sources
from virtune.bench.qemu.accelerator import Accelerator, accelerator_for
from virtune.bench.qemu.machine import running
from virtune.model.errors import PreconditionError
from virtune.model.event import Event, StepEnded, StepStarted

_AGENT_SECONDS = 20.0
"""It answers within a second of the guest's own agent, under emulation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """An appliance, whether it was made now, and what a guest runs on here. An agent in it was seen to answer."""

    appliance: Appliance
    made: bool
    accelerator: Accelerator


def build(*, kernel: Path | None, modules: Path | None, agent: bool) -> Built:
    """Make the appliance unless there is one of the same content, and try again whether it comes up on KVM.

    From then on it is what the rig boots, or whatever is made from the same sources when one of them has changed.
    Raises GuestError when the guest agent that is to be in it does not answer.
    """
    cache = shell.cache_directory()
    sources = find_sources(cache / "packages", kernel=kernel, modules=modules, agent=agent)
    appliance, made = appliance_for(sources, cache / "appliances")
    with shell.Warden("appliance") as warden:
        accelerator = accelerator_for(appliance, warden, cache, again=True)
        if agent:
            with running(appliance, warden, kvm=accelerator.kvm) as vm:
                if vm.agent is not None:
                    vm.agent.ping(timeout_seconds=_AGENT_SECONDS)
    choose(cache, Chosen(kernel=kernel, modules=modules, agent=agent, key=appliance.key))
    return Built(appliance=appliance, made=made, accelerator=accelerator)


def ready_appliance(say: Callable[[Event], None]) -> None:
    """Make the appliance where there is none yet, and say so: the first time it is downloaded."""
    what = "getting the guest ready"
    say(StepStarted(what=what))
    # the rig brings QMP and its event loop, which only who boots a guest needs
    from virtune.bench.qemu import guests

    guests.ready_appliance()
    say(StepEnded(what=what))


def kept() -> list[Appliance]:
    """Return the appliances that are kept, oldest first."""
    return appliances(shell.cache_directory() / "appliances")


def booted() -> str:
    """Return the key of the appliance that the rig boots, empty where none was made yet."""
    return chosen(shell.cache_directory()).key


def remove_kept(keys: frozenset[str]) -> list[str]:
    """Remove the appliances with these keys, all without any; raises PreconditionError for one that is not there."""
    unknown = keys - {one.key for one in kept()}
    if unknown:
        raise PreconditionError(f"there is no appliance {min(unknown)}", hint="`virtune appliance list` shows them")
    return remove(shell.cache_directory() / "appliances", keys or None)


def clean_halves() -> list[str]:
    """Remove what builds that were killed left; returns what was removed, in words."""
    return [f"half an appliance {path}" for path in remove_halves(shell.cache_directory() / "appliances")]
