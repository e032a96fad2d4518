# SPDX-License-Identifier: Apache-2.0
"""A result that contradicts itself is refused; what fio wrote is not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from virtune.fio.results import read_result
from virtune.model.errors import ReadError

WHOLE = Path(__file__).parents[1] / "captures" / "fio" / "plain.json"


def changed(change: Callable[[dict[str, Any]], object]) -> str:
    document = json.loads(WHOLE.read_text())
    change(document["jobs"][0]["read"])
    return json.dumps(document)


def test_the_result_itself_is_read() -> None:
    (stream,) = read_result(WHOLE.read_text()).loads[0].streams
    assert (stream.ios or 0) > 1000


@pytest.mark.parametrize("factor", [5000, 2.1, 0.4])
@pytest.mark.parametrize("key", ["iops", "bw_bytes", "io_bytes", "total_ios"])
def test_a_rate_or_count_of_another_size_is_a_contradiction(key: str, factor: float) -> None:
    text = changed(lambda read: read.update({key: type(read[key])(read[key] * factor)}))
    with pytest.raises(ReadError, match=r"this fio result contradicts itself \(.+, read\): .* IOPS of .* are .*/s"):
        read_result(text)


def test_iops_and_counts_that_were_raised_together_contradict_the_latencies() -> None:
    def raised(read: dict[str, Any]) -> None:
        for key in ("iops", "total_ios", "bw_bytes", "io_bytes"):
            read[key] *= 3

    with pytest.raises(ReadError, match=r"it counts [\d,]+ I/Os and [\d,]+ latencies"):
        read_result(changed(raised))


@pytest.mark.parametrize("factor", [1.9, 0.6, 1.0])
def test_what_an_end_of_a_ramp_or_rounding_makes_is_none(factor: float) -> None:
    read_result(changed(lambda read: read.update(iops=read["iops"] * factor)))


def test_a_rate_too_small_to_divide_is_a_contradiction() -> None:
    text = changed(lambda read: read.update(bw_bytes=5e-324, bw=5e-324, iops=1e10))
    with pytest.raises(ReadError, match="contradicts itself"):
        read_result(text)
