# SPDX-License-Identifier: Apache-2.0
"""The rig `libvirt`: an existing domain, measured as it runs."""
