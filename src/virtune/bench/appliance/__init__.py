# SPDX-License-Identifier: Apache-2.0
"""The appliance (guest image) that the rig `qemu` boots: build, store and choose it."""
