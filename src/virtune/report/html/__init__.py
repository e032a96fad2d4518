# SPDX-License-Identifier: Apache-2.0
"""The HTML report of a study in one file: the content of the page and its template (pure; the flow renders it)."""
