# SPDX-License-Identifier: Apache-2.0
"""Virtualization: whether this host is itself a virtual machine or a container."""

from pathlib import Path

from virtune import shell
from virtune.model.errors import VirtuneError
from virtune.model.facts import Unknown, VirtualizationFacts
from virtune.probe import tree
from virtune.probe.about import said_of_itself

_DMI = (
    ("QEMU", "qemu"),
    ("KVM", "kvm"),
    ("VMware", "vmware"),
    ("innotek", "virtualbox"),
    ("VirtualBox", "virtualbox"),
    ("Xen", "xen"),
    ("Amazon EC2", "amazon"),
    ("Google Compute", "google"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Virtual Machine", "hyper-v"),
)
"""Identifying strings in the firmware tables of virtual machines, the most specific first. Bare-metal instances of
clouds carry the cloud's name too, so the processor's hypervisor flag must agree.
"""


def virtualization_facts(root: Path = tree.ROOT) -> VirtualizationFacts:
    """Return the virtualization that this host runs in, by `systemd-detect-virt`, else by firmware and processor."""
    if root == tree.ROOT:
        asked = _detect("--vm"), _detect("--container")
        if asked[0] is not None and asked[1] is not None:
            return VirtualizationFacts(hypervisor=asked[0], container=asked[1], source="systemd-detect-virt")
    return VirtualizationFacts(hypervisor=_hypervisor(root), container=_container(root), source="/proc and /sys")


def _detect(kind: str) -> str | None:
    try:
        # it exits with 1 when it found none, and prints that
        answer = said_of_itself(shell.find("systemd-detect-virt"), kind, ok=(0, 1))
    except VirtuneError:
        return None
    return answer.strip() or None


def _hypervisor(root: Path) -> str | Unknown:
    named = tree.text("/sys/hypervisor/type", root)
    if not isinstance(named, Unknown) and named:
        return named
    said = [tree.text(f"/sys/class/dmi/id/{name}", root) for name in ("sys_vendor", "product_name", "board_vendor")]
    texts = [text for text in said if not isinstance(text, Unknown)]
    found = next((name for mark, name in _DMI if any(mark in text for text in texts)), None)
    flags = next((line for line in tree.lines("/proc/cpuinfo", root) if line.startswith("flags")), None)
    if flags is None:
        return found or Unknown("neither firmware nor /proc/cpuinfo says")
    if "hypervisor" not in flags.split():
        return "none"
    return found or "unnamed"


def _container(root: Path) -> str | Unknown:
    if tree.exists("/.dockerenv", root):
        return "docker"
    if tree.exists("/run/.containerenv", root):
        return "podman"
    manager = tree.text("/run/host/container-manager", root)
    if not isinstance(manager, Unknown):
        return manager
    groups = tree.text("/proc/1/cgroup", root)
    if isinstance(groups, Unknown):
        return groups
    return next((name for name in ("kubepods", "docker", "lxc") if name in groups), "none")
