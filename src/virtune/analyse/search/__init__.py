# SPDX-License-Identifier: Apache-2.0
"""What a search concludes from its blocks, and when it ends (pure)."""
