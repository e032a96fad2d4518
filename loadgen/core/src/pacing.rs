// SPDX-License-Identifier: Apache-2.0
//! Pacing: when an open-loop request is meant to start, whatever the device does meanwhile.

use crate::chance::Chance;

/// How the intended starts are spread (fio's `rate_process`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// At equal distances.
    Linear,
    /// At random, as many independent users would send them.
    Poisson,
}

/// The timetable of one direction of one job: an endless row of intended starts.
///
/// It never looks at completions. A request that could not be sent in time keeps its intended start, so the wait
/// counts as latency: no coordinated omission.
#[derive(Clone, Debug)]
pub struct Pacer {
    process: Process,
    period_ns: f64,
    origin_ns: f64,
    sent: u64,
    due_ns: u64,
    chance: Chance,
}

impl Pacer {
    /// Plan `rate` starts a second from `start_ns` on; `phase` in 0..1 shifts a linear row by that share of a period.
    pub fn new(rate: u64, process: Process, start_ns: u64, phase: f64, chance: Chance) -> Self {
        let period_ns = 1e9 / rate.max(1) as f64;
        let mut pacer =
            Pacer { process, period_ns, origin_ns: start_ns as f64 + phase * period_ns, sent: 0, due_ns: 0, chance };
        pacer.plan();
        pacer
    }

    /// Return the intended start of the next request.
    #[inline]
    pub fn due(&self) -> u64 {
        self.due_ns
    }

    /// Take the next request off the timetable and return its intended start.
    #[inline]
    pub fn take(&mut self) -> u64 {
        let due = self.due_ns;
        self.sent += 1;
        self.plan();
        due
    }

    /// Return how many starts were intended before `end_ns` but not taken. Counts them off the timetable.
    pub fn left_before(&mut self, end_ns: u64) -> u64 {
        let mut left = 0;
        while self.due_ns < end_ns {
            self.take();
            left += 1;
        }
        left
    }

    fn plan(&mut self) {
        self.due_ns = match self.process {
            // from the count, so that rounding does not add up
            Process::Linear => (self.origin_ns + self.sent as f64 * self.period_ns) as u64,
            Process::Poisson => {
                self.origin_ns += self.chance.exponential(self.period_ns);
                self.origin_ns as u64
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(process: Process, rate: u64) -> u64 {
        Pacer::new(rate, process, 1_000, 0.0, Chance::new(5, 0)).left_before(1_000 + 10_000_000_000)
    }

    #[test]
    fn linear_keeps_its_rate_exactly() {
        assert_eq!(count(Process::Linear, 777), 7_770);
        assert_eq!(count(Process::Linear, 1), 10);
        assert_eq!(count(Process::Linear, 1_000_000), 10_000_000);
    }

    #[test]
    fn poisson_keeps_its_rate_on_average_and_its_spread() {
        let n = count(Process::Poisson, 10_000) as f64;
        assert!((n - 100_000.0).abs() < 5.0 * 100_000f64.sqrt(), "{n}");
        let mut pacer = Pacer::new(1_000_000, Process::Poisson, 0, 0.0, Chance::new(2, 0));
        let mut last = 0;
        let gaps: Vec<f64> = (0..100_000)
            .map(|_| {
                let due = pacer.take();
                let gap = (due - last) as f64;
                last = due;
                gap
            })
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "an exponential gap's deviation is its mean");
    }

    #[test]
    fn phases_interleave() {
        let due = |phase| Pacer::new(1000, Process::Linear, 0, phase, Chance::new(1, 0)).due();
        assert_eq!((due(0.0), due(0.5)), (0, 500_000));
    }
}
