# SPDX-License-Identifier: Apache-2.0
"""The same questions to many hosts."""
