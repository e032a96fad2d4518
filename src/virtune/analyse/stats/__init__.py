# SPDX-License-Identifier: Apache-2.0
"""Statistics (pure): intervals, paired and unpaired comparisons, models. They know numbers, not trials."""
