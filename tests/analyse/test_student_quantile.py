# SPDX-License-Identifier: Apache-2.0
"""The quantile of Student's t is scipy's, over a dense grid and at its ends, and no scipy is loaded for it."""

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy.special import stdtrit

from virtune.analyse.stats.student import two_sided

CONFIDENCES = (0.01, 0.1, 0.5, 0.8, 0.9, 0.95, 0.975, 0.99, 0.995, 0.998, 0.9999, 1 - 1e-6, 1 - 1e-9, 1 - 1e-12)


def test_it_is_scipy_s_to_more_digits_than_any_output_has() -> None:
    """Of more than ten thousand degrees of freedom scipy itself loses digits: there both agree to 1e-9."""
    for df in map(float, (*np.linspace(0.3, 30, 100), *range(31, 400, 7), *np.geomspace(400, 1e4, 20))):
        for confidence in CONFIDENCES:
            assert two_sided(confidence, df) == pytest.approx(stdtrit(df, 1 - (1 - confidence) / 2), rel=2e-12)
    for df in (3e4, 1e6, 9.9e6, 1.1e7, 1e12):
        assert two_sided(0.95, df) == pytest.approx(stdtrit(df, 0.975), rel=1e-9)


def test_its_ends() -> None:
    assert two_sided(1.0, 5) == math.inf
    assert two_sided(0.0, 5) == 0
    assert math.isnan(two_sided(0.95, 0))
    assert math.isnan(two_sided(0.95, math.nan))


def test_results_are_compared_without_scipy_and_without_pydantic() -> None:
    program = (
        "import sys, virtune.flows.stored.import_results; print({'scipy', 'pydantic', 'sqlalchemy'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
