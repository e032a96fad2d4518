# SPDX-License-Identifier: Apache-2.0
"""Results for programs, as JSON documents (pure)."""
