//! Figures: how they are summed up, printed for people, and written as JSON.

use std::time::Duration;

use serde_json::{Map, Value, json};

/// What is measured unless somebody else is named.
pub(super) const OURS: &str = "waystation";

/// The figures of one scenario at one size.
#[derive(Debug, Clone)]
pub(super) struct Figures {
    pub scenario: &'static str,
    pub size: usize,
    pub rounds: usize,
    subject: String,
    values: Vec<(&'static str, f64)>,
}

impl Figures {
    pub fn new(scenario: &'static str, size: usize, rounds: usize) -> Self {
        Self { scenario, size, rounds, subject: OURS.to_owned(), values: Vec::new() }
    }

    /// They are of somebody else.
    #[must_use]
    pub fn of(mut self, subject: &str) -> Self {
        subject.clone_into(&mut self.subject);
        self
    }

    /// Whether they are of this program.
    pub fn is_ours(&self) -> bool {
        self.subject == OURS
    }

    #[must_use]
    pub fn with(mut self, key: &'static str, value: f64) -> Self {
        self.values.push((key, value));
        self
    }

    /// Median, and the 99th percentile where there are enough samples to speak of one, else the maximum.
    #[must_use]
    pub fn with_latencies(self, keys: [&'static str; 3], samples: &Samples) -> Self {
        let [p50, p99, max] = keys;
        let figures = self.with(p50, samples.percentile_ms(50.0));
        let figures = if samples.0.len() >= 100 { figures.with(p99, samples.percentile_ms(99.0)) } else { figures };
        if max.is_empty() { figures } else { figures.with(max, samples.percentile_ms(100.0)) }
    }

    pub fn get(&self, key: &str) -> Option<f64> {
        self.values.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }

    /// One flat object.
    pub fn json(&self) -> Value {
        let now = k8s_openapi::jiff::Timestamp::now();
        let mut object = Map::new();
        object.insert("scenario".to_owned(), json!(self.scenario));
        object.insert("size".to_owned(), json!(self.size));
        object.insert("subject".to_owned(), json!(self.subject));
        object.insert("rounds".to_owned(), json!(self.rounds));
        object.insert("cores".to_owned(), json!(cores()));
        object.insert("date".to_owned(), json!(now.strftime("%Y-%m-%d").to_string()));
        for (key, value) in &self.values {
            object.insert((*key).to_owned(), json!((value * 1000.0).round() / 1000.0));
        }
        Value::Object(object)
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Times that were taken.
#[derive(Debug, Clone, Default)]
pub(super) struct Samples(Vec<Duration>);

impl Samples {
    pub fn push(&mut self, took: Duration) {
        self.0.push(took);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// By nearest rank; 0 without samples.
    pub fn percentile_ms(&self, percent: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).map_or(0.0, |took| took.as_secs_f64() * 1000.0)
    }
}

/// Prints one table for each scenario, sizes below each other.
pub(super) fn print(all: &[Figures], policy: bool) {
    println!(
        "\n{} cores; MutatingAdmissionPolicy for the finalizer: {}",
        cores(),
        if policy { "active" } else { "absent" }
    );
    let mut scenarios: Vec<&str> = Vec::new();
    for figures in all {
        if !scenarios.contains(&figures.scenario) {
            scenarios.push(figures.scenario);
        }
    }
    for scenario in scenarios {
        let rows: Vec<&Figures> = all.iter().filter(|figures| figures.scenario == scenario).collect();
        let mut keys: Vec<&str> = Vec::new();
        for (key, _) in rows.iter().flat_map(|figures| &figures.values) {
            if !keys.contains(key) {
                keys.push(key);
            }
        }
        println!("\n{scenario}");
        let width = keys.iter().map(|key| key.len()).max().unwrap_or_default().max(6);
        let line = |name: &str, cells: Vec<String>| {
            println!("  {name:width$}{}", cells.iter().map(|cell| format!("{cell:>12}")).collect::<String>());
        };
        if rows.iter().any(|figures| !figures.is_ours()) {
            line("subject", rows.iter().map(|figures| figures.subject.clone()).collect());
        }
        line("size", rows.iter().map(|figures| figures.size.to_string()).collect());
        line("rounds", rows.iter().map(|figures| figures.rounds.to_string()).collect());
        for key in keys {
            let cell = |figures: &&Figures| figures.get(key).map_or(String::new(), |value| format!("{value:.2}"));
            line(key, rows.iter().map(cell).collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let mut samples = Samples::default();
        for ms in (1..=100).rev() {
            samples.push(Duration::from_millis(ms));
        }
        assert_eq!(samples.percentile_ms(50.0), 50.0);
        assert_eq!(samples.percentile_ms(99.0), 99.0);
        assert_eq!(samples.percentile_ms(100.0), 100.0);
        assert_eq!(Samples::default().percentile_ms(50.0), 0.0);
    }

    #[test]
    fn few_samples_have_no_99th_percentile() {
        let mut samples = Samples::default();
        samples.push(Duration::from_millis(7));
        let figures = Figures::new("s", 1, 1).with_latencies(["p50_ms", "p99_ms", "max_ms"], &samples);
        let json = figures.json();
        assert_eq!(json["p50_ms"], 7.0);
        assert_eq!(json["max_ms"], 7.0);
        assert!(json.get("p99_ms").is_none());
    }
}
