# SPDX-License-Identifier: Apache-2.0
"""The storage outside of this host that a path lies on, by names that are the same on every host that uses it: an NFS
server, a Ceph cluster, an iSCSI or NVMe target, a disk that several hosts see.
"""

import re
from pathlib import Path

from virtune.model.facts import Unknown
from virtune.probe import tree
from virtune.probe.devices import backing_of, sysfs_of
from virtune.probe.tree import mount_of, mounts

UNKNOWN = "unknown: "
"""What begins the name of storage of which it is not known who else uses it."""

_SERVED = {"nfs": "nfs", "nfs4": "nfs", "cifs": "cifs", "smb3": "cifs"}
_GLUSTER = ("glusterfs", "fuse.glusterfs")
_OTHERS = re.compile(r"9p|virtiofs|afs|lustre|gfs2|ocfs2|gpfs|beegfs|fuse(\..+)?")
_FSID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SESSION = re.compile(r"/(session\d+)/")
_PORT = re.compile(r"/(rport-[\d:-]+)/")
_LUN = re.compile(r"(?:naa|eui|uuid)\.[0-9a-f-]{16,36}")
_NUMBER = re.compile(r"(rbd|drbd|nbd)(\d+)")
NAME_MAX = 200


def backends_of(path: str | Path, root: Path = tree.ROOT, *, above: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Return the names of the storage behind a path that other hosts may use too, sorted; empty for disks that are
    this host's alone. For a path that does not exist yet, the nearest existing directory above it is used.

    `above` are the loop devices on the way here.
    """
    backing = backing_of(path, root)
    found: set[str] = set()
    if not backing.devices and backing.filesystem is not None:
        found |= _of_filesystem(backing.path, backing.filesystem, root)
    for device in backing.devices:
        home = sysfs_of(device.number, root)
        if device.kind == "loop" and device.label and device.number not in above:
            found |= set(backends_of(device.label, root, above=above | {device.number}))
        elif home is not None and device.kind == "disk":
            found |= _of_device(device.name, home, root)
    return tuple(sorted(one[:NAME_MAX] for one in found))


def _of_filesystem(path: str, kind: str, root: Path) -> set[str]:
    mount = mount_of(path, mounts(root))
    if mount is None:
        return set()
    options = dict(option.partition("=")[::2] for option in mount.options)
    server, _, rest = mount.source.partition(":/")
    if kind in _SERVED:  # the address, since each host may call the server by another name
        return {f"{_SERVED[kind]} {options.get('addr') or server.strip('/').partition('/')[0]}"}
    if kind == "ceph":  # `user@FSID.name=/path`, before Linux 5.17 `monitor,monitor:/path`
        fsid = _FSID.search(f"{options.get('fsid', '')} {mount.source}")
        return {f"ceph {fsid[0]}"} if fsid else {f"ceph {one}" for one in server.split(",")}
    if kind in _GLUSTER:  # any server of a volume gives it
        return {f"gluster {rest.partition('/')[0]}"}
    return {f"{UNKNOWN}{kind} {mount.source}"} if _OTHERS.fullmatch(kind) else set()


def _of_device(name: str, home: str, root: Path) -> set[str]:
    found: set[str] = set()
    if session := _SESSION.search(home):
        found |= _named("iscsi", f"/sys/class/iscsi_session/{session[1]}/targetname", root)
    if port := _PORT.search(home):
        found |= _named("fc", f"/sys/class/fc_remote_ports/{port[1]}/node_name", root)
    if name.startswith("nvme") and _fabric(home, root):
        found |= _named("nvme", f"{home}/device/subsysnqn", root)
    if numbered := _NUMBER.fullmatch(name):
        kind, number = numbered.groups()
        known = _named("ceph", f"/sys/bus/rbd/devices/{number}/cluster_fsid", root) if kind == "rbd" else set()
        found |= known or {f"{UNKNOWN}{name}"}
    for place in ("wwid", "device/wwid"):
        lasting = tree.text(f"{home}/{place}", root)
        # virtual disks of many VMs have one serial number; these names are one disk's in the world
        if not isinstance(lasting, Unknown) and _LUN.fullmatch(lasting):
            found.add(f"disk {lasting.partition('.')[2]}")
    return found


def _fabric(home: str, root: Path) -> bool:
    """Whether a namespace is reached over a network; with native multipath its paths hang below the subsystem."""
    places = [f"{home}/device/transport"]
    places += [f"{home}/device/{one}/transport" for one in tree.names(f"{home}/device", root) if one[:4] == "nvme"]
    ways = {tree.text(place, root) for place in places}
    return any(not isinstance(one, Unknown) and one not in ("pcie", "loop") for one in ways)


def _named(kind: str, path: str, root: Path) -> set[str]:
    found = tree.text(path, root)
    return set() if isinstance(found, Unknown) or not found else {f"{kind} {found}"}
