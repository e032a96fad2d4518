# SPDX-License-Identifier: Apache-2.0
"""A scratch volume beside a VM's own, of a thin pool and of a volume group, on a host that has a device mapper."""

import json
import re
import sys
from pathlib import Path

import pytest
from tests.nested_host import NestedHost, environment_of, parts

MIB = 1024**2

CONF = """
devices { obtain_device_list_from_udev=0 external_device_info_source="none" use_devicesfile=0 }
activation { udev_sync=0 udev_rules=0 monitoring=0 }
backup { backup=0 archive=0 }
"""
"""LVM without udev, which does not run there, and with nothing written to /etc."""

VM = """<domain type='kvm'><name>web1</name><memory>1048576</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type></os><devices>
<disk type='block' device='disk'><driver name='qemu' type='raw' cache='none' io='threads'/>
<source dev='/dev/pve/vm-100-disk-0'/><target dev='vda' bus='virtio'/></disk>
<disk type='block' device='disk'><driver name='qemu' type='raw' cache='none' io='threads'/>
<source dev='/dev/mapper/pve-root'/><target dev='vdb' bus='virtio'/></disk>
</devices></domain>
"""

OTHERS = "virtune-scratch-0123456789abcdef"
"""A volume of the user's, with a name and a tag such as virtune's own have."""

SCRIPT = """
V="{python} -m virtune"
LOAD="--rig storage-daemon --rounds 1 --seconds 1 --attempts 1 --span 16M"
say() {{ echo "== $1"; shift; "$@" 2>&1; echo "status $?"; }}
volumes() {{ lvs --noheadings --separator , -o lv_name,pool_lv,lv_size,lv_tags pve; }}
records() {{ ls $HOME/.local/share/virtune/volumes; }}

mount -t tmpfs none /var/tmp
pvcreate -q /dev/nvme0n1; vgcreate -q pve /dev/nvme0n1
lvcreate -q --yes -n root -L 64M pve; lvcreate -q --yes --type thin-pool -L 96M --poolmetadatasize 4M -n data pve
lvcreate -q --yes --type thin --thinpool data -V 64M -n vm-100-disk-0 pve
lvcreate -q --yes -L 8M -n {others} --addtag virtune-00112233445566778899aabbccddeeff pve
say before volumes
say plan $V compare measure --like /run/out/vm.xml:vda $LOAD --workload randread-4k --dry-run
say thin $V compare measure --like /run/out/vm.xml:vda $LOAD --workload randread-4k
$V show last --json >/run/out/thin.json
say after volumes
say thick $V compare measure --like /run/out/vm.xml:vdb $LOAD --workload randwrite-4k
$V show last --json >/run/out/thick.json
say after_thick volumes
say full $V compare measure --like /run/out/vm.xml:vda $LOAD --span 80M --workload randread-4k
say full_group $V compare measure --scratch lvm:pve $LOAD --span 200M --workload randread-4k

# virtune and its guard are killed in a trial; nothing is left that could remove the volume
$V compare measure --like /run/out/vm.xml:vda $LOAD --seconds 600 --workload randread-4k >/run/out/killed 2>&1 &
until ls /run/tmp/virtune-run-*/load* >/dev/null 2>&1 || ! kill -0 $!; do sleep 1; done
say during volumes
say alive $V host clean
for one in /proc/[0-9]*; do
    case $(tr '\\0' ' ' <$one/cmdline 2>/dev/null) in *warden.py*) kill -9 ${{one#/proc/}};; esac
done
kill -9 $!
say killed volumes
say records records
say clean $V host clean
say cleaned volumes
say records_cleaned records
"""


@pytest.mark.real
@pytest.mark.timeout(3600)
@pytest.mark.long(always="bench/test_volumes.py has what is read, refused and recorded, with an LVM that is a script")
def test_a_scratch_volume_lies_beside_the_vms_own_and_is_gone_afterwards(tmp_path: Path) -> None:
    drive = tmp_path / "drive.raw"
    with drive.open("wb") as file:
        file.truncate(384 * MIB)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/vm.xml").write_text(VM)
    (tmp_path / "out/lvm.conf").write_text(CONF)
    host = NestedHost(tmp_path, (drive,))
    said = parts(
        host.run(SCRIPT.format(python=sys.executable, others=OTHERS), environment_of(LVM_SYSTEM_DIR="/run/out"))
    )
    before = said["before"]
    assert OTHERS in before, before
    assert "on a scratch volume of 16 MiB in pve/data (thin pool), removed afterwards" in said["plan"], said["plan"]
    for kind, place in (("thin", "pve/data (thin pool)"), ("thick", "the volume group pve")):
        assert f"making a scratch volume of 16 MiB in {place}" in said[kind], said[kind]
        assert "settings verified" in said[kind]
        assert said[kind].endswith("status 0\n"), said[kind]
        result = json.loads((tmp_path / f"out/{kind}.json").read_text())
        (trial,) = result["arms"][0]["rounds"]
        assert trial["measurement"]["values"]["iops"] > 0
        assert result["study"]["scratch"] == f"lvm:pve{'/data' if kind == 'thin' else ''}"
    assert said["after"] == said["after_thick"] == before
    assert "the data of the thin pool pve/data would be" in said["full"]
    assert "half of it stays free" in said["full_group"]
    made = set(said["during"].splitlines()) - set(before.splitlines())
    shape = r"\s*(virtune-scratch-[0-9a-f]{16}),data,16.00m,virtune-[0-9a-f]{32}"
    found = re.fullmatch(shape, "".join(made))
    assert found, said["during"]
    name = found[1]
    assert name in said["killed"]
    assert f"{name}.json" in said["records"]
    assert name not in said["alive"]  # its run still has it
    assert f"removed the volume pve/{name}" in said["clean"], said["clean"]
    assert said["cleaned"] == before
    assert name not in said["records_cleaned"]
