# SPDX-License-Identifier: Apache-2.0
"""A Guideline: a decision tree of questions, each answered with yes or no, whose leaves say what to do."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
    """The path through a guideline: each question with its answer, and the leaf. `answers` are all that are known, of
    questions beside the path too.
    """

    guideline: Guideline
    steps: tuple[Answered, ...]
    leaf: Leaf
    answers: Mapping[str, tuple[bool, str]]


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
    return Walk(guideline=guideline, steps=tuple(steps), leaf=node, answers=answers)


def answered(found: Walk, answers: Mapping[str, tuple[bool, str]]) -> Walk:
    """Return the walk with answers that were given, in place of those that were assumed or found."""
    return walk(found.guideline, {**found.answers, **answers})


def open_ends(guideline: Guideline, answers: Mapping[str, tuple[bool, str]]) -> tuple[tuple[Leaf, str], ...]:
    """Return every leaf that the answers leave open, each with the answers that it takes besides, such as
    `own=no, virtio=yes`; empty for the only one.
    """

    def below(node: Fork | Leaf, path: tuple[str, ...]) -> Iterator[tuple[Leaf, str]]:
        if isinstance(node, Leaf):
            yield node, ", ".join(path)
        elif node.id in answers:
            yield from below(guideline.nodes[node.yes if answers[node.id][0] else node.no], path)
        else:
            yield from below(guideline.nodes[node.yes], (*path, f"{node.id}=yes"))
            yield from below(guideline.nodes[node.no], (*path, f"{node.id}=no"))

    return tuple(below(guideline.nodes[guideline.root], ()))
