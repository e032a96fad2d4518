# SPDX-License-Identifier: Apache-2.0
"""fio's language (pure): its options, workloads, job files, jobs and results."""
