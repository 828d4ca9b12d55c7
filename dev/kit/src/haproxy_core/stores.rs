//! Certificates, CAs, and which host has which.

use super::Worker;

/// A list of certificates.
#[derive(Clone, Debug, Default)]
pub struct CrtList {
    /// In order.
    pub lines: Vec<CrtLine>,
    last: u64,
}

/// A line of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrtLine {
    /// By which it is deleted.
    pub number: u64,
    /// Path of the certificate.
    pub certificate: String,
    /// What stands in brackets, word by word.
    pub options: Vec<String>,
    /// Hosts.
    pub hosts: Vec<String>,
}

impl CrtLine {
    /// The path of the CA that certificates of clients must be of.
    pub fn authority(&self) -> Option<&str> {
        let at = self.options.iter().position(|word| word == "ca-file")?;
        self.options.get(at + 1).map(String::as_str)
    }
}

impl CrtList {
    pub(super) fn push(&mut self, line: CrtLine) {
        self.last += 1;
        self.lines.push(CrtLine { number: self.last, ..line });
    }
}

/// Reads a line of a list; it has no number yet.
pub(super) fn crt_line(text: &str) -> Option<CrtLine> {
    let (certificate, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    let (options, hosts) = match rest.trim_start().strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    Some(CrtLine { number: 0, certificate: certificate.to_owned(), options: words(options), hosts: words(hosts) })
}

/// Whether a text has a certificate, and whether it has its key.
fn is_pem(text: &str) -> (bool, bool) {
    (text.contains("-----BEGIN CERTIFICATE-----"), text.contains("PRIVATE KEY-----"))
}

impl Worker {
    pub(super) fn new_store(&mut self, kind: &str, path: &str) -> String {
        let ca = kind == "ca-file";
        let stores = if ca { &mut self.authorities } else { &mut self.certificates };
        if stores.contains_key(path) {
            return format!("{} '{path}' already exists!", if ca { "CA file" } else { "Certificate" });
        }
        stores.insert(path.to_owned(), String::new());
        match ca {
            true => format!("New CA file created '{path}'!"),
            false => format!("New empty certificate store '{path}'!"),
        }
    }

    pub(super) fn set_store(&mut self, kind: &str, path: &str, pem: &str) -> String {
        let ca = kind == "ca-file";
        let refused = self.refuses(pem) || !is_pem(pem).0;
        let there = if ca { self.authorities.contains_key(path) } else { self.certificates.contains_key(path) };
        let transaction = if ca { &mut self.authority_transaction } else { &mut self.certificate_transaction };
        if refused && ca {
            return format!("Invalid payload\nCan't update {path}!");
        }
        if refused {
            return format!(
                "unable to load certificate from file '{path}': no start line.\nCan't load the payload\nCan't update {path}!"
            );
        }
        let word = match transaction {
            Some((other, _)) if *other != path => {
                return format!(
                    "The ongoing transaction is about '{other}' but you are trying to set '{path}'\nCan't update {path}!"
                );
            }
            Some(_) => "updated",
            None if !there => {
                let what = if ca { "CA file" } else { "certificate" };
                return format!(
                    "Can't replace a {what} which is not referenced by the configuration!\nCan't update {path}!"
                );
            }
            None => "created",
        };
        *transaction = Some((path.to_owned(), pem.to_owned()));
        match ca {
            true => format!("transaction {word} for CA {path}!"),
            false => format!("Transaction {word} for certificate {path}!"),
        }
    }

    pub(super) fn commit_store(&mut self, kind: &str, path: &str) -> String {
        let ca = kind == "ca-file";
        let transaction = if ca { &mut self.authority_transaction } else { &mut self.certificate_transaction };
        match transaction.take() {
            None => format!("No ongoing transaction! !\nCan't commit {path}!"),
            Some((other, pem)) if other != path => {
                let told = format!(
                    "The ongoing transaction is about '{other}' but you are trying to set '{path}'\nCan't commit {path}!"
                );
                *transaction = Some((other, pem));
                told
            }
            Some((_, pem)) => {
                let stores = if ca { &mut self.authorities } else { &mut self.certificates };
                stores.insert(path.to_owned(), pem);
                // A dot stands for each place where it is in use.
                format!("Committing {path}\nSuccess!")
            }
        }
    }

    pub(super) fn abort_store(&mut self, kind: &str, path: &str) -> String {
        let transaction =
            if kind == "ca-file" { &mut self.authority_transaction } else { &mut self.certificate_transaction };
        match transaction {
            Some((other, _)) if other == path => {
                *transaction = None;
                format!("Transaction aborted for certificate '{path}'!")
            }
            Some((other, _)) => {
                format!(
                    "The ongoing transaction is about '{other}' but you are trying to abort a transaction for '{path}'"
                )
            }
            None => "No ongoing transaction!".to_owned(),
        }
    }

    pub(super) fn del_store(&mut self, kind: &str, path: &str) -> String {
        let ca = kind == "ca-file";
        let what = if ca { "CA file" } else { "certificate" };
        let refers = |line: &CrtLine| match ca {
            true => line.authority() == Some(path),
            false => line.certificate == path,
        };
        let listed = self.lists.values().flat_map(|list| &list.lines).any(refers);
        let mut servers = self.backends.values().flat_map(|backend| backend.servers.values());
        let used = listed || servers.any(|server| server.stores.iter().any(|store| store == path));
        let stores = if ca { &mut self.authorities } else { &mut self.certificates };
        match (stores.contains_key(path), used) {
            (false, _) => format!("Can't remove the {what}: {what} '{path}' doesn't exist!"),
            (true, true) => format!("Can't remove the {what}: {what} '{path}' in use, can't be deleted!"),
            (true, false) => {
                stores.remove(path);
                format!("{} '{path}' deleted!", if ca { "CA file" } else { "Certificate" })
            }
        }
    }

    pub(super) fn add_crt_list(&mut self, list: &str, payload: &str) -> String {
        let Some(line) = crt_line(payload.trim_end()) else { return "Can't edit the crt-list: ".to_owned() };
        let certificate = line.certificate.clone();
        if let Err(why) = self.check_line(&line) {
            // Found out when it is already on its way in.
            let late = why.starts_with("unable to load");
            return if late {
                format!("Inserting certificate '{certificate}' in crt-list '{list}'.\n{why}\nFailed!")
            } else {
                why
            };
        }
        let Some(found) = self.lists.get_mut(list) else {
            return format!("Can't edit the crt-list: crt-list '{list}' does not exist!");
        };
        found.push(line);
        format!("Inserting certificate '{certificate}' in crt-list '{list}'.\nSuccess!")
    }

    /// Whether all that a line refers to is there.
    pub(super) fn check_line(&self, line: &CrtLine) -> Result<(), String> {
        let path = &line.certificate;
        match self.certificates.get(path) {
            None => return Err(format!("Can't edit the crt-list: certificate '{path}' does not exist!")),
            Some(pem) if pem.is_empty() => {
                return Err(format!("Can't edit the crt-list: certificate '{path}' is empty!"));
            }
            Some(pem) if !is_pem(pem).1 => {
                return Err(format!(
                    "unable to load SSL private key into SSL Context '{path}': passed a null parameter."
                ));
            }
            Some(_) => {}
        }
        match line.authority() {
            Some(authority) if self.authorities.get(authority).is_none_or(String::is_empty) => {
                Err(format!("Can't edit the crt-list: 'ca-file' : unable to load {authority}"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn del_crt_list(&mut self, list: &str, entry: &str) -> String {
        let Some(found) = self.lists.get_mut(list) else {
            return format!("Can't delete the entry: crt-list '{list}' does not exist!");
        };
        let (path, number) = match entry.rsplit_once(':').map(|(path, number)| (path, number.parse::<u64>())) {
            Some((path, Ok(number))) => (path, Some(number)),
            _ => (entry, None),
        };
        if !self.certificates.contains_key(path) {
            return format!("Can't delete the entry: certificate '{path}' does not exist!");
        }
        let of_path: Vec<u64> = found.lines.iter().filter(|l| l.certificate == path).map(|l| l.number).collect();
        let numbers = || of_path.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let goes = match (number, &of_path[..]) {
            (Some(number), _) if of_path.contains(&number) => number,
            (None, [only]) => *only,
            (_, []) => {
                return format!("Can't delete the entry: certificate '{path}' can't be found in crt-list '{list}'!");
            }
            (Some(_), _) => {
                return format!(
                    "Can't delete the entry: found a certificate '{path}' but the line number is incorrect, please specify a correct line number preceded by colons ({})!",
                    numbers()
                );
            }
            (None, _) => {
                return format!(
                    "Can't delete the entry: found the certificate '{path}' in several entries, please specify a line number preceded by colons ({})!",
                    numbers()
                );
            }
        };
        found.lines.retain(|line| line.number != goes);
        format!("Entry '{path}' deleted in crtlist '{list}'!")
    }
}
