# SPDX-License-Identifier: Apache-2.0
"""The data model: frozen dataclasses that need only the standard library and do no I/O."""
