# SPDX-License-Identifier: Apache-2.0
"""The drive that a study hands to a guest: which one it is, and whether it may be taken from this host.

All arms of such a study load that drive, so it is the study's target, and what is refused of a target is refused of
it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from virtune.model.errors import PlanError, PreconditionError, RefusedTargetError, RigError
from virtune.model.rig import PASSED_KNOB
from virtune.model.stack import PASSED_TARGET
from virtune.model.study import Arm, Study
from virtune.model.study_options import ChosenOption, Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The arms of a study with the address of their drive, and the target that it is. `left_out` says which arms were
    left out, and why.
    """

    arms: tuple[Arm, ...]
    target: Path | None
    left_out: str | None = None

    @property
    def options(self) -> tuple[ChosenOption, ...]:
        """What is recorded with the study of arms that were left out."""
        if self.left_out is None:
            return ()
        return (ChosenOption(name=PASSED_KNOB, value=self.left_out, source=Provenance.DEFAULT),)


def with_drive(arms: Sequence[Arm], target: Path | None, *, builtin: bool) -> Given:
    """Find the drive of the arms whose guest drives one itself. In a built-in study such arms are left out where this
    host cannot hand over the target.

    Raises PlanError for arms with several drives, or another one than the target; PreconditionError with the reason
    when this host cannot hand it over.
    """
    asked = {arm.stack.device.vfio_pci for arm in arms} - {None}
    simulated = not all(arm.stack.kind.measures for arm in arms)
    if not asked or (simulated and not builtin):
        return Given(arms=tuple(arms), target=target)
    try:
        address, node = _drive(asked, target, simulated=simulated)
    except (RigError, PlanError) as error:
        gone = ", ".join(arm.name for arm in arms if arm.stack.device.vfio_pci is not None)
        if isinstance(error, PlanError) and not builtin:
            raise
        if not builtin:
            raise PreconditionError(f"arm {gone!r} cannot be here: {error.message}", hint=error.hint) from None
        rest = tuple(arm for arm in arms if arm.stack.device.vfio_pci is None)
        return Given(arms=rest, target=target, left_out=f"{gone} is left out: {error.message}")
    return Given(arms=tuple(_with_address(arm, address) for arm in arms), target=target or node)


def bring_back(study: Study) -> None:
    """Give back the drives that killed runs left with a guest, for a study that hands one over."""
    if any(arm.stack.device.vfio_pci is not None for arm in study.arms):
        from virtune.bench.qemu.passthrough import recover

        recover()


def require_given(study: Study, *, allow_in_use: bool) -> None:
    """Raise RefusedTargetError where the drive that a study hands over may not be taken from this host; nothing for
    a study without one.
    """
    address = next((found for arm in study.arms if (found := arm.stack.device.vfio_pci) is not None), None)
    if address is None:
        return
    from virtune.bench.qemu.passthrough import address_of, drive_at, recover, require_free

    recover()
    try:
        if study.target is None or address_of(Path(study.target)) != address:
            raise RefusedTargetError(f"{study.target} is not the disk {address}, which its guests are to drive")
        require_free(drive_at(address), allow_in_use=allow_in_use)
    except RigError as error:
        raise PreconditionError(error.message, hint=error.hint) from None


def _drive(asked: set[str | None], target: Path | None, *, simulated: bool) -> tuple[str, Path]:
    """Return the address and the node of the only drive that is asked for; a simulation has none."""
    if simulated:
        raise RigError("a simulation has no drives")
    from virtune.bench.qemu.passthrough import address_of, drive_at, recover

    recover()
    if PASSED_TARGET in asked and target is None:
        raise PlanError(
            f"{PASSED_KNOB}={PASSED_TARGET} is the drive of --target, and there is no --target",
            hint="`--target /dev/NAME`, an NVMe drive that this host does not use",
        )
    addresses = {word for word in asked if word is not None and word != PASSED_TARGET}
    if PASSED_TARGET in asked or (target is not None and addresses):
        own = drive_at(address_of(target or Path()))
        if addresses - {own.address}:
            raise PlanError(f"{PASSED_KNOB} is {min(addresses)}, and --target is the drive {own.address}")
        return own.address, Path(own.node)
    if len(addresses) > 1:
        raise PlanError(f"the arms have several drives: {', '.join(sorted(addresses))}", hint="compare two studies")
    drive = drive_at(addresses.pop())
    return drive.address, Path(drive.node)


def _with_address(arm: Arm, address: str) -> Arm:
    """Return an arm with the address of its drive where it has the word for the target's."""
    if arm.stack.device.vfio_pci != PASSED_TARGET:
        return arm
    stack = replace(arm.stack, device=replace(arm.stack.device, vfio_pci=address))
    said = tuple((name, address if name == PASSED_KNOB else value) for name, value in arm.settings)
    return replace(arm, stack=stack, settings=said)
