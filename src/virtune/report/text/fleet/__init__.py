# SPDX-License-Identifier: Apache-2.0
"""Many hosts for a terminal."""
