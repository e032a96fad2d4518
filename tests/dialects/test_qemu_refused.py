# SPDX-License-Identifier: Apache-2.0
"""What the audit says that QEMU refuses of a command line a real QEMU refuses, and takes what it does not say."""

import shutil
import subprocess
from pathlib import Path

import pytest

from virtune.advise.audit import audit
from virtune.dialects.qemu.command import read_words
from virtune.model.finding import Subject

BLK = "-drive file={0},format=raw,if=none,id=a -device virtio-blk,drive=a"
HD = "-drive file={0},format=raw,if=none,id=a -device virtio-scsi -device scsi-hd,drive=a"
DRIVE = "-drive file={0},format=raw,if=virtio"
GROUP = (
    "-object throttle-group,id=t,{0} -blockdev file,node-name=f,filename={1} -blockdev throttle,node-name=n,"
    "throttle-group=t,file=f -device virtio-blk,drive=n"
)
TURNS = {
    f"{BLK},num-queues=": {"0": False, "-1": False, "1": True, "1024": True, "1025": False},
    f"{BLK},queue-size=": {"0": False, "-1": False, "3": False, "4": True, "2048": False},
    f"{BLK},physical_block_size=": {"0": True, "256": False, "513": False, "4k": True, "4194304": False},
    f"{BLK},logical_block_size=": {"512": True, "4096": False, "4096,physical_block_size=4096": True},
    f"{HD},rotation_rate=": {"65535": True, "65536": False},
    "-device virtio-scsi,num_queues=": {"0": False, "1022": True, "1023": False},
    f"{DRIVE},iops=": {"-1": False, "0": True, "1000000000000001": False, "9,iops_rd=9": False, "9,bps_rd=9": True,
                       "9,iops_max=8": False, "9,iops_max=90": True},
    f"{DRIVE},throttling.": {"bps-total=9,throttling.bps-write=9": False, "bps-total-max=9": False},
    GROUP.format("{1}", "{0}"): {"x-iops-total=9,x-iops-read=9": False, "x-iops-total=9,x-bps-read=9": True,
                                 "x-iops-total=-1": False},
}  # fmt: skip
"""By what stands before a value, or around it, whether QEMU takes it."""


@pytest.mark.real
@pytest.mark.parametrize(
    ("words", "value", "taken"), [(words, *one) for words, some in TURNS.items() for one in some.items()]
)
def test_a_real_qemu_refuses_what_is_said_to_be_refused(words: str, value: str, taken: bool, tmp_path: Path) -> None:
    program = shutil.which("qemu-system-x86_64")
    if program is None:
        pytest.skip("not installed: qemu-system-x86_64; `tools/setup dev` brings it")
    image = tmp_path / "a"
    image.write_bytes(bytes(1 << 20))
    around = words if "{1}" in words else words + "{1}"
    line = [program, "-nodefaults", "-machine", "q35", *around.format(image, value).split()]
    done = subprocess.run(
        [*line, "-S", "-display", "none", "-qmp", "stdio"], input='{"execute":"qmp_capabilities"}{"execute":"quit"}',
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode == 0) is taken, done.stderr
    said = [one.seen.seen for one in audit(Subject(domain=read_words(line))) if one.rule.id == "R36"]
    assert bool(said) is not taken, said
