# SPDX-License-Identifier: Apache-2.0
"""libvirt's domain XML: read, altered in place, compared (pure)."""
