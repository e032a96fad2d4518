# SPDX-License-Identifier: Apache-2.0
"""Diagnose stored trials: what limited each arm under each workload, from the captures of its rounds."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from virtune.advise.guidelines import TUNING, answers_of, not_applicable
from virtune.analyse.layers.bottleneck import judge
from virtune.analyse.layers.path import bottleneck_of, layers_of, path_of
from virtune.analyse.trial.counters import queue_of
from virtune.flows.stored.show import derived
from virtune.model.bottleneck import DataPath, Diagnosis, Walk, walk
from virtune.model.errors import LoadError, StoreError
from virtune.model.evidence import TrialRecord
from virtune.model.live import HostQueue
from virtune.model.measurement import Measurement
from virtune.model.stack import Stack
from virtune.model.study import Study
from virtune.store.store import Store

ROUNDS_MAX = 20
"""The most rounds that are read, the last ones: reading a trial's captures takes a tenth of a second."""


def diagnose_study(store: Store, study_id: str, number: int | None = None) -> tuple[Diagnosis, ...]:
    """Return a diagnosis of every arm under every workload, or of the one trial of that number.

    Raises StoreError where no trial has a measurement, or the study was measured elsewhere.
    """
    record = store.get(study_id)
    study = record.study
    if study.imported:
        raise StoreError(
            f"study {study_id} was imported", hint="only trials of virtune's own have the counters of host and QEMU"
        )
    done = [one for one in record.trials if one.measurement is not None and number in (None, one.trial.number)]
    if not done:
        which = "trial with a measurement" if number is None else f"measured trial {number}"
        raise StoreError(f"study {study_id} has no {which}")
    return tuple(_diagnoses(store, study, done))


def _diagnoses(store: Store, study: Study, done: list[TrialRecord]) -> Iterator[Diagnosis]:
    for workload in study.workloads:
        for arm in study.arms:
            mine = [one for one in done if (one.trial.arm, one.trial.workload) == (arm.name, workload.name)]
            rounds = []
            for one in mine[-ROUNDS_MAX:]:
                with contextlib.suppress(LoadError):  # today's method cannot read it
                    rounds.append(derived(store, study, one))
            if not rounds:
                continue
            load = arm.load_of(workload)
            paths = [path_of(parts, measured, arm.stack, load) for parts, measured in rounds]
            judged = [judge(path) for path in paths]
            found = bottleneck_of(judged)
            if found is None:
                continue
            index = next((i for i, one in enumerate(judged) if one.cause is found.cause), 0)
            why = not_applicable(paths[index], found.cause) if arm.stack.kind.in_guest else ""
            yield Diagnosis(
                disk=arm.name,
                workload=workload.name,
                seconds=study.seconds,  # of the one round whose figures and threads are shown
                path=paths[index],
                found=found,
                guideline=None if why else _guideline([one for _, one in rounds], paths[index], arm.stack),
                no_guideline=why,
                layers=layers_of([measured for _, measured in rounds], arm.stack, load),
                queue=_queue([parts for parts, _ in rounds]),
                exits_per_io=mean_of([measured for _, measured in rounds], "exits.io"),
                missing=("any disk: the study is simulated, its figures are invented",) if study.simulated else (),
            )


def _guideline(measured: Sequence[Measurement], path: DataPath, stack: Stack) -> Walk | None:
    """Walk through the tuning guideline, which is for disks of VMs, with the means over rounds."""
    if not stack.kind.in_guest:
        return None

    done, written = mean_of(measured, "iops"), mean_of(measured, "write.iops")
    answers = answers_of(
        path,
        write_share=None if not done else (written or 0.0) / done,
        host_usr=mean_of(measured, "cpu.host.usr"),
        host_sys=mean_of(measured, "cpu.host.sys"),
    )
    own = {"assigned": (True, "its PCI address was passed through")} if stack.device.vfio_pci else {}
    return walk(TUNING, answers | own)


def _queue(rounds: Sequence[Mapping[str, bytes]]) -> HostQueue | None:
    """Return the split of the time at the host's disk, the mean over rounds."""
    found = [one for parts in rounds if (one := queue_of(parts)) is not None]
    if not found:
        return None
    return HostQueue(queue_ns=fmean(one.queue_ns for one in found), device_ns=fmean(one.device_ns for one in found))


def mean_of(measured: Sequence[Measurement], metric: str) -> float | None:
    """Return the mean of a metric over the measurements that have it; None if none has."""
    found = [value for one in measured if (value := one.get(metric)) is not None]
    return fmean(found) if found else None
