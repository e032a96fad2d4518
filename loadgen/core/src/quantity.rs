// SPDX-License-Identifier: Apache-2.0
//! Sizes and times as fio writes them: `4k`, `1M`, `10G`; `30`, `500ms`, `2m`.

use crate::prelude::*;
use core::time::Duration;

/// Read a size in bytes; suffixes are powers of 1024, as in fio.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a size (write 512, 4k, 1M or 10G)");
    let lower = text.trim().to_ascii_lowercase();
    let stem = match lower.strip_suffix('b') {
        Some(stem) if !stem.is_empty() => stem.to_owned(),
        _ => lower,
    };
    let (digits, power) = match stem.chars().last() {
        Some('k') => (&stem[..stem.len() - 1], 1),
        Some('m') => (&stem[..stem.len() - 1], 2),
        Some('g') => (&stem[..stem.len() - 1], 3),
        Some('t') => (&stem[..stem.len() - 1], 4),
        _ => (stem.as_str(), 0),
    };
    let number = whole(digits).ok_or_else(wrong)?;
    number.checked_mul(1024u64.pow(power)).ok_or_else(|| format!("`{text}` is larger than any disk"))
}

/// Read a time; a bare number is seconds, as in fio.
pub fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time (write 30, 500ms or 2m)");
    let lower = text.trim().to_ascii_lowercase();
    let split = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let (digits, unit) = lower.split_at(split);
    let micros: u64 = match unit {
        "us" => 1,
        "ms" => 1_000,
        "" | "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return Err(wrong()),
    };
    let total = whole(digits).ok_or_else(wrong)?.checked_mul(micros);
    match total {
        Some(total) if total <= LONGEST_MICROS => Ok(Duration::from_micros(total)),
        _ => Err(format!("`{text}` is longer than a year")),
    }
}

/// Read a whole number; unlike `str::parse`, a sign is not a digit.
pub fn whole(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// A year: longer than any load, and short enough that nanoseconds never overflow.
const LONGEST_MICROS: u64 = 365 * 86_400_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_as_fio_reads_them() {
        for (text, bytes) in
            [("512", 512), ("4k", 4096), ("4KB", 4096), ("1M", 1 << 20), ("10g", 10 << 30), ("2t", 2 << 40)]
        {
            assert_eq!(size(text), Ok(bytes));
        }
        for text in ["", "k", "b", "-1", "+4k", "4.5k", "4x", "99999999999999999999", "99999999999t"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_read_as_fio_reads_them() {
        for (text, millis) in [("30", 30_000), ("500ms", 500), ("2m", 120_000), ("1h", 3_600_000), ("3s", 3_000)] {
            assert_eq!(time(text), Ok(Duration::from_millis(millis)));
        }
        for text in ["", "ms", "-1", "1.5", "1y", "400d", "99999999999999999999"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_makes_them_panic(text in "\\PC*") {
            let _ = size(&text);
            let _ = time(&text);
        }
    }
}
