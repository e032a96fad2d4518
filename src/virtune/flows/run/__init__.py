# SPDX-License-Identifier: Apache-2.0
"""Studies, searches and sweeps from the question to the last trial."""
