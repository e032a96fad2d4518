# SPDX-License-Identifier: Apache-2.0
"""Existing VMs: found, audited, advised, changed and put back."""
