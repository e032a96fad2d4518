# SPDX-License-Identifier: Apache-2.0
"""Running VMs, observed and never changed: their disks and counters, by libvirt or by a monitor."""
