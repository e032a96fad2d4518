# SPDX-License-Identifier: Apache-2.0
"""Apply changes to libvirt domains and Proxmox VMs: journalled first, checked after, undone on any failure."""
