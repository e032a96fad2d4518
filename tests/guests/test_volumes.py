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

BEGIN = """
V="{python} -m virtune"
say() {{ echo "== $1"; shift; "$@" 2>&1; echo "status $?"; }}
volumes() {{ lvs --noheadings --separator , -o lv_name,pool_lv,lv_size,lv_tags pve; }}

mount -t tmpfs none /var/tmp
pvcreate -q /dev/nvme0n1; vgcreate -q pve /dev/nvme0n1
lvcreate -q --yes -n root -L 64M pve; lvcreate -q --yes --type thin-pool -L 96M --poolmetadatasize 4M -n data pve
lvcreate -q --yes --type thin --thinpool data -V 64M -n vm-100-disk-0 pve
"""

SCRIPT = """
LOAD="--rig storage-daemon --rounds 1 --seconds 1 --attempts 1 --span 16M"
records() {{ ls $HOME/.local/share/virtune/volumes; }}

lvcreate -q --yes -L 8M -n {others} --addtag virtune-00112233445566778899aabbccddeeff pve
say before volumes
say plan $V compare measure --like /run/out/vm.xml:vda $LOAD --workload randread-4k --dry-run
say thin $V compare measure --like /run/out/vm.xml:vda $LOAD --workload randread-4k
$V show last --json >/run/out/thin.json
say after volumes
say thick $V compare measure --like /run/out/vm.xml:vdb $LOAD --workload randwrite-4k
$V show last --json >/run/out/thick.json
say after_thick volumes
say guest $V compare measure --like /run/out/vm.xml:vda $LOAD --rig qemu --workload randread-4k
say sweep $V sweep --like /run/out/vm.xml:vda $LOAD --loads 50% --workload randread-4k
say tune $V tune --scratch lvm:pve/data --rig storage-daemon --vary disk.aio --budget 3min --span 16M
say after_verbs volumes
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


FIX = """
for place in /etc/libvirt /var/lib/libvirt /var/log/libvirt /var/cache/libvirt; do
    mkdir -p /run/covered; cp -a $place/. /run/covered 2>/dev/null; mount -t tmpfs none $place
    cp -a /run/covered/. $place; rm -rf /run/covered
done
rm -rf /etc/libvirt/qemu
cat >/etc/libvirt/qemu.conf <<END
user = "root"
group = "root"
stdio_handler = "file"
remember_owner = 0
namespaces = []
cgroup_controllers = []
END
printf 'auth_unix_rw = "none"\n' >/etc/libvirt/libvirtd.conf
libvirtd -d
until virsh -q -c qemu:///system version >/dev/null 2>&1; do sleep 1; done
export LIBVIRT_DEFAULT_URI=qemu:///system
say define virsh -q define /run/out/vm.xml
say start virsh -q start --paused web1
say before virsh -q dumpxml --inactive web1
say volumes_before volumes
LOAD="--rig storage-daemon --workload randwrite-4k --rounds 6 --seconds 1 --attempts 1 --span 16M"
say fix $V fix web1:vda --yes --also R19 $LOAD
say after virsh -q dumpxml --inactive web1
say stop virsh -q destroy web1
say again virsh -q start --paused web1
say live virsh -q dumpxml web1
say undo $V apply undo last
say undone virsh -q dumpxml --inactive web1
say volumes_after volumes
virsh -q destroy web1
kill $(cat /run/libvirtd.pid)
"""

SLOW_VM = VM.replace("type='kvm'", "type='qemu'").replace("cache='none' io='threads'", "cache='writethrough'", 1)


def in_host(place: Path, script: str, vm: str) -> dict[str, str]:
    """What each step of a script says in a host with a volume group, and a thin pool in it."""
    drive = place / "drive.raw"
    with drive.open("wb") as file:
        file.truncate(384 * MIB)
    (place / "out").mkdir()
    (place / "out/vm.xml").write_text(vm)
    (place / "out/lvm.conf").write_text(CONF)
    steps = (BEGIN + script).format(python=sys.executable, others=OTHERS)
    return parts(NestedHost(place, (drive,)).run(steps, environment_of(LVM_SYSTEM_DIR="/run/out")))


@pytest.mark.real
@pytest.mark.timeout(3600)
@pytest.mark.long(always="libvirt/test_fix.py fixes a VM whose disk is a file")
def test_a_vm_on_a_thin_volume_is_fixed_from_end_to_end_and_put_back_byte_for_byte(tmp_path: Path) -> None:
    said = in_host(tmp_path, FIX, SLOW_VM)
    assert "making a scratch volume of 16 MiB in pve/data (thin pool)" in said["fix"], said["fix"]
    steps = (
        "measured as fixes: disk.cache=none",
        "pairs decided",
        "+++ web1 (changed)",
        "changed; `virtune apply undo",
    )
    assert [step for step in steps if step not in said["fix"]] == [], said["fix"]
    assert re.search(r"^status [04]$", said["fix"], re.MULTILINE)  # 4: slower there, and asked for all the same
    of_vda = re.compile(r"cache='[a-z]+'(?: io='io_uring')?/>")
    assert of_vda.sub("", said["after"], 1) == of_vda.sub("", said["before"], 1)
    assert "cache='none'" in said["after"].partition("vm-100-disk-0")[0]
    assert "cache='writethrough'" in said["before"].partition("vm-100-disk-0")[0]
    for step in ("start", "stop", "again"):
        assert said[step].endswith("status 0\n"), said[step]
    assert "cache='none'" in said["live"].partition("vm-100-disk-0")[0]
    assert said["undone"] == said["before"]
    assert said["volumes_after"] == said["volumes_before"]


@pytest.mark.real
@pytest.mark.timeout(3600)
@pytest.mark.long(always="bench/test_volumes.py has what is read, refused and recorded, with an LVM that is a script")
def test_a_scratch_volume_lies_beside_the_vms_own_and_is_gone_afterwards(tmp_path: Path) -> None:
    said = in_host(tmp_path, SCRIPT, VM)
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
    for verb in ("guest", "sweep", "tune"):
        assert "making a scratch volume of 16 MiB in pve/data (thin pool)" in said[verb], said[verb]
        assert said[verb].endswith("status 0\n"), said[verb]
    assert said["after"] == said["after_thick"] == said["after_verbs"] == before
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
