# SPDX-License-Identifier: Apache-2.0
"""The guest image that the rig `qemu` boots: made, kept, chosen."""
