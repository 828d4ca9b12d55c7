//! Where files lie, and what stores are called in HAProxy: by the path that they have on disk, so that a process that
//! was started from the files and one that was told at run time hold the same.

use std::sync::Arc;

use crate::edge::names;
use crate::edge::wanted::MapName;

/// Parts into which backends are written, at most: a change of one rewrites only its part. So many that a part is small
/// among tens of thousands; those in which nothing is are not written, but for the first, which keeps their folder.
pub const SHARDS: u64 = 1_024;

/// A folder with all files of one HAProxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    dir: Arc<str>,
}

impl Layout {
    /// In that folder; an absolute path without blanks, quotes or a slash at its end.
    pub fn new(dir: impl Into<Arc<str>>) -> Self {
        Self { dir: dir.into() }
    }

    /// The folder.
    pub fn dir(&self) -> &str {
        &self.dir
    }

    /// The fixed part of the configuration.
    pub fn config(&self) -> String {
        format!("{}/haproxy.cfg", self.dir)
    }

    /// The folder of the backends: `-f` takes it after [`config`](Self::config).
    pub fn backends(&self) -> String {
        format!("{}/backends", self.dir)
    }

    /// A part of the backends.
    pub fn shard(&self, shard: u64) -> String {
        format!("{}/backends/{shard:04}.cfg", self.dir)
    }

    /// A map: its file, and its name in commands.
    pub fn map(&self, map: MapName) -> String {
        format!("{}/maps/{map}.map", self.dir)
    }

    /// A certificate: its file, and its name in commands.
    pub fn certificate(&self, name: &str) -> String {
        format!("{}/certs/{name}.pem", self.dir)
    }

    /// A CA: its file, and its name in commands.
    pub fn authority(&self, name: &str) -> String {
        format!("{}/authorities/{name}.pem", self.dir)
    }

    /// Users of basic authentication, for the verifier alone.
    pub fn users(&self, name: &str) -> String {
        format!("{}/users/{name}", self.dir)
    }

    /// Which host has which certificate: its file, and its name in commands.
    pub fn crt_list(&self) -> String {
        format!("{}/certs.list", self.dir)
    }

    /// The list with the certificate of hosts without one: by its pattern it takes no host from others, whatever names
    /// are in it.
    pub fn default_list(&self) -> String {
        format!("{}/default.list", self.dir)
    }

    /// The script.
    pub fn lua(&self) -> String {
        format!("{}/waystation.lua", self.dir)
    }

    /// Where commands go.
    pub fn socket(&self) -> String {
        format!("{}/haproxy.sock", self.dir)
    }

    /// Where the verifier of passwords listens.
    pub fn verifier(&self) -> String {
        format!("{}/verifier.sock", self.dir)
    }

    /// Where TLS is terminated behind the look at SNI.
    pub fn tls_socket(&self) -> String {
        format!("{}/tls.sock", self.dir)
    }
}

/// Whether there is a file of a part with these contents.
pub fn is_written(shard: u64, contents: &str) -> bool {
    shard == 0 || !contents.is_empty()
}

/// The part that a backend is in.
pub fn shard_of(backend: &str) -> u64 {
    names::digest(backend.as_bytes()) % SHARDS
}
