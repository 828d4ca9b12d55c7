//! A stream that writes nothing once the permit has gone.
//!
//! Whoever sends looks at the permit first, but between that look and the socket a request passes through tasks, pools,
//! buffers and encryption, and a process can be put to sleep anywhere in between. This is the last place before the
//! kernel: it stands right around the socket, below TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::permit::Permit;

/// Reads as its stream does, and writes while the permit lasts.
#[derive(Debug)]
pub struct Guarded<S> {
    stream: S,
    permit: Permit,
}

impl<S> Guarded<S> {
    /// What is written to `stream` needs this permit.
    pub fn new(stream: S, permit: Permit) -> Self {
        Self { stream, permit }
    }

    /// What is underneath.
    pub fn inner(&self) -> &S {
        &self.stream
    }

    fn allowed(&self) -> io::Result<()> {
        if self.permit.allows(Duration::ZERO) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "the Lease is no longer ours"))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.allowed()?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.allowed()?;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::{Instant, advance};

    use super::*;
    use crate::engine::permit::permit;

    #[tokio::test(start_paused = true)]
    async fn nothing_is_written_once_the_permit_has_run_out_and_what_comes_is_still_read() {
        let (granter, permit) = permit();
        let (ours, mut theirs) = duplex(64);
        let mut guarded = Guarded::new(ours, permit);
        assert!(guarded.write_all(b"early").await.is_err());
        granter.grant(Instant::now() + Duration::from_secs(4));
        guarded.write_all(b"in time").await.unwrap();
        advance(Duration::from_secs(5)).await;
        let error = guarded.write_all(b"late").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        theirs.write_all(b"answer").await.unwrap();
        let mut answer = [0; 6];
        guarded.read_exact(&mut answer).await.unwrap();
        drop(guarded);
        let mut sent = Vec::new();
        theirs.read_to_end(&mut sent).await.unwrap();
        assert_eq!((&answer, &*sent), (b"answer", &b"in time"[..]));
    }
}
