//! A real qdrouterd: its configuration file and its process. It never has an `http` listener.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::net::TcpStream;

use super::RouterOptions;
use super::standin::mechanisms;
use crate::artemis::{Login, TlsMaterial};
use crate::pki::Leaf;
use crate::process::{Port, Process, WorkFolder, eventually};

/// A policy by which clients may do what they like.
const EVERYTHING: &str = r#"[["vhost", {"hostname": "$default", "allowUnknownUser": true, "groups": {"$default": {
    "remoteHosts": "*", "sources": "*", "targets": "*", "allowDynamicSource": true, "allowAnonymousSender": true}}}]]"#;
const START: Duration = Duration::from_secs(30);

/// A running router; ends when dropped.
#[derive(Debug)]
pub(super) struct Real {
    binary: PathBuf,
    process: Option<Process>,
    address: IpAddr,
    port: Port,
    folder: WorkFolder,
}

impl Real {
    pub(super) async fn start(
        binary: &OsStr,
        options: &RouterOptions,
        tls: Option<(&TlsMaterial, &Leaf)>,
    ) -> Result<Self> {
        let folder = WorkFolder::new("router")?;
        let port = Port::claim()?;
        write(folder.path(), options, port.number(), tls)?;
        let mut router = Self { binary: binary.into(), process: None, address: options.address, port, folder };
        router.start_again().await?;
        Ok(router)
    }

    pub(super) fn port(&self) -> u16 {
        self.port.number()
    }

    pub(super) fn stop(&mut self) {
        self.process = None;
    }

    pub(super) async fn start_again(&mut self) -> Result<()> {
        ensure!(self.process.is_none(), "the router runs already");
        let arguments = ["-c".into(), self.folder.join("router.conf").into_os_string()];
        let process = Process::spawn("qdrouterd", &self.binary, &arguments, &[], &self.folder.join("router.log"))?;
        let process = self.process.insert(process);
        let at = (self.address, self.port.number());
        // It listens before its agent is there: a management request would be lost until then.
        let listens = eventually(START, "the router listens", || async move { Ok(TcpStream::connect(at).await?) });
        if let Err(error) = listens.await {
            return Err(error.context(process.log_tail(10)));
        }
        process.ensure_running()
    }

    pub(super) fn signal(&mut self, signal: &str) -> Result<()> {
        self.process.as_mut().context("the router does not run")?.signal(signal)
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("router.log")).unwrap_or_default()
    }
}

fn section(text: &mut String, name: &str, attributes: &[(&str, &str)]) {
    text.push_str(name);
    text.push_str(" {\n");
    for (key, value) in attributes {
        // A string cannot fail to be written to.
        let _ = writeln!(text, "    {key}: {value}");
    }
    text.push_str("}\n");
}

fn write(folder: &Path, options: &RouterOptions, port: u16, tls: Option<(&TlsMaterial, &Leaf)>) -> Result<()> {
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let mut text = String::new();
    let sasl = path("sasl");
    std::fs::create_dir(&sasl)?;
    section(
        &mut text,
        "router",
        &[("mode", "interior"), ("id", &options.id), ("saslConfigDir", &sasl), ("workerThreads", "2")],
    );
    let address = options.address.to_string();
    let (port, mechanisms) = (port.to_string(), mechanisms(&options.login, tls.is_some()));
    let mut listener =
        vec![("host", address.as_str()), ("port", &port), ("role", "normal"), ("saslMechanisms", &mechanisms)];
    let named = tls.is_some() || options.login != Login::Anonymous;
    listener.push(("authenticatePeer", if named { "yes" } else { "no" }));
    let files = [path("ca.pem"), path("router.pem"), path("router-key.pem")];
    if let Some((material, leaf)) = tls {
        for (file, contents) in files.iter().zip([&material.ca, &leaf.certificate, &leaf.key]) {
            std::fs::write(file, contents)?;
        }
        let [ca, certificate, key] = &files;
        let profile = [
            ("name", "kit"),
            ("caCertFile", ca.as_str()),
            ("certFile", certificate.as_str()),
            ("privateKeyFile", key.as_str()),
        ];
        section(&mut text, "sslProfile", &profile);
        listener.extend([("sslProfile", "kit"), ("requireSsl", "yes")]);
    }
    section(&mut text, "listener", &listener);
    if options.policies {
        let policies = folder.join("policies");
        std::fs::create_dir(&policies)?;
        // The form of the file itself has no maps.
        std::fs::write(policies.join("default.json"), EVERYTHING)?;
        let policies = policies.to_string_lossy().into_owned();
        section(&mut text, "policy", &[("enableVhostPolicy", "true"), ("policyDir", &policies)]);
    }
    for entity in &options.file_entities {
        let attributes = entity.attributes.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let all: Vec<_> = [("name", entity.name.as_str())].into_iter().chain(attributes).collect();
        section(&mut text, &entity.entity_type, &all);
    }
    section(&mut text, "log", &[("module", "DEFAULT"), ("enable", "info+")]);
    std::fs::write(folder.join("router.conf"), text)?;
    write_logins(Path::new(&sasl), &options.login)
}

/// Cyrus SASL's own file of users.
fn write_logins(folder: &Path, login: &Login) -> Result<()> {
    let database = folder.join("users.sasldb");
    let text = format!(
        "pwcheck_method: auxprop\nauxprop_plugin: sasldb\nsasldb_path: {}\nmech_list: ANONYMOUS EXTERNAL PLAIN\n",
        database.display()
    );
    std::fs::write(folder.join("qdrouterd.conf"), text)?;
    let Login::Password { user, password } = login else { return Ok(()) };
    let mut child = Command::new("saslpasswd2")
        .args(["-c", "-p", "-f"])
        .arg(&database)
        .arg(user)
        .stdin(Stdio::piped())
        .spawn()
        .context("saslpasswd2 (Debian: sasl2-bin) could not be run")?;
    let mut input = child.stdin.take().context("saslpasswd2 has no standard input")?;
    std::io::Write::write_all(&mut input, password.as_bytes())?;
    drop(input);
    ensure!(child.wait()?.success(), "saslpasswd2 failed");
    Ok(())
}
