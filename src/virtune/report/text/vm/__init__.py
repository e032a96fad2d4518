# SPDX-License-Identifier: Apache-2.0
"""VMs for a terminal: audited, advised, diagnosed, proven, watched."""
