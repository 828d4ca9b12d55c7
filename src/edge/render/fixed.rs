//! All that needs a reload, as one value with a mark: the mark stands in the files, a process says by which one it was
//! started, and so nobody needs to remember what was loaded.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use super::config::{self, DIRECT, HEADER, LUA};
use super::layout::Layout;
use super::lists::default_list;
use crate::edge::input::RouterConfig;
use crate::edge::names;

const DESCRIPTION: &str = "  description waystation-";

/// Tells one fixed part from another; the same in every folder.
pub type Mark = u64;

/// `haproxy.cfg`, the script, and the list with the certificate of hosts without one. It holds no text of a tenant.
#[derive(Clone, PartialEq, Eq)]
pub struct FixedPart {
    /// As if no host was passed through.
    config: String,
    lua: String,
    default_list: String,
    mark: Option<Mark>,
}

impl std::fmt::Debug for FixedPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FixedPart({:x?})", self.mark)
    }
}

impl FixedPart {
    /// Of that RouterConfig.
    pub fn of(config: &RouterConfig, layout: &Layout) -> Self {
        let text = config::text(config, layout);
        let (lua, default_list) = (LUA.to_owned(), default_list(layout));
        let mark = mark(&text, &lua, &default_list, layout);
        let config = text.replacen("global\n", &format!("global\n{DESCRIPTION}{mark:016x}\n"), 1);
        Self { config, lua, default_list, mark: Some(mark) }
    }

    /// As its files, in the order of [`Self::paths`], say; none if they are not as we left them. Those that were written
    /// before there was a mark have none.
    pub fn read(files: &[Option<String>], layout: &Layout) -> Option<Self> {
        let [Some(config), Some(lua), Some(default_list)] = files else { return None };
        if !config.starts_with(HEADER) {
            return None;
        }
        let config = config.replacen(&format!("{}  disabled\n", direct()), &direct(), 1);
        let said = config.lines().find_map(|line| line.strip_prefix(DESCRIPTION));
        let mark = match said {
            Some(said) => {
                let unmarked = config.replacen(&format!("{DESCRIPTION}{said}\n"), "", 1);
                let is = mark(&unmarked, lua, default_list, layout);
                Some(is).filter(|is| *said == format!("{is:016x}")).map(Some)?
            }
            None => None,
        };
        Some(Self { config, lua: lua.clone(), default_list: default_list.clone(), mark })
    }

    /// Where its files are.
    pub fn paths(layout: &Layout) -> [String; 3] {
        [layout.config(), layout.lua(), layout.default_list()]
    }

    /// `haproxy.cfg`; `front`: whether TLS is to be looked into from the start.
    pub fn config(&self, front: bool) -> String {
        match front {
            true => self.config.replacen(&direct(), &format!("{}  disabled\n", direct()), 1),
            false => self.config.clone(),
        }
    }

    /// The script.
    pub fn lua(&self) -> &str {
        &self.lua
    }

    /// The list with the certificate of hosts without one.
    pub fn default_list(&self) -> &str {
        &self.default_list
    }

    /// Where it listens.
    pub fn binds(&self) -> BTreeSet<SocketAddr> {
        let bind = |line: &str| line.trim_start().strip_prefix("bind ")?.split_whitespace().next()?.parse().ok();
        self.config.lines().filter_map(bind).collect()
    }

    /// What a process that was started from it says of itself; none: nothing.
    pub fn mark(&self) -> Option<Mark> {
        self.mark
    }
}

/// The mark in what a process says of itself (`description` of `show info`).
pub fn mark_in(description: &str) -> Option<Mark> {
    let digits = description.strip_prefix("waystation-").filter(|digits| digits.len() == 16)?;
    Mark::from_str_radix(digits, 16).ok()
}

fn mark(config: &str, lua: &str, default_list: &str, layout: &Layout) -> Mark {
    let parts = [config, lua, default_list].join("\0");
    names::digest(parts.replace(layout.dir(), "").as_bytes())
}

fn direct() -> String {
    format!("frontend {DIRECT} from _client-http\n")
}
