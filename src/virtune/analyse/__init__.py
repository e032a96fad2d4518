# SPDX-License-Identifier: Apache-2.0
"""Evidence to meaning (pure): fio's output, counters, intervals and verdicts."""
