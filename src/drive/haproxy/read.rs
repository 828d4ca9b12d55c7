//! Reading what a process holds.

use std::time::Duration;

use futures::future::try_join_all;

use super::link::{AskError, ProcessSession};
use crate::edge::render::Layout;
use crate::edge::runtime::answer::Answer;
use crate::edge::runtime::command::Kind;
use crate::edge::runtime::compare::Held;
use crate::edge::runtime::show::{self, Info};
use crate::edge::wanted::MapName;

/// Why a process could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No answer.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// It was not started from our files, or is something else.
    #[error("{0}")]
    Foreign(String),
}

/// What tells one process from another.
pub async fn info(session: &dyn ProcessSession, deadline: Duration) -> Result<Info, ReadError> {
    let info = show::info(&session.ask("show info\n".to_owned(), deadline).await?);
    if info.pid == 0 {
        return Err(ReadError::Foreign("`show info` tells no process".to_owned()));
    }
    Ok(info)
}

/// Everything that it holds. Its questions wait behind commands that were sent before, and are answered in one go, so
/// that what they tell is of one moment as long as nobody else commands.
pub async fn held(session: &dyn ProcessSession, layout: &Layout, deadline: Duration) -> Result<Held, ReadError> {
    let show = |line: String| {
        let asked = session.ask(format!("{line}\n"), deadline);
        async move {
            let text = asked.await?;
            match Answer::read(Kind::Show, &text) {
                Answer::Refused(words) => Err(ReadError::Foreign(format!("`{line}`: {words}"))),
                _ => Ok(text),
            }
        }
    };
    let mut questions: Vec<String> = MapName::ALL.iter().map(|map| format!("show map {}", layout.map(*map))).collect();
    questions.extend([
        "show backend".to_owned(),
        "show servers state".to_owned(),
        "show ssl cert".to_owned(),
        "show ssl ca-file".to_owned(),
        format!("show ssl crt-list -n {}", layout.crt_list()),
        // Frontends alone: all of it takes a second at 20,000 backends.
        "show stat -1 1 -1".to_owned(),
    ]);
    let answers = try_join_all(questions.into_iter().map(show)).await?;
    let (maps, others) = answers.split_at(MapName::ALL.len());
    let [backends, servers, certificates, authorities, crt_list, frontends] = others else {
        return Err(ReadError::Foreign("an answer is missing".to_owned()));
    };
    Ok(Held {
        maps: MapName::ALL.iter().copied().zip(maps.iter().map(|text| show::map(text))).collect(),
        backends: show::backends(backends),
        servers: show::servers(servers),
        certificates: show::stores(certificates),
        authorities: show::stores(authorities),
        crt_list: show::crt_list(crt_list),
        frontends: show::frontends(frontends),
    })
}

/// The lines of hosts, for the numbers by which they are deleted.
pub async fn crt_list(
    session: &dyn ProcessSession,
    layout: &Layout,
    deadline: Duration,
) -> Result<Vec<show::CrtListLine>, AskError> {
    let text = session.ask(format!("show ssl crt-list -n {}\n", layout.crt_list()), deadline).await?;
    Ok(show::crt_list(&text))
}
