//! Commands, with every word of others made harmless.

use std::fmt;

/// What ends a payload. PEM and keys of maps have no line like it.
const END: &str = "%WAYSTATION%";

/// Bytes of entries in one payload: far below what the process takes, so that no one command holds it up.
pub const MAX_PAYLOAD: usize = 100_000;

/// A command as it goes to the socket, and how its answer is read.
#[derive(Clone, PartialEq, Eq)]
pub struct Command {
    /// With its payload and its final newline.
    pub text: String,
    /// How its answer is read.
    pub kind: Kind,
}

/// What a command does, as far as its answers differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// `add backend`.
    AddBackend,
    /// `publish backend`, `unpublish backend`.
    Publish,
    /// `del backend`.
    DelBackend,
    /// `add server`.
    AddServer,
    /// `set server`, `set maxconn server`, `enable health`: silent when they succeed.
    SetServer,
    /// `del server`.
    DelServer,
    /// `new ssl …`.
    NewStore,
    /// `set ssl …`.
    SetStore,
    /// `commit ssl …`.
    CommitStore,
    /// `abort ssl …`: whatever it answers.
    AbortStore,
    /// `del ssl cert`, `del ssl ca-file`.
    DelStore,
    /// `add ssl crt-list`.
    AddCrtList,
    /// `del ssl crt-list`.
    DelCrtList,
    /// `add map`, `set map`.
    SetMap,
    /// `del map`.
    DelMap,
    /// `prepare map`.
    PrepareMap,
    /// `commit map`.
    CommitMap,
    /// `enable frontend`, `disable frontend`.
    SwitchFrontend,
    /// `show …`: any answer but a complaint.
    Show,
}

impl Kind {
    /// A bounded word for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AddBackend => "add-backend",
            Self::Publish => "publish-backend",
            Self::DelBackend => "del-backend",
            Self::AddServer => "add-server",
            Self::SetServer => "set-server",
            Self::DelServer => "del-server",
            Self::NewStore => "new-store",
            Self::SetStore => "set-store",
            Self::CommitStore => "commit-store",
            Self::AbortStore => "abort-store",
            Self::DelStore => "del-store",
            Self::AddCrtList => "add-crt-list",
            Self::DelCrtList => "del-crt-list",
            Self::SetMap => "set-map",
            Self::DelMap => "del-map",
            Self::PrepareMap => "prepare-map",
            Self::CommitMap => "commit-map",
            Self::SwitchFrontend => "switch-frontend",
            Self::Show => "show",
        }
    }
}

impl fmt::Debug for Command {
    /// Its first line: payloads may be keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.text.lines().next().unwrap_or_default();
        write!(f, "{line}")
    }
}

impl Command {
    /// A command of words that need no escape, which the caller knows.
    pub fn plain(kind: Kind, line: impl Into<String>) -> Self {
        let mut text = line.into();
        text.push('\n');
        Self { text, kind }
    }

    /// A command with a payload of whole lines.
    pub fn with_payload(kind: Kind, line: &str, payload: &str) -> Self {
        let newline = if payload.ends_with('\n') { "" } else { "\n" };
        Self { text: format!("{line} <<{END}\n{payload}{newline}{END}\n"), kind }
    }
}

/// A word of others as one word of a command: what separates or ends words and commands is escaped. Control characters,
/// which cannot be, never come from the model.
pub fn word(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            ' ' | '\\' | ';' | '<' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_one_word() {
        assert_eq!(word("a b;c\\d<<e"), "a\\ b\\;c\\\\d\\<\\<e");
        assert_eq!(word("a\nshutdown sessions\r"), "ashutdown\\ sessions");
    }

    #[test]
    fn payloads_are_not_printed() {
        let command = Command::with_payload(Kind::SetStore, "set ssl cert x", "SECRET");
        assert_eq!(command.text, "set ssl cert x <<%WAYSTATION%\nSECRET\n%WAYSTATION%\n");
        assert!(!format!("{command:?}").contains("SECRET"));
    }
}
