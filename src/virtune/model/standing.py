# SPDX-License-Identifier: Apache-2.0
"""A Contrast: what the blocks so far say of two arms, in an interval that holds at any time."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """The difference `a - b` of two arms on the logarithm, over the blocks that both ran: `mean` +- `radius`.

    `radius` is infinite where the data can bear no interval, and `why` then says why; else it is None. `sd` is the
    standard deviation of one block's difference (0.05: about 5 %), as it went into the radius: robust, moderated by
    the other pairs, and larger where neighbouring blocks are alike (`lag1`, 0 to 0.9, is that likeness). `df` are the
    degrees of freedom behind `sd`.
    """

    blocks: int
    mean: float = 0.0
    radius: float = math.inf
    sd: float | None = None
    df: float = 0.0
    lag1: float = 0.0
    why: str | None = None

    @property
    def low(self) -> float:
        """The lower end of the interval; minus infinity where there is none."""
        return self.mean - self.radius

    @property
    def high(self) -> float:
        """The upper end of the interval; infinity where there is none."""
        return self.mean + self.radius
