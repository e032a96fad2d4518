# SPDX-License-Identifier: Apache-2.0
"""The appliance (guest image): build it, test it on KVM, list, remove; and clean up after interrupted builds."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from virtune import shell
from virtune.bench.appliance.build import (
    Appliance,
    Chosen,
    appliance_for,
    appliances,
    choose,
    chosen,
    look_alikes,
    remove,
    remove_halves,
)
from virtune.bench.appliance.sources import find_sources
from virtune.bench.qemu.accelerator import Accelerator, accelerator_for
from virtune.bench.qemu.machine import running
from virtune.model.errors import PreconditionError
from virtune.model.event import Event, StepEnded, StepStarted

_AGENT_SECONDS = 20.0
"""It answers within a second after the guest's own agent, under emulation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """An appliance, whether it was built now, and the accelerator of guests on this host. Its agent, if it has one,
    answered in a test.
    """

    appliance: Appliance
    made: bool
    accelerator: Accelerator


def build(*, kernel: Path | None, modules: Path | None, agent: bool) -> Built:
    """Build the appliance unless there is one of the same content, and test again whether it boots on KVM.

    The rig boots it from then on, or a rebuild of it after its sources have changed. Raises GuestError when its guest
    agent, if requested, does not answer.
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
    """Build the appliance if there is none yet, and report it: the first time packages are downloaded."""
    what = "getting the guest ready"
    say(StepStarted(what=what))
    # the rig imports QMP and its event loop, which only booting a guest needs
    from virtune.bench.qemu import rig

    rig.ready_appliance()
    say(StepEnded(what=what))


def kept() -> list[Appliance]:
    """Return the stored appliances, oldest first."""
    return appliances(shell.cache_directory() / "appliances")


def booted() -> str:
    """Return the key of the appliance that the rig boots, empty if there is none yet."""
    return chosen(shell.cache_directory()).key


def remove_kept(keys: frozenset[str]) -> list[str]:
    """Remove the appliances with these keys, or all without keys; raises PreconditionError for a missing one."""
    unknown = keys - {one.key for one in kept()}
    if unknown:
        raise PreconditionError(f"there is no appliance {min(unknown)}", hint="`virtune appliance list` shows them")
    return remove(shell.cache_directory() / "appliances", keys or None)


def clean_halves() -> list[str]:
    """Remove the remains of killed builds; returns what was removed, in words."""
    return [f"half an appliance {path}" for path in remove_halves(shell.cache_directory() / "appliances")]


def strange_guests() -> list[str]:
    """Return what lies in the cache among guests and was not proven to be virtune's, in words."""
    return look_alikes(shell.cache_directory() / "appliances")
