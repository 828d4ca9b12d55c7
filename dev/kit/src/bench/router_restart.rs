//! `router-restart`: a router is killed and comes back empty. What that costs Addresses, and how long it takes to fill
//! it, against a bare client that fills an empty router with the same.

use std::time::Duration;

use anyhow::{Result, ensure};
use http::Method;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::client::request;
use super::figures::{Figures, Samples};
use super::stage::{LONG, Stage, is_write};
use super::{routers, say};

/// How often the observer asks whether a space is Ready.
const POLL: Duration = Duration::from_millis(20);

/// Operator and bare client turn about.
pub(super) async fn run(stage: &mut Stage, rounds: usize) -> Result<Figures> {
    ensure!(!stage.routers.is_empty(), "router-restart needs routers: --routers N");
    let addresses = stage.addresses();
    let (mut refill, mut bare, mut not_ready) = (Samples::default(), Samples::default(), Samples::default());
    let (mut address_writes, mut space_writes) = (0, 0);
    for round in 1..=rounds {
        say(&format!("router-restart: round {round} of {rounds}"));
        stage.quiet().await?;
        let mark = stage.audit.mark().await?;
        let observer = Observer::start(stage);
        let Some(router) = stage.routers.first_mut() else { continue };
        router.kill();
        // Long enough for it to be told as down.
        sleep(Duration::from_secs(2)).await;
        router.start_again()?;
        let accepts = router.accepts().await?;
        refill.push(router.is_filled(LONG).await? - accepts);
        stage.quiet().await?;
        not_ready.push(observer.ended());
        let requests = stage.requests(mark).await?;
        let writes = |resource: &str| requests.iter().filter(|e| is_write(e) && e.resource == resource).count();
        address_writes += writes("addresses");
        space_writes += writes("addressspaces");
        bare.push(routers::fill_by_hand(&addresses, stage.broker_port()).await?);
    }
    if stage.has_twins() {
        // Whoever takes them away by hand finds them again.
        routers::make(&stage.router_ports()[..1], &addresses, stage.broker_port()).await?;
    }
    let seconds = |samples: &Samples| samples.percentile_ms(50.0) / 1000.0;
    Ok(Figures::new("router-restart", stage.size(), rounds)
        .with("spaces", stage.spaces() as f64)
        .with("routers", stage.routers.len() as f64)
        .with("address_writes", address_writes as f64)
        .with("space_writes", space_writes as f64)
        .with("refill_s", seconds(&refill))
        .with("bare_client_s", seconds(&bare))
        .with("space_notready_s", seconds(&not_ready)))
}

/// Asks one space again and again whether it is Ready.
struct Observer {
    task: JoinHandle<()>,
    lost: std::sync::Arc<std::sync::Mutex<Duration>>,
}

impl Observer {
    fn start(stage: &Stage) -> Self {
        let (client, path) = (stage.client.clone(), stage.a_space());
        let lost = std::sync::Arc::new(std::sync::Mutex::new(Duration::ZERO));
        let total = std::sync::Arc::clone(&lost);
        let task = tokio::spawn(async move {
            let mut last = Instant::now();
            loop {
                let answer = request(&client, Method::GET, &path, "application/json", None).await;
                let now = Instant::now();
                if answer.is_ok_and(|space| !super::stage::is_ready(&space)) {
                    *total.lock().unwrap_or_else(std::sync::PoisonError::into_inner) += now - last;
                }
                last = now;
                sleep(POLL).await;
            }
        });
        Self { task, lost }
    }

    /// For how long it was not Ready.
    fn ended(self) -> Duration {
        self.task.abort();
        *self.lost.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
