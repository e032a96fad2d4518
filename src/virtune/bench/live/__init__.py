# SPDX-License-Identifier: Apache-2.0
"""VMs of the user's at work, only looked at: their disks and counters, by libvirt or by a monitor."""
