# SPDX-License-Identifier: Apache-2.0
"""A Guideline: a decision tree of questions, each answered with yes or no, whose leaves say what to do."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A fork: what is asked, and the node behind each answer. `ours` says that the authors did not ask it."""

    id: str
    text: str
    yes: str
    no: str
    ours: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """What a guideline ends in: what to do, what was published of it, what it costs to manage, how it is written.

    `limit` says that nothing is left to gain. `ours` says that the authors have no such leaf.
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
    """A tree by its nodes' ids, and where it comes from."""

    id: str
    title: str
    source: str
    root: str
    nodes: Mapping[str, Fork | Leaf]

    @property
    def forks(self) -> tuple[Fork, ...]:
        """Its questions, in their order."""
        return tuple(node for node in self.nodes.values() if isinstance(node, Fork))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A question with its answer and the evidence; `assumed`: nobody knows it, and no was taken."""

    question: Fork
    yes: bool
    evidence: str = ""
    assumed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """The way through a guideline: each question with its answer, and the leaf."""

    guideline: Guideline
    steps: tuple[Answered, ...]
    leaf: Leaf


def walk(guideline: Guideline, answers: Mapping[str, tuple[bool, str]]) -> Walk:
    """Walk through a guideline. `answers` have, by question, the answer and its evidence; a missing one is a no that
    is assumed.
    """
    steps: list[Answered] = []
    node = guideline.nodes[guideline.root]
    while isinstance(node, Fork):
        known = answers.get(node.id)
        yes, evidence = known or (False, "")
        steps.append(Answered(question=node, yes=yes, evidence=evidence, assumed=known is None))
        node = guideline.nodes[node.yes if yes else node.no]
    return Walk(guideline=guideline, steps=tuple(steps), leaf=node)
