//! What counts of what several levels say.

use std::sync::Arc;

use crate::edge::options::{Opt, Options, Scope, TABLE, Value};

/// Who may say something about a route or a backend, the most particular first.
#[derive(Clone, Debug)]
pub(super) struct Levels {
    levels: Vec<Arc<Options>>,
}

impl Levels {
    /// Of a route: the Service that it leads to, the object that claims it, the RouterConfig.
    pub fn new(levels: Vec<Arc<Options>>) -> Self {
        Self { levels }
    }

    /// What counts; where nothing is said, nothing.
    pub fn get(&self, opt: Opt) -> Option<&Value> {
        self.levels.iter().find_map(|level| level.get(opt))
    }

    /// All that is said, the most particular first.
    pub fn all(&self, opt: Opt) -> impl Iterator<Item = &Value> {
        self.levels.iter().filter_map(move |level| level.get(opt))
    }

    /// What all but the last, the RouterConfig, say.
    pub fn tenants(&self, opt: Opt) -> impl Iterator<Item = &Value> {
        let tenants = self.levels.len().saturating_sub(1);
        self.levels[..tenants].iter().filter_map(move |level| level.get(opt))
    }

    /// Whether a protection of that scope cannot be read. On routes each level that may add to it counts; of those who
    /// say how a Service is reached the first that says anything, so that a newer Ingress cannot stop an older one's.
    pub fn fails(&self, scope: Scope) -> bool {
        if self.levels.iter().all(|level| level.bad.is_empty()) {
            return false;
        }
        let tenants = self.levels.len().saturating_sub(1);
        if scope != Scope::Service && self.levels[..tenants].iter().any(|level| level.fails(scope)) {
            return true;
        }
        TABLE.iter().filter(|row| row.protects && row.scope == scope).any(|row| self.first_is_bad(row.opt))
    }

    fn first_is_bad(&self, opt: Opt) -> bool {
        for level in &self.levels {
            if level.bad.iter().any(|bad| bad.opt == opt) {
                return true;
            }
            if level.get(opt).is_some() {
                return false;
            }
        }
        false
    }

    /// A switch.
    pub fn is(&self, opt: Opt) -> bool {
        self.get(opt) == Some(&Value::Bool(true))
    }

    /// A word.
    pub fn word(&self, opt: Opt) -> Option<&'static str> {
        match self.get(opt)? {
            Value::Word(word) => Some(word),
            _ => None,
        }
    }

    /// A text.
    pub fn text(&self, opt: Opt) -> Option<&Arc<str>> {
        match self.get(opt)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A number.
    pub fn int(&self, opt: Opt) -> Option<u64> {
        match self.get(opt)? {
            Value::Int(number) => Some(*number),
            _ => None,
        }
    }
}
