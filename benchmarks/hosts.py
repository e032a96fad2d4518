# SPDX-License-Identifier: Apache-2.0
"""Simulated hosts: the noise of real ones, with a truth that is known.

A slice is ln of the mean rate over windows of 250 ms: level + sensitivity x what the host does meanwhile + noise of
its own + a start-up transient + what bringing the stack up anew changes. What the host does is shared by whatever
runs at that moment: Ornstein-Uhlenbeck components, dips, a thermal drift, shifts of level. `shared` was fitted to
real fio on a shared virtual machine; `quiet` and `drift` are assumptions about better and hotter ones.
"""

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

WINDOW_SECONDS = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """A kind of host. `shared` are (time constant in s, sd) of what all share; sds are of the logarithm."""

    own: float
    shared: tuple[tuple[float, float], ...]
    dips_per_second: float
    dip_depth: tuple[float, float]
    dip_seconds: float
    thermal: float = 0.0
    thermal_seconds: float = 1.0
    shift: float = 0.0
    attach: float


HOSTS = {
    "quiet": Noise(own=0.02, shared=((1.5, 0.015), (120, 0.015)), dips_per_second=1 / 100, dip_depth=(0.05, 0.25),
                   dip_seconds=0.5, attach=0.007),
    "drift": Noise(own=0.03, shared=((1.5, 0.025), (120, 0.02)), dips_per_second=1 / 100, dip_depth=(0.05, 0.25),
                   dip_seconds=0.5, thermal=0.12, thermal_seconds=500, shift=0.06, attach=0.015),
    "shared": Noise(own=0.055, shared=((1.7, 0.10), (6, 0.05), (60, 0.05)), dips_per_second=1 / 200,
                    dip_depth=(0.25, 0.5), dip_seconds=8, attach=0.010),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacks:
    """Simulated stacks: ln of their rates, how they react to the host, their start-up transients (depth, seconds)."""

    level: NDArray[np.float64]
    sensitivity: NDArray[np.float64]
    start_depth: NDArray[np.float64]
    start_seconds: NDArray[np.float64]

    def truth(self, kind: str) -> NDArray[np.float64]:
        """Return ln of each one's mean rate in the long run on that kind of host."""
        grid, gain = _gains(kind)
        found: NDArray[np.float64] = self.level + np.interp(self.sensitivity, grid, gain)
        return found


class Host:
    """A simulated host with a clock: `run` measures one stack now, and time goes on."""

    def __init__(self, kind: str, chance: Generator, *, seconds: float, switch_seconds: float = 0.5) -> None:
        self._noise = HOSTS[kind]
        self._chance = chance
        self._does = _what_it_does(self._noise, chance, int(seconds / WINDOW_SECONDS) + 2000)
        self._switch_seconds = switch_seconds
        self.clock = 0.0
        self.measuring = 0.0

    def run(self, stacks: Stacks, arm: int, *, seconds: float, ramp_seconds: float) -> float:
        """Bring a stack up, throw its ramp away, and return ln of its mean rate."""
        ramp, count = round(ramp_seconds / WINDOW_SECONDS), round(seconds / WINDOW_SECONDS)
        start = int(self.clock / WINDOW_SECONDS)
        if start + ramp + count >= len(self._does):
            raise ValueError("this host was simulated for fewer seconds")
        windows = stacks.sensitivity[arm] * self._does[start + ramp : start + ramp + count]
        windows = windows + self._noise.own * self._chance.standard_normal(count)
        after = (ramp + np.arange(count)) * WINDOW_SECONDS
        windows = windows + stacks.start_depth[arm] * np.exp(-after / stacks.start_seconds[arm])
        self.clock += ramp_seconds + seconds + self._switch_seconds
        self.measuring += ramp_seconds + seconds
        attached = self._noise.attach * self._chance.standard_normal()
        return float(stacks.level[arm] + math.log(np.exp(windows).mean()) + attached)

    def wait_until(self, clock: float) -> None:
        """Let time go on to that second without measuring, if it has not come yet."""
        self.clock = max(self.clock, clock)


def equal_stacks(count: int, *, effect: float = 0.0) -> Stacks:
    """Return stacks that are alike, but the last one faster by the factor 1 + `effect`."""
    level = np.zeros(count)
    level[-1] += math.log1p(effect)
    same = np.ones(count)
    return Stacks(level=level, sensitivity=same, start_depth=0 * same, start_seconds=0.2 * same)


def landscape(count: int, chance: Generator) -> Stacks:
    """Return stacks as settings make them: two-valued knobs, of which many do nothing, and few that work together."""
    knobs = round(math.log2(count))
    setting = np.array([[(arm >> knob) & 1 for knob in range(knobs)] for arm in range(count)]) * 2.0 - 1
    level = setting @ (chance.normal(0, 0.05, knobs) * (chance.random(knobs) > 0.4))
    for one in range(knobs):
        for other in range(one):
            level += setting[:, one] * setting[:, other] * chance.normal(0, 0.012) * (chance.random() > 0.3)
    return Stacks(
        level=level + chance.normal(0, 0.008, count),
        sensitivity=chance.uniform(0.7, 1.2, count),
        start_depth=chance.uniform(-0.12, 0.03, count),
        start_seconds=chance.uniform(0.05, 0.35, count),
    )


def _what_it_does(noise: Noise, chance: Generator, windows: int) -> NDArray[np.float64]:
    from scipy.signal import lfilter  # half a second, in every process that only collects tests

    does = np.zeros(windows)
    for seconds, sd in noise.shared:
        keeps = math.exp(-WINDOW_SECONDS / seconds)
        steps = chance.standard_normal(windows) * sd * math.sqrt(1 - keeps**2)
        steps[0] = chance.standard_normal() * sd
        does += lfilter([1], [1, -keeps], steps)
    for _ in range(chance.poisson(noise.dips_per_second * windows * WINDOW_SECONDS)):
        start, depth = chance.integers(0, windows), chance.uniform(*noise.dip_depth)
        does[start : start + max(1, int(chance.exponential(noise.dip_seconds) / WINDOW_SECONDS))] += math.log1p(
            -depth
        )
    if noise.thermal:
        does += noise.thermal * np.exp(-np.arange(windows) * WINDOW_SECONDS / noise.thermal_seconds)
    if noise.shift:
        count = chance.poisson(windows * WINDOW_SECONDS / 600) + 1
        levels = np.concatenate([[0.0], chance.normal(0, noise.shift, count)])
        does += levels[np.searchsorted(np.sort(chance.integers(0, windows, count)), np.arange(windows), side="right")]
    return does


@cache
def _gains(kind: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What the host's own doing adds to a mean rate, by sensitivity; the thermal drift is over in the long run."""
    steady = replace(HOSTS[kind], thermal=0.0)
    does = np.concatenate(
        [_what_it_does(steady, np.random.default_rng(10**6 + one), 160_000)[::4] for one in range(12)]
    )
    grid = np.linspace(0.6, 1.3, 15)
    return grid, np.array([math.log(np.exp(one * does).mean()) for one in grid])
