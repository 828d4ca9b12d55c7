//! What an answer means. There is no status: only words, and silence. What is not known to be success is none.

use std::sync::Arc;

use super::command::Kind;

/// The meaning of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// It was so before.
    Already,
    /// There is no such thing.
    Missing,
    /// Not yet: something still uses it. To be tried again.
    Busy,
    /// The version of a map that was prepared.
    Version(u64),
    /// Neither: in its own words.
    Refused(Arc<str>),
}

impl Answer {
    /// Reads what was answered to a command of that kind, without the empty line that ends it.
    pub fn read(kind: Kind, text: &str) -> Self {
        // Words of earlier actions may stand before: where success has a last line, that counts.
        let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
        let last = lines().next_back().unwrap_or_default();
        let has = |word: &str| lines().any(|line| line.contains(word));
        let refused = || Self::Refused(shortened(text));
        let silent = if lines().next().is_none() { Self::Done } else { refused() };
        match kind {
            Kind::AddBackend => match last {
                "New backend registered." => Self::Done,
                // The balance of no class is of that kind: a warning would mean another configuration.
                _ if has("name is already used by other proxy") => Self::Already,
                _ => refused(),
            },
            Kind::Publish => match last {
                "Backend published." | "Backend unpublished." => Self::Done,
                "No such backend." => Self::Missing,
                _ => refused(),
            },
            Kind::DelBackend => match last {
                "Backend deleted." => Self::Done,
                "No such backend." => Self::Missing,
                "Only a backend without server can be deleted." => Self::Busy,
                _ if has("still") || has("attached") => Self::Busy,
                _ => refused(),
            },
            Kind::AddServer => match last {
                "New server registered." => Self::Done,
                "Already exists a server with the same name in backend." => Self::Already,
                "No such backend." => Self::Missing,
                _ => refused(),
            },
            Kind::SetServer => match last {
                "No such server." | "No such backend." => Self::Missing,
                _ => silent,
            },
            Kind::DelServer => match last {
                "Server deleted." => Self::Done,
                "No such server." | "No such backend." => Self::Missing,
                _ if has("still has connections") => Self::Busy,
                _ => refused(),
            },
            Kind::NewStore if has("New empty certificate store") || has("New CA file created") => Self::Done,
            Kind::NewStore if has("already exists") => Self::Already,
            Kind::SetStore if has("ransaction created for") || has("ransaction updated for") => Self::Done,
            Kind::CommitStore | Kind::AddCrtList if last == "Success!" => Self::Done,
            Kind::NewStore | Kind::SetStore | Kind::CommitStore | Kind::AddCrtList => refused(),
            Kind::AbortStore => Self::Done,
            Kind::DelStore | Kind::DelCrtList if has("in use") => Self::Busy,
            Kind::DelStore | Kind::DelCrtList if has("doesn't exist") || has("does not exist") => Self::Missing,
            Kind::DelCrtList if has("can't be found in crt-list") => Self::Missing,
            Kind::DelStore | Kind::DelCrtList if has("deleted") => Self::Done,
            Kind::DelStore | Kind::DelCrtList => refused(),
            Kind::SetMap | Kind::DelMap => match last {
                "entry not found." | "Key not found." => Self::Missing,
                _ => silent,
            },
            Kind::PrepareMap => {
                let version = last.strip_prefix("New version created: ").and_then(|v| v.parse().ok());
                version.map_or_else(refused, Self::Version)
            }
            Kind::CommitMap => silent,
            Kind::SwitchFrontend if has("already enabled") || has("already disabled") => Self::Already,
            // It was left out when the process started: as good as disabled, and not to be enabled.
            Kind::SwitchFrontend if has("previously shut down") || has("No such frontend") => Self::Missing,
            Kind::SwitchFrontend => silent,
            Kind::Show if has("Unknown command") || has("Unknown map identifier") => refused(),
            Kind::Show => Self::Done,
        }
    }

    /// Whether what was asked for holds now.
    pub fn holds(&self, kind: Kind) -> bool {
        match self {
            Self::Done | Self::Version(_) => true,
            Self::Already => matches!(kind, Kind::AddBackend | Kind::AddServer | Kind::NewStore | Kind::SwitchFrontend),
            Self::Missing => {
                matches!(
                    kind,
                    Kind::DelBackend
                        | Kind::DelServer
                        | Kind::DelStore
                        | Kind::DelCrtList
                        | Kind::DelMap
                        | Kind::SwitchFrontend
                )
            }
            Self::Busy | Self::Refused(_) => false,
        }
    }
}

/// Words for people: short, in one line, without what could be a key.
fn shortened(text: &str) -> Arc<str> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("-----"));
    let line = lines.map(|l| l.replace(|c: char| c.is_control(), "")).collect::<Vec<_>>().join(" ");
    line.chars().take(300).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_as_the_process_gives_them() {
        use Answer::*;
        let refused = |text: &str| Refused(text.into());
        let used = "Error during backend creation : name is already used by other proxy 'backend n:s:80'.";
        let inconsistent =
            "inconsistencies between private key and certificate loaded '/c/z.pem'.\nCan't commit /c/z.pem!";
        let several = "Can't delete the entry: found the certificate '/c/z.pem' in several entries, please specify a line number preceded by colons (3, 4)!";
        let elsewhere = "Can't delete the entry: certificate '/c/z.pem' can't be found in crt-list '/c.list'!";
        let cases: &[(Kind, &str, Answer)] = &[
            (Kind::AddBackend, "New backend registered.", Done),
            (Kind::AddBackend, used, Already),
            (Kind::AddBackend, "Cannot find default proxy 'nope'.", refused("Cannot find default proxy 'nope'.")),
            (Kind::Publish, "Backend published.", Done),
            (Kind::Publish, "No such backend.", Missing),
            (Kind::AddServer, "New server registered.", Done),
            (Kind::AddServer, "[WARNING] something before\nNew server registered.", Done),
            (Kind::AddServer, "Already exists a server with the same name in backend.", Already),
            (Kind::AddServer, "", refused("")),
            (Kind::SetServer, "", Done),
            (Kind::SetServer, "No such server.", Missing),
            (Kind::SetServer, "Require a weight.", refused("Require a weight.")),
            (Kind::DelServer, "Server deleted.", Done),
            (Kind::DelServer, "Server still has connections attached to it, cannot remove it.", Busy),
            (
                Kind::DelServer,
                "Only servers in maintenance mode can be deleted.",
                refused("Only servers in maintenance mode can be deleted."),
            ),
            (Kind::DelBackend, "Server deleted.\nBackend deleted.", Done),
            (Kind::DelBackend, "Only a backend without server can be deleted.", Busy),
            (
                Kind::DelBackend,
                "Backend must be unpublished prior to its deletion.",
                refused("Backend must be unpublished prior to its deletion."),
            ),
            (Kind::NewStore, "New empty certificate store '/c/z.pem'!", Done),
            (Kind::NewStore, "CA file '/c/z.pem' already exists!", Already),
            (Kind::SetStore, "transaction created for CA /c/z.pem!", Done),
            (Kind::SetStore, "Transaction created for certificate /c/z.pem!", Done),
            (
                Kind::SetStore,
                "Invalid payload\nCan't update /c/z.pem!",
                refused("Invalid payload Can't update /c/z.pem!"),
            ),
            (Kind::CommitStore, "Committing /c/z.pem\nSuccess!", Done),
            (Kind::CommitStore, inconsistent, refused(&inconsistent.replace('\n', " "))),
            (Kind::DelStore, "Can't remove the certificate: certificate '/c/z.pem' in use, can't be deleted!", Busy),
            (Kind::DelStore, "Certificate '/c/z.pem' deleted!", Done),
            (Kind::AddCrtList, "Inserting certificate '/c/z.pem' in crt-list '/c.list'.\nSuccess!", Done),
            (
                Kind::AddCrtList,
                "Can't edit the crt-list: certificate '/c/n.pem' does not exist!",
                refused("Can't edit the crt-list: certificate '/c/n.pem' does not exist!"),
            ),
            (Kind::DelCrtList, several, refused(several)),
            (Kind::DelCrtList, elsewhere, Missing),
            (Kind::SetMap, "", Done),
            (Kind::SetMap, "entry not found.", Missing),
            (Kind::SetMap, "Missing value for key 'k2'.", refused("Missing value for key 'k2'.")),
            (Kind::DelMap, "Key not found.", Missing),
            (Kind::PrepareMap, "New version created: 12", Version(12)),
            (Kind::PrepareMap, "", refused("")),
            (Kind::CommitMap, "Version number out of range.", refused("Version number out of range.")),
            (Kind::SwitchFrontend, "", Done),
            (Kind::SwitchFrontend, "All sockets are already enabled.", Already),
            (Kind::SwitchFrontend, "Frontend was previously shut down, cannot disable.", Missing),
            (Kind::SwitchFrontend, "Frontend was previously shut down, cannot enable.", Missing),
            (Kind::Show, "# name\nx", Done),
            (
                Kind::Show,
                "Unknown map identifier. Please use #<id> or <file>.",
                refused("Unknown map identifier. Please use #<id> or <file>."),
            ),
        ];
        for (kind, text, answer) in cases {
            assert_eq!(Answer::read(*kind, text), *answer, "{kind:?}: {text}");
        }
    }

    #[test]
    fn no_key_is_repeated_to_people() {
        let text = "Can't load -----\n-----BEGIN PRIVATE KEY-----\nbroken";
        let Answer::Refused(words) = Answer::read(Kind::SetStore, text) else { panic!("not refused") };
        assert!(!words.contains("PRIVATE"));
    }
}
