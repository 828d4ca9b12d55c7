//! What a controller of ours says of itself. Figures from here are marked *self*.

use std::collections::BTreeMap;

/// The value of a series without labels; 0 where there is none.
pub(super) fn value(text: &str, series: &str) -> f64 {
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.and_then(|value| value.parse().ok()).unwrap_or_default()
}

/// Values of a family that begin so, in all.
pub(super) fn sum(text: &str, family: &str) -> f64 {
    text.lines()
        .filter(|line| line.starts_with(family))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// A histogram: how many were at most that many microseconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Histogram(BTreeMap<u64, f64>);

impl Histogram {
    /// Reads one, in seconds, without labels.
    pub fn read(text: &str, name: &str) -> Self {
        let prefix = format!("{name}_bucket{{le=\"");
        let bucket = |line: &str| {
            let (bound, count) = line.strip_prefix(&prefix)?.split_once("\"} ")?;
            let bound = if bound == "+Inf" { u64::MAX } else { (bound.parse::<f64>().ok()? * 1e6).round() as u64 };
            Some((bound, count.split(' ').next()?.parse().ok()?))
        };
        Self(text.lines().filter_map(bucket).collect())
    }

    /// What came after.
    pub fn since(&self, before: &Self) -> Self {
        let earlier = |bound: &u64| before.0.get(bound).copied().unwrap_or_default();
        Self(self.0.iter().map(|(bound, count)| (*bound, count - earlier(bound))).collect())
    }

    /// In microseconds, by a straight line within the bucket; 0 without samples.
    pub fn percentile_us(&self, percent: f64) -> f64 {
        let total = self.0.values().last().copied().unwrap_or_default();
        let rank = total * percent / 100.0;
        let (mut low, mut below) = (0.0, 0.0);
        for (bound, count) in &self.0 {
            if *count >= rank && *count > below {
                let high = if *bound == u64::MAX { low } else { *bound as f64 };
                return low + (high - low) * (rank - below) / (count - below);
            }
            (low, below) = (*bound as f64, *count);
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a_bucket{le=\"0.0001\"} 50\na_bucket{le=\"0.0002\"} 100\na_bucket{le=\"+Inf\"} 100\n\
                        b_total{kind=\"x\"} 2\nb_total{kind=\"y\"} 3\nc 7\n";

    #[test]
    fn percentiles_lie_within_their_bucket() {
        let histogram = Histogram::read(TEXT, "a");
        assert_eq!(histogram.percentile_us(50.0), 100.0);
        assert_eq!(histogram.percentile_us(75.0), 150.0);
        assert_eq!(histogram.since(&histogram).percentile_us(50.0), 0.0);
    }

    #[test]
    fn families_are_summed() {
        assert_eq!((sum(TEXT, "b_total"), value(TEXT, "c"), value(TEXT, "d")), (5.0, 7.0, 0.0));
    }
}
