// SPDX-License-Identifier: Apache-2.0
//! Places: which block of the span a request goes to.

use crate::chance::{Chance, Zipf, mix};
use crate::job::{Direction, Distribution};

/// How often another block is drawn at random when the first is busy.
const REDRAWS: u32 = 32;

/// The rule by which one thread chooses blocks. A thread owns every `stride`th block from `first` on; without a
/// journal that is all of them, with one each thread has its own, so that no two write the same block at a time.
#[derive(Clone, Debug)]
pub struct Places {
    owned: u64,
    first: u64,
    stride: u64,
    next: [u64; 2],
    waiting: [Option<u64>; 2],
    rule: Rule,
}

#[derive(Clone, Debug)]
enum Rule {
    Sequential,
    Uniform,
    Zipf { zipf: Zipf, scatter: Scatter },
}

impl Places {
    /// Plan for a span of `blocks`, of which this thread owns every `stride`th from `first` on.
    pub fn new(blocks: u64, first: u64, stride: u64, random: Option<Distribution>, seed: u64) -> Self {
        let owned = blocks.saturating_sub(first).div_ceil(stride).max(1);
        Places {
            owned,
            first,
            stride,
            next: [0, 0],
            waiting: [None, None],
            rule: match random {
                None => Rule::Sequential,
                Some(Distribution::Uniform) => Rule::Uniform,
                Some(Distribution::Zipf(theta)) => {
                    Rule::Zipf { zipf: Zipf::new(theta, owned), scatter: Scatter::new(owned, seed) }
                }
            },
        }
    }

    /// How many blocks there are to choose from.
    pub fn owned(&self) -> u64 {
        self.owned
    }

    /// Choose the next block for a direction.
    #[inline]
    pub fn next(&mut self, direction: Direction, chance: &mut Chance) -> u64 {
        let place = match &self.rule {
            Rule::Sequential => {
                let next = &mut self.next[direction as usize];
                let place = *next;
                *next = if place + 1 == self.owned { 0 } else { place + 1 };
                place
            }
            Rule::Uniform => chance.below(self.owned),
            Rule::Zipf { zipf, scatter } => scatter.apply(zipf.draw(chance)),
        };
        self.first + place * self.stride
    }

    /// Choose the next block that is not busy; None when every one that was drawn is.
    ///
    /// A sequence keeps its order: nothing goes out in a direction before the very block that is next in it.
    pub fn next_idle(&mut self, direction: Direction, chance: &mut Chance, busy: impl Fn(u64) -> bool) -> Option<u64> {
        if !matches!(self.rule, Rule::Sequential) {
            return (0..REDRAWS).map(|_| self.next(direction, chance)).find(|block| !busy(*block));
        }
        let block = self.waiting[direction as usize].take().unwrap_or_else(|| self.next(direction, chance));
        if busy(block) {
            self.waiting[direction as usize] = Some(block);
            return None;
        }
        Some(block)
    }
}

/// A one-to-one map of ranks to places, so that the hot blocks do not lie side by side.
#[derive(Clone, Debug)]
struct Scatter {
    count: u64,
    factor: u64,
    shift: u64,
}

impl Scatter {
    fn new(count: u64, seed: u64) -> Self {
        // about the golden section of the range: neighbours in rank land far apart
        let mut factor = ((count as f64 * 0.618_033_988_75) as u64).max(1);
        while gcd(factor, count) != 1 {
            factor += 1;
        }
        Scatter { count, factor, shift: mix(seed) % count }
    }

    fn apply(&self, rank: u64) -> u64 {
        ((u128::from(rank) * u128::from(self.factor) + u128::from(self.shift)) % u128::from(self.count)) as u64
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn a_sequence_waits_for_a_block_that_is_busy_and_skips_none() {
        let (mut places, mut chance) = (Places::new(4, 0, 1, None, 0), Chance::new(0, 0));
        let mut draw = |busy: &[u64]| places.next_idle(Direction::Write, &mut chance, |block| busy.contains(&block));
        assert_eq!([draw(&[]), draw(&[0])], [Some(0), Some(1)]);
        // 2 is busy from an earlier pass, and so is 3 for a while: neither may go out before 2
        assert_eq!([draw(&[2]), draw(&[2, 3]), draw(&[2])], [None; 3]);
        assert_eq!([draw(&[]), draw(&[2]), draw(&[2, 3])], [Some(2), Some(3), Some(0)]);
        let read = places.next_idle(Direction::Read, &mut chance, |_| false);
        assert_eq!(read, Some(0), "the other direction waits for nothing");
    }

    #[test]
    fn at_random_another_block_is_taken_for_one_that_is_busy() {
        let (mut places, mut chance) = (Places::new(2, 0, 1, Some(Distribution::Uniform), 0), Chance::new(1, 0));
        for _ in 0..20 {
            assert_eq!(places.next_idle(Direction::Write, &mut chance, |block| block == 0), Some(1));
        }
        assert_eq!(places.next_idle(Direction::Write, &mut chance, |_| true), None);
    }

    #[test]
    fn sequential_goes_round_and_each_direction_has_its_own_position() {
        let mut places = Places::new(3, 0, 1, None, 0);
        let mut chance = Chance::new(0, 0);
        let reads: Vec<u64> = (0..4).map(|_| places.next(Direction::Read, &mut chance)).collect();
        assert_eq!(reads, [0, 1, 2, 0]);
        assert_eq!(places.next(Direction::Write, &mut chance), 0);
    }

    proptest! {
        #[test]
        fn scatter_is_one_to_one(count in 1u64..500, seed in any::<u64>()) {
            let scatter = Scatter::new(count, seed);
            let image: HashSet<u64> = (0..count).map(|rank| scatter.apply(rank)).collect();
            prop_assert_eq!(image.len() as u64, count);
            prop_assert!(image.iter().all(|&place| place < count));
        }

        #[test]
        fn threads_with_a_journal_never_meet_and_never_leave_the_span(
            blocks in 8u64..1000, threads in 1u64..8, kind in 0usize..3, seed in any::<u64>()
        ) {
            let random = [None, Some(Distribution::Uniform), Some(Distribution::Zipf(1.2))][kind];
            for thread in 0..threads {
                let mut places = Places::new(blocks, thread, threads, random, seed);
                let mut chance = Chance::new(seed, thread);
                for _ in 0..50 {
                    let place = places.next(Direction::Write, &mut chance);
                    prop_assert!(place < blocks);
                    prop_assert_eq!(place % threads, thread);
                }
            }
        }
    }
}
