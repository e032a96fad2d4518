# SPDX-License-Identifier: Apache-2.0
"""From a question to its trials (pure): arms, workloads, plan files, interleaving."""
