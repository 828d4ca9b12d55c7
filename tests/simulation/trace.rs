//! What happened, in order: every request, every command, with its time. Equal hashes of two runs mean equal runs.

use std::hash::Hasher;

use ahash::AHasher;

/// A trace. Lines are kept only where somebody wants to read them.
pub struct Trace {
    hasher: AHasher,
    lines: Option<Vec<String>>,
    count: u64,
}

/// So many lines are a loop that never ends: a schedule has some thousands.
const ENDLESS: u64 = 20_000;

impl Trace {
    /// An empty one.
    pub fn new(keep: bool) -> Self {
        use std::hash::BuildHasher;
        let hasher = ahash::RandomState::with_seeds(1, 1, 2, 3).build_hasher();
        Self { hasher, lines: keep.then(Vec::new), count: 0 }
    }

    /// Adds a line.
    pub fn note(&mut self, at_us: u64, line: &str) {
        self.count += 1;
        if self.count > ENDLESS {
            let last: Vec<&String> = self.lines.iter().flatten().rev().take(30).collect();
            panic!("it goes on and on: {line}; before that, newest first: {last:#?}");
        }
        self.hasher.write_u64(at_us);
        self.hasher.write(line.as_bytes());
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>12.3} {line}", at_us as f64 / 1000.0));
        }
    }

    /// Stands for everything that happened.
    pub fn hash(&self) -> u64 {
        self.hasher.finish()
    }

    /// How many lines there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The lines, where they were kept.
    pub fn take_lines(&mut self) -> Vec<String> {
        self.lines.take().unwrap_or_default()
    }
}

/// Stands for a text.
pub fn sum(text: &str) -> u64 {
    ahash::RandomState::with_seeds(1, 1, 2, 3).hash_one(text)
}
