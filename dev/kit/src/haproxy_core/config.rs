//! What a process is started from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::stores::crt_line;
use super::{Admin, Backend, CrtList, Files, Map, Worker};

/// What the fixed part of a configuration says, as far as it counts here.
#[derive(Debug, Default)]
struct Config {
    description: String,
    classes: BTreeSet<String>,
    /// Whether each is enabled.
    frontends: BTreeMap<String, bool>,
    /// With their class and servers.
    backends: Vec<(String, String, Vec<String>)>,
    maps: BTreeSet<String>,
    lists: BTreeSet<String>,
    /// Other files that must be there.
    files: BTreeSet<String>,
}

/// Reads files, and remembers what the same text said before.
#[derive(Debug, Default)]
pub struct Parser {
    known: Option<(Arc<str>, Arc<Config>)>,
}

impl Parser {
    /// Starts a process from `DIR/haproxy.cfg` and `DIR/backends/*.cfg`.
    ///
    /// # Errors
    /// Why it does not start, in words like HAProxy's.
    pub fn start(
        &mut self,
        files: &Files,
        dir: &str,
        (pid, started_s): (u32, u64),
        refuses: &BTreeSet<String>,
    ) -> Result<Worker, String> {
        let path = format!("{dir}/haproxy.cfg");
        let text = files.get(&path).ok_or_else(|| format!("[ALERT] : Could not open configuration file {path}"))?;
        let config = self.config(text);
        let mut worker = Worker {
            pid,
            started_s,
            description: config.description.clone(),
            classes: config.classes.clone(),
            frontends: config.frontends.iter().map(|(name, on)| (name.clone(), on.then_some(true))).collect(),
            refuses: refuses.clone(),
            ..Worker::default()
        };
        let fails = |what: &str| Err(format!("[ALERT] : config : {what}"));
        if worker.refuses(text) {
            return fails("parsing [haproxy.cfg:7] : integer expected.");
        }
        if let Some(path) = config.files.iter().find(|path| !files.contains_key(*path)) {
            return fails(&format!("cannot open {path}"));
        }
        for path in &config.maps {
            let Some(text) = files.get(path) else { return fails(&format!("failed to open pattern file <{path}>")) };
            if worker.refuses(text) {
                return fails(&format!("invalid pattern in {path}"));
            }
            worker.maps.insert(path.clone(), Map::of(text));
        }
        for path in &config.lists {
            let Some(text) = files.get(path) else { return fails(&format!("unable to load crt-list {path}")) };
            worker.load_list(path, text, files)?;
        }
        for (name, class, servers) in &config.backends {
            worker.load_backend(name, class, servers.iter().map(String::as_str), true, files)?;
        }
        let parts = format!("{dir}/backends/");
        if !files.range(parts.clone()..).next().is_some_and(|(path, _)| path.starts_with(&parts)) {
            return fails(&format!("{parts} : no such file or directory"));
        }
        for (path, text) in files.range(parts.clone()..).take_while(|(path, _)| path.starts_with(&parts)) {
            // Of a folder what is called so is read.
            if !path.ends_with(".cfg") {
                continue;
            }
            for (name, class, servers) in sections(text) {
                worker.load_backend(name, class, servers.into_iter(), false, files)?;
            }
        }
        Ok(worker)
    }

    fn config(&mut self, text: &Arc<str>) -> Arc<Config> {
        match &self.known {
            Some((known, config)) if known == text => Arc::clone(config),
            _ => {
                let config = Arc::new(read(text));
                self.known = Some((Arc::clone(text), Arc::clone(&config)));
                config
            }
        }
    }
}

impl Worker {
    fn load_list(&mut self, path: &str, text: &str, files: &Files) -> Result<(), String> {
        let mut list = CrtList::default();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let line = crt_line(line).ok_or_else(|| format!("[ALERT] : parsing [{path}] : {line}"))?;
            self.load_store(&line.certificate, files, false)?;
            if let Some(authority) = line.authority().map(str::to_owned) {
                self.load_store(&authority, files, true)?;
            }
            self.check_line(&line).map_err(|why| format!("[ALERT] : {path}: {why}"))?;
            list.push(line);
        }
        self.lists.insert(path.to_owned(), list);
        Ok(())
    }

    fn load_store(&mut self, path: &str, files: &Files, ca: bool) -> Result<(), String> {
        let text =
            files.get(path).ok_or_else(|| format!("[ALERT] : unable to stat SSL certificate from file '{path}'"))?;
        if self.refuses(text) {
            return Err(format!("[ALERT] : unable to load certificate from file '{path}'"));
        }
        let stores = if ca { &mut self.authorities } else { &mut self.certificates };
        stores.insert(path.to_owned(), text.to_string());
        Ok(())
    }

    fn load_backend<'a>(
        &mut self,
        name: &str,
        class: &str,
        servers: impl Iterator<Item = &'a str>,
        fixed: bool,
        files: &Files,
    ) -> Result<(), String> {
        if !self.classes.contains(class) {
            return Err(format!("[ALERT] : backend {name}: unknown defaults section '{class}'"));
        }
        let mut backend = Backend { class: class.to_owned(), published: true, fixed, ..Backend::default() };
        for line in servers {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, address, keywords @ ..] = &words[..] else { return Err(format!("[ALERT] : server {line}")) };
            for (word, path) in keywords.iter().zip(keywords.iter().skip(1)) {
                match *word {
                    "ca-file" => self.load_store(path, files, true)?,
                    "crt" => self.load_store(path, files, false)?,
                    _ => {}
                }
            }
            let mut server =
                self.read_server(address, keywords).map_err(|why| format!("[ALERT] : server {name}: {why}"))?;
            server.admin = Admin::Ready;
            if backend.servers.insert((*name).to_owned(), server).is_some() {
                return Err(format!("[ALERT] : server {name} is there twice"));
            }
        }
        match self.backends.insert(name.to_owned(), backend) {
            Some(_) => Err(format!("[ALERT] : backend {name} is there twice")),
            None => Ok(()),
        }
    }
}

/// Backends of a file: name, class, lines of servers.
fn sections(text: &str) -> Vec<(&str, &str, Vec<&str>)> {
    let mut out: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        if let Some((name, class)) = line.strip_prefix("backend ").and_then(|rest| rest.split_once(" from ")) {
            out.push((name, class, Vec::new()));
        } else if let (Some(server), Some(last)) = (line.strip_prefix("server "), out.last_mut()) {
            last.2.push(server);
        }
    }
    out
}

fn read(text: &str) -> Config {
    let mut out = Config::default();
    let mut frontend: Option<String> = None;
    for line in text.lines() {
        let inside = line.starts_with(' ');
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["defaults", name] if !inside => {
                out.classes.insert(name.to_owned());
            }
            ["frontend", name, ..] if !inside => {
                frontend = Some(name.to_owned());
                out.frontends.insert(name.to_owned(), true);
                continue;
            }
            ["disabled"] => {
                if let Some(name) = &frontend {
                    out.frontends.insert(name.clone(), false);
                }
            }
            ["description", ref rest @ ..] => out.description = rest.join(" "),
            ["lua-load-per-thread", path, ..] => {
                out.files.insert(path.to_owned());
            }
            ["bind", ref rest @ ..] => {
                let lists = rest.windows(2).filter(|pair| pair[0] == "crt-list");
                out.lists.extend(lists.map(|pair| pair[1].to_owned()));
            }
            _ => {}
        }
        if !inside {
            frontend = None;
        }
        for (at, _) in line.match_indices("map") {
            let rest = line[at + 3..].trim_start_matches(|c: char| c.is_ascii_lowercase() || c == '_');
            if let Some(path) = rest.strip_prefix("(/") {
                let end = path.find([')', ',']).unwrap_or(path.len());
                out.maps.insert(format!("/{}", &path[..end]));
            }
        }
    }
    for (name, class, servers) in sections(text) {
        out.backends.push((name.to_owned(), class.to_owned(), servers.into_iter().map(str::to_owned).collect()));
    }
    out
}
