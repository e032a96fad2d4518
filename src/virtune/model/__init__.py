# SPDX-License-Identifier: Apache-2.0
"""The nouns: frozen values of the standard library only, no I/O."""
