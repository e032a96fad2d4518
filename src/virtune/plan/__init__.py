# SPDX-License-Identifier: Apache-2.0
"""Question to trials (pure): arms, workloads, plan files, interleaving."""
