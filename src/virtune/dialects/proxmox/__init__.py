# SPDX-License-Identifier: Apache-2.0
"""Proxmox VE's VM configuration: read, altered in place (pure)."""
