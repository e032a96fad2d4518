# SPDX-License-Identifier: Apache-2.0
"""The loop that watches a load: its settings are looked for until they are seen or it is over."""

from collections.abc import Callable

import pytest

from virtune.bench.load import Moment, Together, watch
from virtune.model.errors import LoadError
from virtune.model.evidence import Check


class Load(Together):
    """A load that ends after so many ticks; what can be seen of it is said tick by tick."""

    def __init__(self, ticks: int, seen: Callable[[int], str | None], *, stuck: str | None = None) -> None:
        super().__init__(())
        self.ticks, self.seen, self.why = ticks, seen, stuck
        self.tick, self.looks, self.stopped = 0, 0, False

    def ended(self, *, due: bool) -> bool:
        self.tick += 1
        return self.tick > self.ticks

    def stuck(self) -> str | None:
        return self.why

    def stop(self) -> None:
        self.stopped = True

    def look(self) -> tuple[Check, ...]:
        self.looks += 1
        return (Check(setting="disk.aio", asked="native", found=self.seen(self.looks), proof=f"look {self.looks}"),)


def watched(load: Load, begin: float = 0.0, end: float = 0.0, marks: list[str] | None = None) -> tuple[Check, ...]:
    said = [] if marks is None else marks
    first: Moment = (begin, lambda: said.append("begin"))
    return watch(load, first, (end, lambda: said.append("end")), patience_seconds=60.0)


def test_what_was_not_seen_half_way_is_looked_for_again_when_the_load_is_over() -> None:
    load = Load(5, lambda look: "native" if look > 1 else None)
    (check,) = watched(load)
    assert (check.found, check.proof) == ("native", "look 2")


def test_what_was_seen_once_stands_and_is_not_looked_for_again() -> None:
    load = Load(50, lambda look: "native")
    (check,) = watched(load)
    assert (check.proof, load.looks) == ("look 1", 1)


def test_a_load_that_is_over_before_it_is_half_way_is_looked_at_all_the_same() -> None:
    load = Load(0, lambda look: "native")
    (check,) = watched(load, begin=10, end=20)
    assert check.found == "native"


def test_what_was_never_seen_is_said_not_to_have_been() -> None:
    (check,) = watched(Load(5, lambda look: None))
    assert check.found is None


def test_each_moment_comes_once_and_in_its_order() -> None:
    marks: list[str] = []
    watched(Load(10, lambda look: "native"), marks=marks)
    assert marks == ["begin", "end"]


def test_a_load_that_is_stuck_is_ended_and_said_to_be() -> None:
    load = Load(10, lambda look: None, stuck="its disk completed nothing")
    with pytest.raises(LoadError, match="its disk completed nothing"):
        watched(load)
    assert load.stopped
