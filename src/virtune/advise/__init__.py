# SPDX-License-Identifier: Apache-2.0
"""Facts to advice (pure): the rules of the audit, and configurations that are worth having."""
