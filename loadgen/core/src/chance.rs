// SPDX-License-Identifier: Apache-2.0
//! Chance: seeded random numbers, the same on every machine, and the two distributions the load draws from.

/// A xoshiro256++ generator: small, fast, and good enough for choosing places on a disk.
#[derive(Clone, Debug)]
pub struct Chance {
    state: [u64; 4],
}

impl Chance {
    /// Start from a seed and a stream number; every thread takes its own stream of the run's one seed.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut mixer = seed ^ stream.wrapping_mul(0xA076_1D64_78BD_642F);
        let mut next = || {
            mixer = mixer.wrapping_add(0x9E37_79B9_7F4A_7C15);
            mix(mixer)
        };
        Chance { state: [next(), next(), next(), next()] }
    }

    /// Return 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Return a whole number in `0..bound`. The bias of the multiplication is below 2^-40 for any real disk.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Return a number in (0, 1]; never zero, so that its logarithm exists.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Return a waiting time with the given mean, as between the arrivals of a Poisson process.
    #[inline]
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -libm::log(self.unit()) * mean
    }

    /// Fill a buffer with random bytes that neither compress nor deduplicate.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            let bits = self.bits().to_le_bytes();
            chunk.copy_from_slice(&bits[..chunk.len()]);
        }
    }
}

/// Mix 64 bits so that every input bit changes about half of the output (splitmix64's finaliser).
#[inline]
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Zipf's distribution over ranks `0..count`: rank k is drawn in proportion to 1/(k+1)^theta.
///
/// Exact for any theta > 0 by rejection-inversion (Hörmann and Derflinger 1996), with no table and no sum to
/// compute first, so that a large disk starts as fast as a small one.
#[derive(Clone, Debug)]
pub struct Zipf {
    theta: f64,
    count: f64,
    low: f64,
    high: f64,
    shortcut: f64,
}

impl Zipf {
    /// Prepare to draw from `count` ranks.
    pub fn new(theta: f64, count: u64) -> Self {
        let count = count.max(1) as f64;
        let mut zipf = Zipf { theta, count, low: 0.0, high: 0.0, shortcut: 0.0 };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(count + 0.5);
        zipf.shortcut = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    /// Draw a rank in `0..count`; 0 is the most frequent.
    #[inline]
    pub fn draw(&self, chance: &mut Chance) -> u64 {
        loop {
            let u = self.high + chance.unit() * (self.low - self.high);
            let x = self.inverse(u);
            let k = libm::round(x).clamp(1.0, self.count);
            if k - x <= self.shortcut || u >= self.integral(k + 0.5) - self.weight(k) {
                return k as u64 - 1;
            }
        }
    }

    fn weight(&self, x: f64) -> f64 {
        libm::exp(-self.theta * libm::log(x))
    }

    /// The integral of x^-theta, from 1; the limit of theta = 1 is the logarithm.
    fn integral(&self, x: f64) -> f64 {
        let log = libm::log(x);
        let y = (1.0 - self.theta) * log;
        log * if y.abs() > 1e-8 { libm::expm1(y) / y } else { 1.0 + y / 2.0 * (1.0 + y / 3.0) }
    }

    fn inverse(&self, x: f64) -> f64 {
        let y = (x * (1.0 - self.theta)).max(-1.0);
        let factor = if y.abs() > 1e-8 { libm::log1p(y) / y } else { 1.0 - y * (0.5 - y / 3.0) };
        libm::exp(factor * x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_streams_differ() {
        let draw = |stream| {
            let mut chance = Chance::new(7, stream);
            [chance.bits(), chance.bits(), chance.bits()]
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn below_covers_its_range_evenly() {
        let mut chance = Chance::new(1, 0);
        let mut seen = [0u32; 10];
        for _ in 0..100_000 {
            seen[chance.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (9_500..10_500).contains(&n)), "{seen:?}");
    }

    #[test]
    fn exponential_has_its_mean() {
        let mut chance = Chance::new(3, 0);
        let mean = (0..200_000).map(|_| chance.exponential(50.0)).sum::<f64>() / 200_000.0;
        assert!((49.0..51.0).contains(&mean), "{mean}");
    }

    #[test]
    fn zipf_follows_its_law_for_theta_below_at_and_above_one() {
        for theta in [0.5, 0.99, 1.0, 1.2, 2.0] {
            let count = 50u64;
            let zipf = Zipf::new(theta, count);
            let mut chance = Chance::new(11, 0);
            let draws = 400_000;
            let mut seen = vec![0u64; count as usize];
            for _ in 0..draws {
                seen[zipf.draw(&mut chance) as usize] += 1;
            }
            let norm: f64 = (1..=count).map(|k| (k as f64).powf(-theta)).sum();
            for k in [1u64, 2, 3, 10, 50] {
                let expect = draws as f64 * (k as f64).powf(-theta) / norm;
                let got = seen[k as usize - 1] as f64;
                assert!(
                    (got - expect).abs() < 5.0 * expect.sqrt() + 1.0,
                    "theta {theta} rank {k}: {got} against {expect}"
                );
            }
        }
    }

    #[test]
    fn zipf_over_one_place_is_that_place() {
        let mut chance = Chance::new(1, 0);
        assert_eq!(Zipf::new(1.1, 1).draw(&mut chance), 0);
    }
}
