# SPDX-License-Identifier: Apache-2.0
"""The generated pages: one module for each, with a function `page` that returns its text."""
