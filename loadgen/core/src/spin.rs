// SPDX-License-Identifier: Apache-2.0
//! Spinning: how long before an intended start to stop sleeping, because timers wake threads late.

use core::time::Duration;

/// The longest time before an intended start that a thread polls instead of sleeping.
const SPIN_MAX_NS: u64 = 100_000;
/// The share of the time between two starts that may go into polling for the next: a quarter.
const SPIN_SHARE: u64 = 4;

/// How long before an intended start to stop sleeping and poll: as long as sleeps have been too long lately.
pub(crate) struct Spin {
    late_ns: u64,
    most_ns: u64,
}

impl Spin {
    pub(crate) fn new(starts_per_second: u64) -> Self {
        Spin { late_ns: 0, most_ns: (1_000_000_000 / starts_per_second.max(1) / SPIN_SHARE).min(SPIN_MAX_NS) }
    }

    pub(crate) fn nanos(&self) -> u64 {
        (self.late_ns + self.late_ns / 4).min(self.most_ns)
    }

    pub(crate) fn slept(&mut self, meant: Duration, took_ns: u64) {
        let meant_ns = meant.as_nanos() as u64;
        if meant_ns > 0 && took_ns >= meant_ns {
            let late_ns = (took_ns - meant_ns).min(SPIN_MAX_NS);
            self.late_ns = (7 * self.late_ns + late_ns) / 8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_how_late_sleeps_end_but_never_takes_more_than_its_share() {
        let mut spin = Spin::new(1_000);
        assert_eq!(spin.nanos(), 0);
        for _ in 0..100 {
            spin.slept(Duration::from_micros(900), 940_000);
        }
        assert!((45_000..=50_000).contains(&spin.nanos()), "{}", spin.nanos());
        for _ in 0..100 {
            spin.slept(Duration::from_micros(900), 9_000_000);
        }
        assert_eq!(spin.nanos(), 100_000);
        let mut busy = Spin::new(100_000);
        busy.slept(Duration::from_micros(5), 900_000);
        assert_eq!(busy.nanos(), 2_500, "a quarter of 10 us");
    }
}
