# SPDX-License-Identifier: Apache-2.0
"""A Guideline: a decision tree of questions, each answered with yes or no, whose leaves say what to do."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from virtune.model.verdict import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A question, and the node behind each answer. `ours`: it was added by virtune and is not the authors'."""

    id: str
    text: str
    yes: str
    no: str
    ours: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """An end of a guideline: the advice, the published results, the management cost, the settings.

    `limit`: nothing is left to gain. `ours`: it was added by virtune and is not the authors'.
    """

    id: str
    text: str
    expected: str = ""
    cost: str = ""
    written: str = ""
    limit: bool = False
    ours: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Guideline:
    """A decision tree by its nodes' ids, and its source."""

    id: str
    title: str
    source: str
    root: str
    nodes: Mapping[str, Fork | Leaf]

    @property
    def forks(self) -> tuple[Fork, ...]:
        """Its questions, in their order."""
        return tuple(node for node in self.nodes.values() if isinstance(node, Fork))


Structure = Literal["structure-1", "structure-2", "structure-3", "structure-4"]
"""A structure of VMs and drives, by its leaf in the configuration guideline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnShare:
    """A structure's IOPS relative to bare metal's, as a study of this host measured them. `emulated`: its guests ran
    without KVM, so the share is the emulator's.
    """

    structure: Structure
    study: str
    arm: str
    workload: str
    rounds: int
    ratio: Interval
    emulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A question with its answer and the evidence; `assumed`: the answer is unknown, and "no" was taken."""

    question: Fork
    yes: bool
    evidence: str = ""
    assumed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """The path through a guideline: each question with its answer, and the leaf."""

    guideline: Guideline
    steps: tuple[Answered, ...]
    leaf: Leaf


def walk(guideline: Guideline, answers: Mapping[str, tuple[bool, str]]) -> Walk:
    """Walk through a guideline. `answers` gives the answer and its evidence for each question; a missing one is taken
    for "no".
    """
    steps: list[Answered] = []
    node = guideline.nodes[guideline.root]
    while isinstance(node, Fork):
        known = answers.get(node.id)
        yes, evidence = known or (False, "")
        steps.append(Answered(question=node, yes=yes, evidence=evidence, assumed=known is None))
        node = guideline.nodes[node.yes if yes else node.no]
    return Walk(guideline=guideline, steps=tuple(steps), leaf=node)


def answered(found: Walk, answers: Mapping[str, tuple[bool, str]]) -> Walk:
    """Return the walk with answers that were given, in place of those that were assumed or found."""
    known = {step.question.id: (step.yes, step.evidence) for step in found.steps if not step.assumed}
    again = walk(found.guideline, known | dict(answers))
    # a leaf that was reached before has its command for this disk
    return replace(again, leaf=found.leaf) if again.leaf.id == found.leaf.id else again
