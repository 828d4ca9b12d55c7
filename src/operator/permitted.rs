//! Keeps a write from being sent when the permit has gone while it waited.
//!
//! Writers look at the permit before each request, but between that look and the socket a request waits for its turn,
//! for a connection or for another task, and a process can be put to sleep anywhere in between. The body is asked for
//! right before it is written: that is where this looks again.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body as HttpBody, Frame, SizeHint};
use kube::client::Body;

use crate::engine::permit::Permit;

/// The Lease went to another, or may have.
#[derive(Debug, thiserror::Error)]
#[error("not sent: the Lease is no longer ours")]
struct NotPermitted;

/// A body that is given away while the permit lasts.
pub struct PermittedBody {
    body: Body,
    permit: Permit,
}

impl PermittedBody {
    /// Of a request that needs this permit.
    pub fn new(body: Body, permit: Permit) -> Self {
        Self { body, permit }
    }
}

impl HttpBody for PermittedBody {
    type Data = <Body as HttpBody>::Data;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if !self.permit.allows(Duration::ZERO) {
            return Poll::Ready(Some(Err(NotPermitted.into())));
        }
        Pin::new(&mut self.body).poll_frame(context).map_err(Into::into)
    }

    /// What has no body is not held; every write has one.
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tokio::time::{Instant, advance};

    use super::*;
    use crate::engine::permit::permit;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_waited_until_the_permit_was_gone_is_not_given_away() {
        let (granter, permit) = permit();
        granter.grant(Instant::now() + Duration::from_secs(4));
        let body = || PermittedBody::new(Body::from(b"status".to_vec()), permit.clone());
        let (early, late) = (body(), body());
        advance(Duration::from_secs(3)).await;
        assert_eq!(early.collect().await.unwrap().to_bytes(), b"status".to_vec());
        advance(Duration::from_secs(2)).await;
        let refused = late.collect().await.unwrap_err();
        assert!(refused.to_string().contains("the Lease is no longer ours"), "{refused}");
    }

    #[test]
    fn what_is_known_of_a_body_is_known_still() {
        let with = |body| PermittedBody::new(body, Permit::unlimited());
        let body = with(Body::from(b"status".to_vec()));
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(6), false));
        assert!(with(Body::empty()).is_end_stream());
    }
}
