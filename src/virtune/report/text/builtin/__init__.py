# SPDX-License-Identifier: Apache-2.0
"""The tables of built-in studies, beside what their authors published."""
