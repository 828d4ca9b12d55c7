//! Reads the API server's audit log: the only witness of requests that does not depend on what the client says.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde::Deserialize;

use crate::process::eventually;

/// Requests whose name begins so are our own markers, never part of an answer.
const MARKER: &str = "waystation-audit-marker-";

/// One request that the API server answered (a watch: that it began to answer).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// `system:serviceaccount:NAMESPACE:NAME`, or `admin`.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// The plural: `addresses`. Empty for requests that are not for a resource.
    pub resource: String,
    /// `status`, or empty.
    pub subresource: String,
    /// Empty for cluster-wide requests.
    pub namespace: String,
    /// Empty for lists and for objects that the server was to name.
    pub name: String,
    /// The HTTP status of the answer.
    pub code: u16,
    /// The path and query that were asked for.
    pub uri: String,
    /// When the API server had the request's head, and when it wrote this entry: RFC 3339, UTC.
    pub times: [String; 2],
}

impl AuditEntry {
    /// Whether the request was to change something.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }
}

/// A place in the log; entries are counted from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditMark {
    offset: u64,
}

/// Reads one cluster's log.
pub struct AuditReader {
    client: kube::Client,
    log: PathBuf,
}

impl std::fmt::Debug for AuditReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuditReader").field("log", &self.log).finish_non_exhaustive()
    }
}

impl AuditReader {
    pub(super) fn new(client: kube::Client, log: PathBuf) -> Self {
        Self { client, log }
    }

    /// The place after everything that was answered up to now.
    pub async fn mark(&self) -> Result<AuditMark> {
        Ok(AuditMark { offset: self.settled(0).await?.1 })
    }

    /// Everything that was answered since the mark, in the log's order.
    pub async fn since(&self, mark: AuditMark) -> Result<Vec<AuditEntry>> {
        let (text, _) = self.settled(mark.offset).await?;
        text.lines().filter_map(|line| entry(line).transpose()).collect()
    }

    /// How many of the entries since the mark a condition holds for.
    pub async fn count(&self, mark: AuditMark, condition: impl Fn(&AuditEntry) -> bool) -> Result<usize> {
        Ok(self.since(mark).await?.iter().filter(|entry| condition(entry)).count())
    }

    // An answer reaches its client before its line is in the log. A request of our own that is seen there says that those
    // before it are there too.
    async fn settled(&self, offset: u64) -> Result<(String, u64)> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let marker = format!("{MARKER}{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), "default");
        maps.get_opt(&marker).await?;
        let needle = format!("\"{marker}\"");
        eventually(Duration::from_secs(30), "the audit log has our own request", || async {
            let text = self.read(offset).await?;
            let end = text.find(&needle).and_then(|at| Some(at + text[at..].find('\n')? + 1)).context("not yet")?;
            let offset = offset + u64::try_from(end)?;
            let mut text = text;
            text.truncate(end);
            Ok((text, offset))
        })
        .await
    }

    async fn read(&self, offset: u64) -> Result<String> {
        use tokio::io::{AsyncReadExt, AsyncSeekExt};
        let mut file = tokio::fs::File::open(&self.log).await?;
        file.seek(std::io::SeekFrom::Start(offset)).await?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    #[serde(rename = "requestURI")]
    uri: String,
    verb: String,
    user: User,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
    #[serde(default)]
    request_received_timestamp: String,
    #[serde(default)]
    stage_timestamp: String,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

fn entry(line: &str) -> Result<Option<AuditEntry>> {
    let line: Line = serde_json::from_str(line).with_context(|| format!("a line of the audit log: {line}"))?;
    let code = line.response_status.map_or(0, |status| status.code);
    let object = line.object_ref.unwrap_or_default();
    // A watch is told twice, when it begins and when it ends, which may be long after the test; a refused one once.
    let counted = match line.stage.as_str() {
        "ResponseStarted" => line.verb == "watch",
        "ResponseComplete" => line.verb != "watch" || code != 200,
        _ => false,
    };
    if !counted || object.name.starts_with(MARKER) {
        return Ok(None);
    }
    Ok(Some(AuditEntry {
        user: line.user.username,
        verb: line.verb,
        resource: object.resource,
        subresource: object.subresource,
        namespace: object.namespace,
        name: object.name,
        code,
        uri: line.uri,
        times: [line.request_received_timestamp, line.stage_timestamp],
    }))
}
