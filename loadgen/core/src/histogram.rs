// SPDX-License-Identifier: Apache-2.0
//! A histogram with fio's own bins, so that ours and fio's add up exactly.
//!
//! The layout is that of fio's `stat.h`: 64 bins to an octave, 29 groups of them. A value below 128 has a bin of
//! its own; above, a bin is 1/64 of its octave wide and stands for its middle, so no value moves by more than 0.8 %.

use crate::prelude::*;

const BITS: u32 = 6;
const PER_GROUP: usize = 1 << BITS;
const GROUPS: usize = 29;

/// How many bins there are.
pub const BINS: usize = PER_GROUP * GROUPS;

/// The percentiles that fio prints unless told otherwise.
pub const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// Counts of values, by bin.
#[derive(Clone)]
pub struct Histogram {
    counts: Box<[u64; BINS]>,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: Box::new([0; BINS]) }
    }
}

impl Histogram {
    /// Count one value, in nanoseconds.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.counts[index(value)] += 1;
    }

    /// Add another histogram, bin by bin.
    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts.iter()) {
            *mine += theirs;
        }
    }

    /// Forget everything that was counted.
    pub fn clear(&mut self) {
        self.counts.fill(0);
    }

    /// Return how many values were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Return the bins that are not empty as (value, count), ascending.
    pub fn bins(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(index, count)| (value(index), *count))
    }

    /// Return the value that `percent` % of the counted stay at or below, by fio's rule: the first bin at which the
    /// running count reaches that share. None when nothing was counted.
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        let need = percent / 100.0 * self.count() as f64;
        let mut running = 0u64;
        for (value, count) in self.bins() {
            running += count;
            if running as f64 >= need {
                return Some(value);
            }
        }
        None
    }
}

/// Return the bin of a value (fio: `plat_val_to_idx`).
#[inline]
pub fn index(value: u64) -> usize {
    let msb = 63 - (value | 1).leading_zeros();
    if msb <= BITS {
        return value as usize;
    }
    let dropped = msb - BITS;
    let base = (dropped as usize + 1) << BITS;
    let offset = (PER_GROUP - 1) & (value >> dropped) as usize;
    (base + offset).min(BINS - 1)
}

/// Return the value that a bin stands for, its middle (fio: `plat_idx_to_val`).
pub fn value(index: usize) -> u64 {
    if index < PER_GROUP << 1 {
        return index as u64;
    }
    let dropped = (index >> BITS) as u32 - 1;
    let base = 1u64 << (dropped + BITS);
    let place = (index % PER_GROUP) as u64;
    // (place + 0.5) * 2^dropped in whole numbers, as fio's truncation gives it
    base + (place << dropped) + (1u64 << dropped) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn there_are_as_many_bins_as_in_fio() {
        assert_eq!(BINS, 1856);
        assert_eq!(index(u64::MAX), BINS - 1);
    }

    #[test]
    fn bins_seen_in_fio_output_are_ours() {
        for seen in [0u64, 90, 127, 131, 191, 201, 262, 270, 290, 532, 1032, 2480, 12224, 100_864, 864_256, 1_613_824] {
            assert_eq!(value(index(seen)), seen);
        }
    }

    #[test]
    fn percentiles_follow_the_running_count() {
        let mut histogram = Histogram::default();
        for value in 1..=100 {
            histogram.record(value);
        }
        assert_eq!(histogram.percentile(50.0), Some(50));
        assert_eq!(histogram.percentile(99.0), Some(99));
        assert_eq!(Histogram::default().percentile(50.0), None);
    }

    proptest! {
        #[test]
        fn no_value_moves_by_more_than_the_promise(latency in 0u64..(1 << 34)) {
            let kept = value(index(latency));
            prop_assert!((kept as f64 - latency as f64).abs() <= 0.008 * latency as f64, "{latency} became {kept}");
        }

        #[test]
        fn a_bin_stands_for_itself(bin in 0usize..BINS) {
            prop_assert_eq!(index(value(bin)), bin);
        }

        #[test]
        fn larger_values_never_have_smaller_bins(a in 0u64..(1 << 40), b in 0u64..(1 << 40)) {
            prop_assert!(a > b || index(a) <= index(b));
        }

        #[test]
        fn merging_is_counting_together(a in prop::collection::vec(0u64..1 << 30, 0..50), b in prop::collection::vec(0u64..1 << 30, 0..50)) {
            let fill = |values: &[u64]| {
                let mut histogram = Histogram::default();
                values.iter().for_each(|&v| histogram.record(v));
                histogram
            };
            let mut merged = fill(&a);
            merged.merge(&fill(&b));
            let together = fill(&[a, b].concat());
            prop_assert_eq!(merged.bins().collect::<Vec<_>>(), together.bins().collect::<Vec<_>>());
        }
    }
}
