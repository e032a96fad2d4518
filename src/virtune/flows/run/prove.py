# SPDX-License-Identifier: Apache-2.0
"""Test the accusation of a diagnosis: replace the accused layer on a scratch disk, in a comparison like any other.

No existing VM and no disk but the scratch disk is touched. The comparison is a study in the store.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from virtune.analyse.study.thresholds import judge_proof, rule
from virtune.flows.live.diagnose import diagnose_study
from virtune.flows.run.question import budgeted, facts_text, most_rounds
from virtune.flows.run.study import new_study, random_seed
from virtune.model.bottleneck import Accusation, DataPath, Diagnosis
from virtune.model.errors import UsageError
from virtune.model.evidence import StudyRecord
from virtune.model.knob import Support
from virtune.model.knobs import BY_ID
from virtune.model.result import Result
from virtune.model.stack import Stack
from virtune.model.study import Study, StudyKind
from virtune.model.study_options import StudyOptions
from virtune.model.verdict import Proof, ProofReason
from virtune.model.workload import Workload
from virtune.plan.interventions import AS_IS, INTERVENTIONS, Intervention, intervention, knobs_of
from virtune.probe.kernel import try_io_uring
from virtune.probe.qemu_knobs import EMULATORS, ask
from virtune.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedProof:
    """An accusation, and the study that tests it with the facts of this host as JSON text.

    Where nothing can be measured, `study` is None and the diagnosis has its proof already.
    """

    accused: Diagnosis
    study: Study | None = None
    facts: str = ""


def plan_proof(store: Store, study_id: str, number: int | None, asked: StudyOptions) -> PlannedProof:
    """Return how the accusation of a stored study is tested; `number` is a trial of the arm and workload meant.

    Of `asked` count rounds, budget and scratch. Raises UsageError where the study has several diagnoses, and for
    fewer rounds than can decide.
    """
    source = store.get(study_id).study
    accused = _accused(store, source, number)
    arm = source.arm(accused.disk)
    none = untested(accused, arm.stack)
    if none is not None:
        return PlannedProof(accused=replace(accused, proof=none))
    workload = replace(source.workload(accused.workload), probe=False)
    found = intervention(accused, arm, workload, unavailable=_unavailable(accused, arm.stack))
    if found is None:
        row = INTERVENTIONS[accused.found.cause]
        proof = Proof(reason=ProofReason.NO_INTERVENTION, why=row.without, by_hand=row.by_hand)
        return PlannedProof(accused=replace(accused, proof=proof))
    study = budgeted(_comparison(source, accused, found, asked, workload), asked)
    if study.rounds < study.fewest_rounds:
        words = f"no {study.rounds} rounds decide a proof: {study.fewest_rounds} are the fewest that can"
        raise UsageError(
            words, hint=f"`--rounds {study.fewest_rounds}` or more; without --rounds it ends when it knows"
        )
    return PlannedProof(accused=accused, study=new_study(study), facts=facts_text(Path(study.scratch)))


def _comparison(
    source: Study, accused: Diagnosis, found: Intervention, asked: StudyOptions, workload: Workload
) -> Study:
    """Return the study that compares the stack as it is with the replacement."""
    notes = () if source.target is None else (f"measured on a scratch disk, and not on {source.target}",)
    return Study(
        id="",
        created="",
        kind=StudyKind.COMPARE,
        arms=found.arms,
        baseline=AS_IS,
        workloads=(workload,),
        rounds=most_rounds(StudyKind.COMPARE, asked),
        seconds=source.seconds,
        ramp_seconds=source.ramp_seconds,
        seed=random_seed() if asked.seed is None else asked.seed,
        scratch=str((asked.scratch or Path(source.scratch)).absolute()),
        span_bytes=source.span_bytes,
        title=f"is {accused.found.cause.words} the limit of {accused.disk}? (study {source.id})",
        metric=found.metric,
        margin=source.margin,
        confidence=source.confidence,
        conditions=(found.condition,),
        accusation=Accusation(
            source=source.id,
            disk=accused.disk,
            workload=accused.workload,
            found=accused.found,
            what=found.what,
            replaced=found.replaced,
            stand_in=found.stand_in,
            share=found.share,
            notes=notes,
        ),
    )


def proof_of(store: Store, record: StudyRecord, result: Result) -> Diagnosis | None:
    """Return what a study that tests a diagnosis says of it, by its trials so far; None for any other study.

    The diagnosis has the accusation and its proof only: the data path is that of the study diagnosed.
    """
    test = record.study.accusation
    if test is None:
        return None
    rulings = {one.comparison.candidate: one for one in rule(record, record.study.conditions)}
    beside = {one.candidate: one for one in result.verdicts if one.baseline == AS_IS}
    if test.replaced not in rulings or (test.stand_in is not None and test.stand_in not in beside):
        return None  # it has not been measured yet
    again = [one for one in diagnose_study(store, record.study.id) if one.disk == AS_IS]
    proof = judge_proof(
        rulings[test.replaced],
        cause=test.found.cause,
        again=again[0].found.cause if again else None,
        share=test.share,
        stand_in=None if test.stand_in is None else beside[test.stand_in],
    )
    return Diagnosis(
        disk=test.disk,
        workload=test.workload,
        seconds=record.study.seconds,
        path=DataPath(iops=0.0),
        found=test.found,
        layers=None,
        proof=replace(proof, what=test.what, study=record.study.id, notes=test.notes),
    )


def proven(store: Store, accused: Diagnosis, record: StudyRecord, result: Result) -> Diagnosis:
    """Return the diagnosis with the verdict on it by the comparison's trials so far."""
    found = proof_of(store, record, result)
    return accused if found is None else replace(accused, proof=found.proof)


def _accused(store: Store, source: Study, number: int | None) -> Diagnosis:
    """Return the one diagnosis that is meant, over all rounds of its arm and workload."""
    if number is not None:
        (meant,) = diagnose_study(store, source.id, number)
        found = [
            one for one in diagnose_study(store, source.id)
            if (one.disk, one.workload) == (meant.disk, meant.workload)
        ]  # fmt: skip
    else:
        found = list(diagnose_study(store, source.id))
    if len(found) != 1:
        raise UsageError(
            f"study {source.id} has {len(found)} diagnoses, and --prove tests one",
            hint=f"`--run {source.id}:NUMBER` with a trial of the arm and workload that you mean",
        )
    return found[0]


def untested(accused: Diagnosis, stack: Stack) -> Proof | None:
    """Return the proof of an accusation that is not tested, whatever could take the layer's place; else None."""
    row = INTERVENTIONS[accused.found.cause]
    if not accused.found.cause.accuses:
        return Proof(reason=ProofReason.NOTHING_ACCUSED, why=row.without, by_hand=row.by_hand)
    if stack.kind.users_guest:
        return Proof(
            reason=ProofReason.NOT_OURS,
            why=f"it was measured in your VM {stack.domain}, which a proof does not touch",
            by_hand=f"{accused.found.experiment}; or measure a test guest (`--rig qemu`) with the same settings, and"
            " prove that",
        )
    if stack.device.vfio_pci is not None:
        return Proof(
            reason=ProofReason.NOT_OURS,
            why=f"the guest drives the disk {stack.device.vfio_pci} itself, and a proof touches only a scratch disk",
            by_hand=accused.found.experiment,
        )
    return None


def _unavailable(accused: Diagnosis, stack: Stack) -> frozenset[tuple[str, str]]:
    """Return the knobs and values that the accusation's replacements would turn and that this host cannot."""
    if not stack.kind.measures:
        return frozenset()
    knobs = knobs_of(accused.found.cause)
    found = {("disk.aio", "io_uring")} if "disk.aio" in knobs and try_io_uring() is False else set()
    mapping = "device.iothread_vq_mapping"
    if mapping in knobs and stack.kind.own_guest:
        emulator = stack.machine.emulator
        answers = ask([BY_ID[mapping]], emulators=EMULATORS if emulator is None else (emulator,))[mapping]
        if all(one.standing in (Support.ABSENT, Support.NOT_ASKED) for one in answers):
            found.add((mapping, ""))
    return frozenset(found)
