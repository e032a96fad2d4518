# SPDX-License-Identifier: Apache-2.0
"""What to show (pure): tables, plain reports, JSON."""
