# SPDX-License-Identifier: Apache-2.0
"""From facts to advice (pure): the rules of the audit, and recommended configurations."""
