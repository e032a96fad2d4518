# SPDX-License-Identifier: Apache-2.0
"""Settings read back from what runs."""
