// SPDX-License-Identifier: Apache-2.0
//! Tallies: what one thread counts while it runs, and how tallies add up.

use crate::histogram::Histogram;
use crate::job::Direction;
use crate::prelude::*;
use core::time::Duration;

/// fio's interval for `iops_min` and the like.
pub const SAMPLE: Duration = Duration::from_millis(500);

/// Number, extremes, mean and deviation of a quantity. Sums are whole numbers, so they add up exactly.
#[derive(Clone, Debug, Default)]
pub struct Spread {
    count: u64,
    sum: u128,
    squares: u128,
    least: u64,
    most: u64,
}

impl Spread {
    /// Count one value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.least = if self.count == 0 { value } else { self.least.min(value) };
        self.most = self.most.max(value);
        self.count += 1;
        self.sum += u128::from(value);
        self.squares += u128::from(value) * u128::from(value);
    }

    /// Add another.
    pub fn merge(&mut self, other: &Spread) {
        self.least = match (self.count, other.count) {
            (0, _) => other.least,
            (_, 0) => self.least,
            _ => self.least.min(other.least),
        };
        self.most = self.most.max(other.most);
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The least, or zero.
    pub fn least(&self) -> u64 {
        self.least
    }

    /// The most, or zero.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// The mean, or zero.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The standard deviation of the sample, or zero.
    pub fn deviation(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let n = u128::from(self.count);
        // n * squares - sum^2 is exact below 2^128; for longer runs the loss is far below what is printed
        match (n.checked_mul(self.squares), self.sum.checked_mul(self.sum)) {
            (Some(left), Some(right)) => libm::sqrt(left.saturating_sub(right) as f64 / n as f64 / (n - 1) as f64),
            _ => {
                let mean = self.mean();
                libm::sqrt((self.squares as f64 / n as f64 - mean * mean).max(0.0) * n as f64 / (n - 1) as f64)
            }
        }
    }
}

/// What happened in one window of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Requests that ended in it.
    pub ios: u64,
    /// Their completion latencies, added.
    pub clat_ns: u64,
    /// Their whole latencies, added.
    pub lat_ns: u64,
}

/// Windows of equal length, side by side from a start.
#[derive(Clone, Debug)]
pub struct Windows {
    start_ns: u64,
    length_ns: u64,
    end_ns: u64,
    current: Window,
    past: Vec<Window>,
}

impl Windows {
    /// Begin at `start_ns`.
    pub fn new(start_ns: u64, length: Duration) -> Self {
        let length_ns = length.as_nanos() as u64;
        Windows { start_ns, length_ns, end_ns: start_ns + length_ns, current: Window::default(), past: Vec::new() }
    }

    /// Count a request that ended at `now_ns`. Times never go back.
    #[inline]
    pub fn record(&mut self, now_ns: u64, clat_ns: u64, lat_ns: u64) {
        while now_ns >= self.end_ns {
            self.past.push(core::mem::take(&mut self.current));
            self.end_ns += self.length_ns;
        }
        self.current.ios += 1;
        self.current.clat_ns += clat_ns;
        self.current.lat_ns += lat_ns;
    }

    /// Return the windows that were over at `end_ns`.
    pub fn complete(&self, end_ns: u64) -> Vec<Window> {
        let count = (end_ns.saturating_sub(self.start_ns) / self.length_ns) as usize;
        let mut windows = self.past.clone();
        windows.push(self.current);
        windows.resize(count, Window::default());
        windows
    }

    /// How long each window is.
    pub fn length(&self) -> Duration {
        Duration::from_nanos(self.length_ns)
    }
}

/// What was counted of one direction.
#[derive(Clone)]
pub struct Side {
    /// Bytes moved.
    pub bytes: u64,
    /// From ready (closed loop) or intended (open loop) to handed over.
    pub slat: Spread,
    /// From handed over to ended.
    pub clat: Spread,
    /// From ready or intended to ended.
    pub lat: Spread,
    /// `clat`, by bins.
    pub clat_bins: Histogram,
    /// `lat`, by bins; only counted when asked for.
    pub lat_bins: Histogram,
    /// Half seconds, for the spread of the rate.
    pub samples: Windows,
    /// The lines of the logs, when there are any.
    pub log: Option<Windows>,
}

/// One request that ended, in nanoseconds of the run's clock.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// When it could have started, or was intended to.
    pub ready_ns: u64,
    /// When the device had been told of it.
    pub sent_ns: u64,
    /// When its end was seen.
    pub ended_ns: u64,
}

impl Side {
    fn new(start_ns: u64, log: Option<Duration>) -> Self {
        Side {
            bytes: 0,
            slat: Spread::default(),
            clat: Spread::default(),
            lat: Spread::default(),
            clat_bins: Histogram::default(),
            lat_bins: Histogram::default(),
            samples: Windows::new(start_ns, SAMPLE),
            log: log.map(|length| Windows::new(start_ns, length)),
        }
    }

    /// Count a request.
    #[inline]
    pub fn record(&mut self, ended: Ended, bytes: u64, lat_bins: bool) {
        let slat = ended.sent_ns - ended.ready_ns;
        let clat = ended.ended_ns - ended.sent_ns;
        self.bytes += bytes;
        self.slat.record(slat);
        self.clat.record(clat);
        self.lat.record(slat + clat);
        self.clat_bins.record(clat);
        if lat_bins {
            self.lat_bins.record(slat + clat);
        }
        self.samples.record(ended.ended_ns, clat, slat + clat);
        if let Some(log) = &mut self.log {
            log.record(ended.ended_ns, clat, slat + clat);
        }
    }

    /// How many requests.
    pub fn ios(&self) -> u64 {
        self.clat.count()
    }

    fn merge(&mut self, other: &Side) {
        self.bytes += other.bytes;
        self.slat.merge(&other.slat);
        self.clat.merge(&other.clat);
        self.lat.merge(&other.lat);
        self.clat_bins.merge(&other.clat_bins);
        self.lat_bins.merge(&other.lat_bins);
    }
}

/// Shares of requests by how many were in flight, in fio's classes.
pub type Depths = [u64; 7];

/// A request that is recorded by itself.
#[derive(Clone, Copy, Debug)]
pub struct Each {
    /// Its times.
    pub times: Ended,
    /// What it did.
    pub direction: Direction,
    /// Where.
    pub offset: u64,
}

/// What a thread counted.
#[derive(Clone)]
pub struct Tally {
    /// Reads and writes.
    pub sides: [Side; 2],
    /// Flushes: from due to ended.
    pub sync: Spread,
    /// Flushes, by bins.
    pub sync_bins: Histogram,
    /// In flight when a request was sent, in classes 1, 2, 4 ... 64 and more.
    pub depth: Depths,
    /// Sent together, in classes 0, 4 and less, 8 ... 64, more.
    pub submit: Depths,
    /// Ended together, in the same classes.
    pub complete: Depths,
    /// Every request, where they are recorded one by one.
    pub each: Option<Vec<Each>>,
    /// Starts that were intended but not sent before the end (open loop).
    pub unsent: u64,
    /// When counting began.
    pub start_ns: u64,
    /// When the last request ended.
    pub end_ns: u64,
    /// CPU time and the like of the thread.
    pub usage: Usage,
}

/// What the kernel counted of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Seconds in user mode.
    pub user_seconds: f64,
    /// Seconds in the kernel.
    pub system_seconds: f64,
    /// Context switches.
    pub switches: i64,
    /// Page faults that read from disk.
    pub major_faults: i64,
    /// Page faults that did not.
    pub minor_faults: i64,
}

impl Usage {
    /// What was used since `before`.
    pub fn since(self, before: Usage) -> Usage {
        Usage {
            user_seconds: self.user_seconds - before.user_seconds,
            system_seconds: self.system_seconds - before.system_seconds,
            switches: self.switches - before.switches,
            major_faults: self.major_faults - before.major_faults,
            minor_faults: self.minor_faults - before.minor_faults,
        }
    }

    /// One part of as many equal ones.
    pub(crate) fn part_of(self, parts: usize) -> Usage {
        let (share, count) = (parts as f64, parts as i64);
        Usage {
            user_seconds: self.user_seconds / share,
            system_seconds: self.system_seconds / share,
            switches: self.switches / count,
            major_faults: self.major_faults / count,
            minor_faults: self.minor_faults / count,
        }
    }

    fn merge(&mut self, other: Usage) {
        self.user_seconds += other.user_seconds;
        self.system_seconds += other.system_seconds;
        self.switches += other.switches;
        self.major_faults += other.major_faults;
        self.minor_faults += other.minor_faults;
    }
}

impl Tally {
    /// Begin to count at `start_ns`.
    pub fn new(start_ns: u64, log: Option<Duration>) -> Self {
        Tally {
            sides: [Side::new(start_ns, log), Side::new(start_ns, log)],
            sync: Spread::default(),
            sync_bins: Histogram::default(),
            depth: [0; 7],
            submit: [0; 7],
            complete: [0; 7],
            each: None,
            unsent: 0,
            start_ns,
            end_ns: start_ns,
            usage: Usage::default(),
        }
    }

    /// The counts of a direction.
    #[inline]
    pub fn side(&mut self, direction: Direction) -> &mut Side {
        &mut self.sides[direction as usize]
    }

    /// Count the requests in flight, with the one that is being sent.
    #[inline]
    pub fn mark_depth(&mut self, in_flight: usize) {
        self.depth[(usize::BITS - 1 - (in_flight | 1).leading_zeros()).min(6) as usize] += 1;
    }

    /// Seconds from the first count to the last.
    pub fn seconds(&self) -> f64 {
        self.end_ns.saturating_sub(self.start_ns) as f64 / 1e9
    }

    /// Add another thread's counts, all but its windows: those only make sense side by side.
    pub fn merge(&mut self, other: &Tally) {
        for (mine, theirs) in self.sides.iter_mut().zip(&other.sides) {
            mine.merge(theirs);
        }
        self.sync.merge(&other.sync);
        self.sync_bins.merge(&other.sync_bins);
        for (mine, theirs) in
            [(&mut self.depth, &other.depth), (&mut self.submit, &other.submit), (&mut self.complete, &other.complete)]
        {
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                *mine += theirs;
            }
        }
        self.unsent += other.unsent;
        self.start_ns = self.start_ns.min(other.start_ns);
        self.end_ns = self.end_ns.max(other.end_ns);
        self.usage.merge(other.usage);
    }
}

/// The class of a batch: none, up to 4, up to 8 ... up to 64, more.
#[inline]
pub fn batch_class(count: usize) -> usize {
    match count {
        0 => 0,
        1..=4 => 1,
        5..=8 => 2,
        9..=16 => 3,
        17..=32 => 4,
        33..=64 => 5,
        _ => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn windows_hold_what_ended_in_them_and_empty_ones_are_kept() {
        let mut windows = Windows::new(100, Duration::from_nanos(10));
        for now in [100, 109, 131] {
            windows.record(now, 1, 2);
        }
        let ios = |end| windows.complete(end).iter().map(|window| window.ios).collect::<Vec<_>>();
        assert_eq!(ios(139), [2, 0, 0]);
        assert_eq!(ios(155), [2, 0, 0, 1, 0]);
    }

    #[test]
    fn depth_classes_are_fios() {
        let mut tally = Tally::new(0, None);
        for depth in [1, 2, 3, 4, 7, 8, 31, 32, 63, 64, 5000] {
            tally.mark_depth(depth);
        }
        assert_eq!(tally.depth, [1, 2, 2, 1, 1, 2, 2]);
    }

    proptest! {
        #[test]
        fn spreads_add_up(a in prop::collection::vec(0u64..1 << 40, 0..40), b in prop::collection::vec(0u64..1 << 40, 0..40)) {
            let of = |values: &[u64]| {
                let mut spread = Spread::default();
                values.iter().for_each(|&v| spread.record(v));
                spread
            };
            let mut sum = of(&a);
            sum.merge(&of(&b));
            let all = of(&[a.clone(), b.clone()].concat());
            prop_assert_eq!((sum.count, sum.sum, sum.squares, sum.most), (all.count, all.sum, all.squares, all.most));
            prop_assert_eq!(sum.least, all.least);
            if all.count > 1 {
                let values: Vec<f64> = a.iter().chain(&b).map(|&v| v as f64).collect();
                let mean = values.iter().sum::<f64>() / values.len() as f64;
                let deviation = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64).sqrt();
                prop_assert!((all.deviation() - deviation).abs() <= 1e-6 * deviation + 1.0);
            }
        }
    }
}
