# SPDX-License-Identifier: Apache-2.0
"""Back ends that are devices, as arms of one run on a host that has them: NVMe over TCP, dm-crypt, an md mirror."""

import json
import sys
from pathlib import Path

import pytest
from tests.nested_host import BACK_ENDS, NestedHost, environment_of, parts

MIB = 1024**2
SIZE = 96 * MIB

SCRIPT = """
V="{python} -m virtune"
say() {{ echo "== $1"; shift; "$@" 2>&1; echo "status $?"; }}
mount -t tmpfs none /var/tmp
mount -t configfs none /sys/kernel/config
ip link set lo up

cd /sys/kernel/config/nvmet
mkdir subsystems/remote subsystems/remote/namespaces/1 ports/1
echo 1 >subsystems/remote/attr_allow_any_host
echo /dev/nvme0n1 >subsystems/remote/namespaces/1/device_path; echo 1 >subsystems/remote/namespaces/1/enable
echo ipv4 >ports/1/addr_adrfam; echo tcp >ports/1/addr_trtype
echo 127.0.0.1 >ports/1/addr_traddr; echo 4420 >ports/1/addr_trsvcid
ln -s /sys/kernel/config/nvmet/subsystems/remote ports/1/subsystems/remote
cd /
echo transport=tcp,traddr=127.0.0.1,trsvcid=4420,nqn=remote >/dev/nvme-fabrics
until [ -b /dev/nvme4n1 ]; do sleep 1; done

key=$(head -c 64 /dev/urandom | od -An -v -tx1 | tr -d ' \\n')
say crypt dmsetup create crypt --table "0 {sectors} crypt aes-xts-plain64 $key 0 /dev/nvme1n1 0"
say mirror dmsetup create mirror --table "0 {sectors} raid raid1 3 0 region_size 1024 2 - /dev/nvme2n1 - /dev/nvme3n1"
dmsetup mknodes
T=/dev/nvme4n1 C=/dev/mapper/crypt M=/dev/mapper/mirror
ARMS="--arm tcp:disk.place=$T --arm crypt:disk.place=$C --arm mirror:disk.place=$M"
LOAD="--rounds 1 --seconds 1 --attempts 1 --span 16M"
say read $V compare --rig metal $ARMS $LOAD --workload randread-4k
$V show last --json >/run/out/read.json
LEAVE="--allow-write-to $T --allow-write-to $C"
say refused $V compare --rig storage-daemon $ARMS $LOAD --workload randwrite-4k $LEAVE
LEAVE="$LEAVE --allow-write-to $M"
say write $V compare --rig storage-daemon $ARMS $LOAD --workload randwrite-4k --check-data $LEAVE
$V show last --json >/run/out/write.json
say guest $V compare --rig qemu $ARMS $LOAD --workload randread-4k
say held $V compare measure --rig storage-daemon --set disk.place=/dev/nvme1n1 $LOAD --workload randwrite-4k \\
    --allow-write-to /dev/nvme1n1
"""


@pytest.mark.real
@pytest.mark.timeout(3600)
@pytest.mark.long(always="flows/test_places.py compares two loop devices")
def test_devices_of_three_back_ends_are_arms_of_one_run(tmp_path: Path) -> None:
    drives = tuple(tmp_path / f"drive{number}" for number in range(4))
    for drive in drives:
        with drive.open("wb") as file:
            file.truncate(SIZE)
    script = SCRIPT.format(python=sys.executable, sectors=64 * MIB // 512)
    host = NestedHost(tmp_path, drives, modules=BACK_ENDS)
    said = parts(host.run(script, environment_of()))
    for step in ("crypt", "mirror", "read", "write", "guest"):
        assert said[step].endswith("status 0\n"), said[step]
    for step in ("read", "write"):
        result = json.loads((tmp_path / f"out/{step}.json").read_text())
        places = {"tcp": "/dev/nvme4n1", "crypt": "/dev/mapper/crypt", "mirror": "/dev/mapper/mirror"}
        for arm in result["arms"]:
            (check,) = [one for one in arm["in_force"] if one["setting"] == "disk.place"]
            assert (check["agrees"], check["found"]) == (True, places[arm["name"]])
            (trial,) = arm["rounds"]
            assert trial["measurement"]["values"]["iops"] > 0
    assert "the load writes to /dev/mapper/mirror, which virtune did not create" in said["refused"], said["refused"]
    assert said["refused"].endswith("status 3\n")
    assert "/dev/nvme1n1 is in use" in said["held"], said["held"]
    assert said["held"].endswith("status 3\n")
