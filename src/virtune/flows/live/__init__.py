# SPDX-License-Identifier: Apache-2.0
"""Disks under their own load: diagnosed, watched, recorded."""
