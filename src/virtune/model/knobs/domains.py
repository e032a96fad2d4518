# SPDX-License-Identifier: Apache-2.0
"""Value ranges that many knobs share; where no source names a bound, it is that of the number's type."""

from virtune.model.knob import NO_LIMIT, Number, Switch

ON_OFF = Switch()
COUNT = Number(low=0, high=NO_LIMIT)
AT_LEAST_ONE = Number(low=1, high=NO_LIMIT)
NANOSECONDS = Number(low=0, high=NO_LIMIT, unit="ns")
