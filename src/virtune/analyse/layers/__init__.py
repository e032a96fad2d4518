# SPDX-License-Identifier: Apache-2.0
"""Where the time of a request goes, and what limits it: from what trials measured, or a VM's own load showed."""
