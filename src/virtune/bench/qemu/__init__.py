# SPDX-License-Identifier: Apache-2.0
"""The rig `qemu`: test VMs made by virtune."""
