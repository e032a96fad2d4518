# SPDX-License-Identifier: Apache-2.0
"""The crash-safe store of evidence and measurements."""
