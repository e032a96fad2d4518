# SPDX-License-Identifier: Apache-2.0
"""A study for a terminal: answer, tables, arms, evidence, settings, warnings; a list of studies, one fio result."""
