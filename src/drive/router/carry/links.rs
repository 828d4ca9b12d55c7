//! New links: looked at one by one until they are active, and made anew.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::sleep;

use super::{Carrier, Halt, gone_or_never_there};
use crate::drive::router::link::{Answer, CallError, Type};
use crate::drive::router::ops;
use crate::drive::router::watch::Watch;
use crate::messaging::ids::Slot;
use crate::messaging::router::{AutoLink, Entity};

/// A new link is looked at after these waits, one after the other, until it is active: about a second in all.
const LOOKS_MS: [u64; 9] = [2, 5, 10, 20, 40, 80, 160, 300, 400];
impl Carrier<'_> {
    /// Looks at each link by itself until it is active, for about a second. Tells those that are not; a link whose
    /// connector is not up is that connector's matter.
    pub(in crate::drive::router) async fn until_active(
        &self,
        slot: &Slot,
        links: Vec<AutoLink>,
    ) -> Result<Vec<(AutoLink, Arc<str>)>, Halt> {
        let mut waiting: Vec<(AutoLink, Arc<str>, u32)> =
            links.into_iter().map(|link| (link, "not seen".into(), 0)).collect();
        for wait in LOOKS_MS {
            sleep(Duration::from_millis(wait)).await;
            waiting.retain(|(link, ..)| !self.connectors.is_down(&link.broker));
            self.may_send().await;
            let looks = waiting.iter().map(|(link, ..)| {
                self.send(ops::read(Type::AutoLink, self.names().name(slot, &Entity::AutoLink(link.clone()))))
            });
            let looks = join_all(looks.collect::<Vec<_>>()).await;
            for (at, look) in looks.into_iter().enumerate().rev() {
                let (link, words, failures) = &mut waiting[at];
                let (status, now) = match look {
                    Ok(Answer::Entity(attributes)) => Watch::words(link, |name| attributes.get(name).cloned()),
                    Ok(_) | Err(CallError::NotFound) => ("gone".to_owned(), "the link is gone".into()),
                    Err(error) => return Err(error.into()),
                };
                if status == "active" {
                    waiting.remove(at);
                    continue;
                }
                *words = now;
                *failures += u32::from(status == "failed");
            }
            // The router itself tries again only after seconds.
            if waiting.iter().all(|(.., failures)| *failures >= 2) {
                break;
            }
        }
        if !waiting.is_empty() {
            self.look_at_connectors().await?;
        }
        let own_fault = waiting.into_iter().filter(|(link, ..)| self.connectors.is_up(&link.broker));
        Ok(own_fault.map(|(link, words, _)| (link, words)).collect())
    }

    /// Makes a link anew that is on the router, unless somebody is at work on its slot. False: it was not.
    pub(in crate::drive::router) async fn renew(&self, slot: &Slot, link: &AutoLink) -> Result<bool, Halt> {
        let Some(_claim) = self.claims.try_claim(slot) else { return Ok(false) };
        let entity = Entity::AutoLink(link.clone());
        if !self.memory().shape(slot).is_some_and(|shape| shape.contains(&entity)) {
            return Ok(false);
        }
        self.may_send().await;
        let going = self.send_deletes(slot, std::slice::from_ref(&entity), &[]);
        let coming = self.send(ops::create(self.names(), slot, &entity, &None));
        for gone in join_all(going).await {
            gone_or_never_there(gone)?;
        }
        let answer = coming.await;
        self.made(slot, &entity, &None, answer).await?;
        Ok(true)
    }
}
