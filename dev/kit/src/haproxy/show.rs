//! What HAProxy says of itself.

use std::collections::BTreeMap;

/// Some of `show info`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// The worker's number.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// Everything.
    pub all: BTreeMap<String, String>,
}

impl Info {
    /// Reads an answer; `None`: this is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let pairs = text.lines().filter_map(|line| line.split_once(": "));
        let all: BTreeMap<String, String> = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let pid = all.get("Pid")?.parse().ok()?;
        Some(Self { pid, version: all.get("Version")?.clone(), all })
    }
}

/// A row of `show stat`: by column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row(BTreeMap<String, String>);

impl Row {
    /// Reads an answer.
    #[must_use]
    pub fn parse(text: &str) -> Vec<Self> {
        let mut lines = text.lines();
        let header: Vec<&str> = lines.next().unwrap_or_default().trim_start_matches("# ").split(',').collect();
        let row = |line: &str| {
            let fields = header.iter().zip(line.split(',')).filter(|(name, _)| !name.is_empty());
            Self(fields.map(|(name, value)| ((*name).to_owned(), value.to_owned())).collect())
        };
        lines.filter(|line| !line.is_empty()).map(row).collect()
    }

    /// A column; empty where there is none.
    #[must_use]
    pub fn get(&self, column: &str) -> &str {
        self.0.get(column).map_or("", String::as_str)
    }

    /// Proxy and server, as `backend/server`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.get("pxname"), self.get("svname"))
    }
}
