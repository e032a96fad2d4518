# SPDX-License-Identifier: Apache-2.0
"""The command that changes a limit of a running domain's disk leaves its other limits as they are."""

import pytest

from virtune.dialects.libvirt.domain import limits_command, read_domain, without
from virtune.model.domain import DomainDisk

BURST = (
    "<total_iops_sec>5</total_iops_sec><total_iops_sec_max>7</total_iops_sec_max>"
    "<total_iops_sec_max_length>3</total_iops_sec_max_length>"
)
COMMAND = "virsh -c qemu:///system blkdeviotune g vda {} --live"


def disk(inner: str, rest: str = "") -> DomainDisk:
    target = "<target dev='vda' bus='virtio'/>"
    text = f"<domain type='kvm'><name>g</name>{rest}<devices><disk>{target}{inner}</disk></devices></domain>"
    (found,) = read_domain(text.encode()).disks
    return found


@pytest.mark.parametrize(
    ("limits", "lifted", "words"),
    [
        ("<total_iops_sec>5</total_iops_sec>", "total_iops_sec", "--total-iops-sec 0"),
        (
            "<read_iops_sec>5</read_iops_sec><write_iops_sec>9</write_iops_sec>", "read_iops_sec",
            "--read-iops-sec 0 --write-iops-sec 9",
        ),
        (
            BURST + "<read_bytes_sec>4096</read_bytes_sec>", "total_iops_sec",
            "--total-iops-sec 0 --total-iops-sec-max 0 --total-iops-sec-max-length 0 --read-bytes-sec 4096",
        ),
        (
            "<total_iops_sec>5</total_iops_sec><size_iops_sec>4096</size_iops_sec>", "total_iops_sec",
            "--total-iops-sec 0 --size-iops-sec 0",
        ),
        (
            "<read_iops_sec>5</read_iops_sec><write_iops_sec>9</write_iops_sec><size_iops_sec>4096</size_iops_sec>",
            "read_iops_sec", "--read-iops-sec 0 --write-iops-sec 9 --size-iops-sec 4096",
        ),
    ],
)  # fmt: skip
def test_a_limit_is_lifted_with_its_burst_and_no_other(limits: str, lifted: str, words: str) -> None:
    now = disk(f"<iotune>{limits}</iotune>")
    assert limits_command("qemu:///system", "g", now, without(lifted, now)) == COMMAND.format(words)


def test_there_is_no_such_command_for_the_limit_of_a_group() -> None:
    group = "<throttlegroup><group_name>slow</group_name><total_iops_sec>5</total_iops_sec></throttlegroup>"
    now = disk("<throttlefilters><throttlefilter group='slow'/></throttlefilters>",
               f"<throttlegroups>{group}</throttlegroups>")  # fmt: skip
    assert now.limits == (("total_iops_sec", 5),)
    assert limits_command("qemu:///system", "g", now, {}) is None


def test_disks_that_have_their_limits_together_are_told() -> None:
    iotune = "<iotune><total_iops_sec>300</total_iops_sec>{}</iotune>"
    assert disk(iotune.format("<group_name>many</group_name>")).limits_group == "many"
    assert disk(iotune.format("")).limits_group == ""
    assert disk("<throttlefilters><throttlefilter group='slow'/></throttlefilters>").limits_group == "slow"
