# SPDX-License-Identifier: Apache-2.0
"""The structures of VMs in a study and their shares of bare metal's IOPS, from the same rounds."""

from collections.abc import Iterator

from virtune.analyse.stats.paired import interval_of
from virtune.analyse.trial.rejection import pardons, rejected_for
from virtune.model.evidence import StudyRecord
from virtune.model.guideline import OwnShare, Structure
from virtune.model.remark_kinds import EMULATED
from virtune.model.stack import Stack
from virtune.model.study import Arm, Study

CONFIDENCE = 0.95


def structure_of(stack: Stack) -> Structure | None:
    """Return the structure that a stack is; None for one without guests."""
    if not stack.kind.in_guest:
        return None
    if stack.device.vfio_pci is not None:
        return "structure-3"
    if stack.guests > 1:
        return "structure-1"
    return "structure-4" if stack.in_iothread else "structure-2"


def metal_of(study: Study) -> Arm | None:
    """Return the first arm that is bare metal, None without one."""
    return next((arm for arm in study.arms if arm.stack.kind.front == "file"), None)


def shares_of_metal(record: StudyRecord) -> Iterator[OwnShare]:
    """Yield the share of every arm that is a structure, under every workload that bare metal had too; none for an
    arm without two rounds in which both count.
    """
    study = record.study
    metal = metal_of(study)
    if metal is None:
        return
    iops = dict(_iops(record))
    for arm in study.arms:
        structure = structure_of(arm.stack)
        for workload in study.workloads if structure is not None else ():
            mine, other = (iops.get((name, workload.name), {}) for name in (arm.name, metal.name))
            rounds = sorted(mine.keys() & other.keys())
            ratio = interval_of([(other[number], mine[number]) for number in rounds], confidence=CONFIDENCE)
            if structure is not None and ratio is not None:
                yield OwnShare(
                    structure=structure,
                    study=study.id,
                    arm=arm.name,
                    workload=workload.name,
                    rounds=len(rounds),
                    ratio=ratio,
                    emulated=_emulated(record, arm.name),
                )


def _iops(record: StudyRecord) -> Iterator[tuple[tuple[str, str], dict[int, float]]]:
    """Yield the IOPS of the trials that count, by round, of each arm under each workload."""
    pardoned = pardons(record.attempts or record.trials)
    found: dict[tuple[str, str], dict[int, float]] = {}
    for one in record.trials:
        done = None if one.measurement is None else one.measurement.get("iops")
        if one.measurement is not None and done and not rejected_for(one.trial.arm, one.measurement, pardoned):
            found.setdefault((one.trial.arm, one.trial.workload), {})[one.trial.round] = done
    yield from found.items()


def _emulated(record: StudyRecord, arm: str) -> bool:
    measured = (one.measurement for one in record.trials if one.trial.arm == arm)
    return any(one is not None and EMULATED.id in (remark.id for remark in one.remarks) for one in measured)
