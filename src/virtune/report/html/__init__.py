# SPDX-License-Identifier: Apache-2.0
"""One file of HTML for a study: what is on the page, and its template (pure; the flow renders it)."""
