# SPDX-License-Identifier: Apache-2.0
"""An NVMe drive that a guest drives itself, on a host that has an IOMMU: an emulated one, as any machine can."""

import json
import sys
from pathlib import Path

import pytest
from tests.nested_host import NestedHost, environment_of, parts

from virtune import shell

DRIVE, SIGNED = "0000:01:00.0", "0000:02:00.0"
MIB = 1024**2

SCRIPT = """
V="{python} -m virtune"
LOAD="--rig qemu --set guest.system=bare --span 16M --rounds 1 --seconds 1 --attempts 1 --workload randread-4k"
LOAD="$LOAD --scratch /run/scratch"
P=/sys/bus/pci/devices/{drive}
state() {{ readlink $P/driver; cat $P/driver_override; ls /dev/nvme0n1; }}
with_guest() {{ ls /run/tmp/virtune-run-*/drive-{drive} && grep '^VmLck:.* [1-9]' /proc/[0-9]*/status; }}
say() {{ echo "== $1"; shift; "$@" 2>&1; echo "status $?"; }}

say before state
say signed $V measure $LOAD --set storage.vfio_pci={signed}
say write $V measure $LOAD --set storage.vfio_pci={drive} --workload randwrite-4k
# the clock of a guest in an emulated host may be found wrong on a busy machine, and then nothing is measured
measured() {{ for once in 1 2 3; do $V measure $LOAD --set storage.vfio_pci={drive} && return; done; }}
say measure measured
$V show last --json >/run/out/result.json
say after state

# virtune and its guard are killed in a trial; nothing is left that could give the drive back
$V measure $LOAD --seconds 600 --set storage.vfio_pci={drive} &
until with_guest >/dev/null 2>&1 || ! kill -0 $!; do sleep 1; done
for one in /proc/[0-9]*; do
    case $(tr '\\0' ' ' <$one/cmdline 2>/dev/null) in *warden.py*) kill -9 ${{one#/proc/}};; esac
done
kill -9 $!
say killed state
say clean $V clean
say cleaned state
"""


@pytest.mark.real
@pytest.mark.timeout(3600)
@pytest.mark.long(always="bench/test_passthrough.py has each step, in a tree like the kernel's")
def test_a_drive_goes_to_a_guest_is_measured_and_comes_back(tmp_path: Path) -> None:
    plain, signed = tmp_path / "plain.raw", tmp_path / "signed.raw"
    for drive in (plain, signed):
        with drive.open("wb") as file:
            file.truncate(64 * MIB)
    shell.run([shell.find("mkfs.ext4"), "-q", "-L", "data", str(signed)], timeout_seconds=60)
    script = SCRIPT.format(python=sys.executable, drive=DRIVE, signed=SIGNED)
    said = parts(NestedHost(tmp_path, (plain, signed)).run(script, environment_of()))
    at_home = ["../../../../bus/pci/drivers/nvme", "(null)", "/dev/nvme0n1", "status 0"]
    assert said["before"].splitlines() == at_home
    assert (
        "nothing below a guest protects a drive that it has: /dev/nvme1n1 holds ext4 labelled data" in said["signed"]
    )
    assert "writes to /dev/nvme0n1, which virtune did not create" in said["write"]
    assert "settings verified" in said["measure"], said["measure"]
    assert said["measure"].endswith("status 0\n")
    assert said["after"].splitlines()[:4] == at_home
    assert "drivers/vfio-pci\nvfio-pci" in said["killed"]
    assert f"removed the hold on the drive {DRIVE}, which its driver has again" in said["clean"]
    assert said["cleaned"].splitlines() == at_home
    result = json.loads((tmp_path / "out/result.json").read_text())
    (check,) = [one for one in result["arms"][0]["in_force"] if one["setting"] == "storage.vfio_pci"]
    assert check["found"] == DRIVE
    assert "holds /dev/vfio/" in check["proof"]
