# SPDX-License-Identifier: Apache-2.0
"""Words that say nothing of a host or its owner, which stay when names are replaced."""

import re


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


WORDS = _set("""
    admin and application arm arms audit backend backup bare block boot bridge cache check client command compare
    count
    counters cpu cpus daemon data default device devices disk disks domain domains drive driver emulator error
    ext4 export file files fio free from guest guests host image images in info install io iops iothread iso job
    jobs kernel kvm
    latency layer libvirt limit linux live load local log machine main mean memory mount mounted name names native net
    network new none not null off old on option options out own partition path pool process processes program proof
    qcow2 qemu query rand randread randwrite random raw read result results rig ring root round rounds run scratch
    sequential server service set setting settings shared simulated size slow snapshot socket source span stack state
    storage study swap system target test tests thread threads time trial trials tune type unix url user users value
    vcpu version virtio virtune vm vms volume volumes warning work worker workload workloads write writes xfs
    """)
"""Words of virtune's own documents and of those of fio, QEMU and libvirt. A name that is one of them is replaced only
where it stands for a name."""

COMPONENTS = _set("""
    . .. ~ s bin boot channel config containers data dev disk disk0 disks domain etc export home image images iops iso
    kubevirt lib lib64 libexec libvirt load load.fio load.json local log lxd mapper media mnt nova nvram openstack opt
    proc proxmox pve qemu root run sbin scratch session share snap snapshots srv storage sys system templates tmp user
    usr var virtune vm vms volumes by-id by-label by-partlabel by-partuuid by-path by-uuid input net pts shm vhost-net
    kvm null zero full random urandom stdin stdout stderr block bsg mqueue hugepages
    """) | {""}
"""Parts of a path that every system has."""

SYSTEM_PATH = re.compile(r"/(?:proc|sys|bin|sbin|lib|lib64|usr/(?:bin|sbin|lib\w*|libexec|share))(?:/|\Z)")
"""Paths of packages and of the kernel; names in them, such as of a control group, are replaced all the same."""

DEVICE_NODE = re.compile(
    r"(?:sd[a-z]{1,3}|[vh]d[a-z]{1,2}|xvd[a-z]|nvme\d+(?:c\d+)?(?:n\d+)?|loop\d+|md\d+|dm-\d+|nbd\d+|zram\d+"
    r"|mmcblk\d+|ram\d+)(?:p?\d+)?|\d+|tty\w*|fd"
)

OWN_COMPONENT = re.compile(
    r"virtune(?:-(?:run-)?[\d.-]*(?:[0-9a-f]{4}(?:-\d+)?)?)?(?:\.(?:raw|qcow2|sqlite|sock|log))?"
    r"|(?:agent|channel|console|qmp|monitor|serial|ring|pid|vhost)[-\d]*(?:\.(?:sock|log|pid|txt))?"
)
"""Files and directories that virtune itself names."""

ENDINGS = _set(
    "raw qcow2 img iso vmdk vhd vhdx vdi qed json txt log sock fio xml conf cfg yaml yml sqlite pid fd sh py csv gz"
)

KNOWN_HOSTS = _set(
    "libvirt.org www.libvirt.org qemu.org www.qemu.org www.w3.org w3.org github.com docs.kernel.org kernel.org "
    "www.kernel.org localhost schemas.openstack.org openstack.org vega.github.io"
)
"""Hosts in the names of schemas and sources, which are everybody's."""
