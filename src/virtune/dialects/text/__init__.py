# SPDX-License-Identifier: Apache-2.0
"""Other people's text: read with the place of everything in it, altered only there (pure)."""
