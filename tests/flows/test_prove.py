# SPDX-License-Identifier: Apache-2.0
"""An accusation is tested on a real storage daemon: what is planted in it is confirmed by taking it away."""

import pytest
from tests.conftest import User

pytestmark = pytest.mark.real

NULL = ("--set", "disk.backend=null-co")
SHORT = ("--rounds", "1", "--seconds", "200ms", "--ramp", "0", "-q")


@pytest.mark.long(always="the guide proves such a throttle in each run (cli/test_guide.py)")
@pytest.mark.parametrize(
    ("planted", "cause", "arm"),
    [("disk.throttle_iops=100", "throttle", "no-limit"), ("disk.null_latency_ns=50000000", "device", "no-delay")],
)
def test_what_is_planted_is_confirmed(user: User, planted: str, cause: str, arm: str) -> None:
    # threads that wait nearly all the time have a CPU when they need one, however busy the host is
    user.run("compare", "measure", *NULL, "--set", planted, "--workload", "rw=randread,bs=4k,iodepth=4", *SHORT)
    words = ("--rounds", "6", "--scratch", str(user.scratch), "-q", "--json")
    (disk,) = user.run("diagnose", "--run", "last", "--prove", *words).json()["disks"]
    proof = disk["proof"]
    assert (disk["bottleneck"]["cause"], proof["arm"]) == (cause, arm)
    assert (proof["outcome"], proof["reason"]) == ("confirmed", "as-said"), proof
    assert proof["change"]["low"] > 2
    assert user.run("show", proof["study"], "--json").json()["study"]["baseline"] == "as-is"
