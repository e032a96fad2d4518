# SPDX-License-Identifier: Apache-2.0
"""What virtune says, a subject a module: lines and tables, which a terminal, Markdown and HTML show."""
