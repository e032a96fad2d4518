# SPDX-License-Identifier: Apache-2.0
"""The disk I/O of virtual machines: measured, explained and tuned."""

__version__ = "0.1.0.dev0"
