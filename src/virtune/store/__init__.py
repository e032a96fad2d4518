# SPDX-License-Identifier: Apache-2.0
"""Evidence and measurements kept, crash-safely."""
