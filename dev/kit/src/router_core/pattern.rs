//! Address patterns as routers compare and match them: tokens between `.` and `/`, which are one separator; `*` is any
//! one token, `#` any number of them.

use std::collections::HashMap;

/// What separates tokens.
const SEPARATORS: [char; 2] = ['.', '/'];

/// What is kept of a pattern: separators at its ends are taken off. `None` when nothing else is left.
pub(super) fn trimmed(pattern: &str) -> Option<&str> {
    let trimmed = pattern.trim_matches(SEPARATORS);
    (!trimmed.is_empty()).then_some(trimmed)
}

/// Tokens of a pattern in the one form in which two of the same meaning are equal.
fn tokens(pattern: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let (mut any, mut rest) = (0, false);
    for token in pattern.split(SEPARATORS).filter(|token| !token.is_empty()) {
        match token {
            "*" => any += 1,
            "#" => rest = true,
            _ => {
                flush(&mut tokens, &mut any, &mut rest);
                tokens.push(token);
            }
        }
    }
    flush(&mut tokens, &mut any, &mut rest);
    tokens
}

/// `#.*.#` and `*.#` mean the same.
fn flush(tokens: &mut Vec<&str>, any: &mut usize, rest: &mut bool) {
    tokens.extend(std::iter::repeat_n("*", *any));
    if *rest {
        tokens.push("#");
    }
    (*any, *rest) = (0, false);
}

fn key(tokens: &[&str]) -> String {
    tokens.join("/")
}

fn matches(pattern: &[&str], address: &[&str]) -> bool {
    match pattern.split_first() {
        None => address.is_empty(),
        Some((&"#", rest)) => (0..=address.len()).any(|skip| matches(rest, &address[skip..])),
        Some((&token, rest)) => address
            .split_first()
            .is_some_and(|(first, others)| (token == "*" || token == *first) && matches(rest, others)),
    }
}

/// A literal token goes before `*`, and that before `#`.
fn rank(pattern: &str) -> Vec<u8> {
    pattern
        .split('/')
        .map(|token| match token {
            "*" => 1,
            "#" => 2,
            _ => 0,
        })
        .collect()
}

/// Patterns, each with the identity of the entity that has it.
#[derive(Debug, Clone, Default)]
pub(super) struct PatternTree {
    exact: HashMap<String, u64>,
    wild: HashMap<String, u64>,
}

impl PatternTree {
    /// Adds a pattern; false when one of the same meaning is there.
    pub(super) fn add(&mut self, pattern: &str, identity: u64) -> bool {
        let tokens = tokens(pattern);
        let wild = tokens.iter().any(|token| matches!(*token, "*" | "#"));
        let map = if wild { &mut self.wild } else { &mut self.exact };
        let key = key(&tokens);
        if map.contains_key(&key) {
            return false;
        }
        map.insert(key, identity);
        true
    }

    /// Takes a pattern away, if it is this entity's.
    pub(super) fn remove(&mut self, pattern: &str, identity: u64) {
        let key = key(&tokens(pattern));
        for map in [&mut self.exact, &mut self.wild] {
            if map.get(&key) == Some(&identity) {
                map.remove(&key);
            }
        }
    }

    /// The entity whose pattern fits an address best.
    pub(super) fn find(&self, address: &str) -> Option<u64> {
        let address: Vec<&str> = address.split(SEPARATORS).filter(|token| !token.is_empty()).collect();
        if let Some(identity) = self.exact.get(&key(&address)) {
            return Some(*identity);
        }
        self.wild
            .iter()
            .filter(|(pattern, _)| matches(&pattern.split('/').collect::<Vec<_>>(), &address))
            .min_by_key(|(pattern, _)| (rank(pattern), *pattern))
            .map(|(_, identity)| *identity)
    }
}
