# SPDX-License-Identifier: Apache-2.0
"""The screen of `virtune top`. Its session and its lines are pure; `app` shows them in a terminal."""
