//! Links and connections: until they are there, and afterwards.

use super::*;

const REFUSED: &str = "connection refused";

fn failed(way: &str) -> Arc<str> {
    format!("link {way} broker b is failed: no such queue").into()
}

impl Bench {
    /// What is told of links next.
    async fn links(&mut self) -> Vec<(Slot, Option<Arc<str>>)> {
        match self.next().await {
            Report::Links(links) => links,
            other => panic!("{other:?}"),
        }
    }

    async fn connector(&mut self) -> Option<Arc<str>> {
        loop {
            if let Report::Connector(broker, words) = self.report().await {
                assert_eq!(&*broker, "b");
                return words;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_link_is_looked_at_until_it_is_active() {
    let mut bench = Bench::connected().await;
    let began = Instant::now();
    assert_eq!(bench.does("s/q", hold(queue("b"))).await, HELD);
    assert!(began.elapsed() >= Duration::from_millis(12), "not before they are active");
    assert!(began.elapsed() < Duration::from_millis(40), "{:?}", began.elapsed());
    let reads = bench.router.asked().iter().filter(|asked| asked.starts_with("READ")).count();
    assert_eq!(reads, 6, "two links after 2, 7 and 17 ms");
}

#[tokio::test(start_paused = true)]
async fn a_link_that_fails_is_told_with_the_answer_and_again_when_it_works() {
    let mut bench = Bench::connected().await;
    bench.router.state().failing.insert("s/q".into(), 1);
    assert_eq!(bench.does("s/q", hold(queue("b"))).await, Ok(Done::Held { trouble: Some(failed("from")) }));
    assert_eq!(bench.links().await, [("s/q".into(), None)], "made anew, it works");
    bench.silent(300).await;
}

#[tokio::test(start_paused = true)]
async fn that_links_were_looked_at_is_told_once_and_after_what_was_found() {
    let mut bench = Bench::connected().await;
    bench.router.state().failing.insert("s/q".into(), 1_000);
    bench.put("s/q", Turn::Repair, hold(queue("b")));
    let mut told = Vec::new();
    while told.last() != Some(&Report::Looked) {
        told.push(bench.report().await);
    }
    let found = Report::Links(vec![("s/q".into(), Some(failed("from")))]);
    assert!(told.contains(&found), "{told:?}");
    sleep(Duration::from_secs(300)).await;
    while let Ok(report) = bench.reports.try_recv() {
        assert_ne!(report, Report::Looked);
    }
}

#[tokio::test(start_paused = true)]
async fn a_link_that_fails_later_is_made_anew_and_told_if_that_does_not_help() {
    let mut bench = Bench::connected().await;
    for slot in ["s/p", "s/q"] {
        assert_eq!(bench.does(slot, hold(queue("b"))).await, HELD);
    }
    bench.router.state().all_links(true);
    bench.router.state().failing.insert("s/q".into(), 6);
    // Those of s/p work as soon as they are made anew.
    let told = bench.links().await;
    assert_eq!(told, [("s/q".into(), Some(failed("from")))]);
    // Not told again while it stays so, and made anew more and more seldom.
    bench.router.asked();
    bench.silent(25).await;
    let made = bench.router.asked().iter().filter(|asked| asked.starts_with("CREATE")).count();
    assert_eq!(made, 2);
    bench.router.state().failing.clear();
    assert_eq!(bench.links().await, [("s/q".into(), None)]);
    bench.silent(300).await;
}

#[tokio::test(start_paused = true)]
async fn links_of_a_refill_are_looked_at_all_at_once() {
    let mut bench = Bench::connected().await;
    bench.router.state().failing.insert("s/7/".into(), 2);
    bench.router.asked();
    for at in 0..50 {
        bench.put(&format!("s/{at}/q"), Turn::Repair, hold(queue("b")));
    }
    for _ in 0..50 {
        assert_eq!(bench.outcome().await.result, HELD);
    }
    assert!(bench.router.asked().iter().all(|asked| asked.starts_with("CREATE")));
    sleep(Duration::from_secs(15)).await;
    let anew: Vec<String> = bench.router.asked().into_iter().filter(|asked| asked.starts_with("CREATE")).collect();
    assert_eq!(anew.len(), 2, "{anew:?}");
    bench.silent(60).await;
}

#[tokio::test(start_paused = true)]
async fn all_links_are_looked_at_for_a_hundredth_of_the_time() {
    let mut bench = Bench::connected().await;
    assert_eq!(bench.does("s/q", hold(queue("b"))).await, HELD);
    bench.router.state().slow.insert("QUERY", Duration::from_secs(1));
    let looks = |bench: &Bench| {
        let state = bench.router.state();
        state.requests.iter().filter(|request| request.label() == "QUERY" && request.of == Type::AutoLink).count()
    };
    let before = looks(&bench);
    sleep(Duration::from_secs(1_000)).await;
    let looked = looks(&bench) - before;
    assert!((9..=11).contains(&looked), "{looked}");
    bench.router.state().slow.clear();
    sleep(Duration::from_secs(200)).await;
    let before = looks(&bench);
    sleep(Duration::from_secs(100)).await;
    let looked = looks(&bench) - before;
    assert!((9..=10).contains(&looked), "{looked}");
}

#[tokio::test(start_paused = true)]
async fn links_whose_connector_is_down_are_its_matter() {
    let mut bench = bench();
    bench.started().await;
    bench.router.state().brokers_down = Some(REFUSED);
    bench.put(&connector_slot("b"), Turn::Change, hold(connector("b")));
    assert_eq!(bench.outcome().await.result, HELD);
    bench.put("s/p", Turn::Change, hold(queue("b")));
    // After a second, in either order.
    let mut told = [bench.report().await, bench.report().await];
    told.sort_by_key(|report| matches!(report, Report::Outcome(_)));
    assert_eq!(told[0], Report::Connector("b".into(), Some(REFUSED.into())));
    assert!(matches!(&told[1], Report::Outcome(outcome) if outcome.result == HELD), "{told:?}");
    let began = Instant::now();
    assert_eq!(bench.does("s/q", hold(queue("b"))).await, HELD);
    assert!(began.elapsed() < Duration::from_millis(100), "at once, as the connector is known to be down");
    bench.router.asked();
    bench.silent(100).await;
    assert!(bench.router.asked().is_empty(), "nothing is made anew");
    bench.router.state().brokers_down = None;
    assert_eq!(bench.connector().await, None);
    bench.silent(100).await;
}

#[tokio::test(start_paused = true)]
async fn a_connector_is_told_when_it_turns_and_only_then() {
    let mut bench = bench();
    bench.started().await;
    bench.put(&connector_slot("b"), Turn::Change, hold(connector("b")));
    let began = Instant::now();
    assert_eq!(bench.connector().await, None);
    assert!(began.elapsed() < Duration::from_millis(10));
    let before = bench.router.state().requests.len();
    bench.silent(100).await;
    let looks = bench.router.state().requests.len() - before;
    assert!(looks <= 12, "{looks} in 100 s");
    bench.router.state().brokers_down = Some(REFUSED);
    assert_eq!(bench.connector().await, Some(REFUSED.into()));
    let before = bench.router.state().requests.len();
    bench.silent(100).await;
    let looks = bench.router.state().requests.len() - before;
    assert!((45..=70).contains(&looks), "{looks} in 100 s");
    bench.router.state().brokers_down = None;
    let began = Instant::now();
    assert_eq!(bench.connector().await, None);
    assert!(began.elapsed() <= Duration::from_secs(2));
    // One that is gone is not spoken of.
    assert_eq!(bench.does(&connector_slot("b"), Wish::Gone).await, Ok(Done::Gone));
    bench.router.state().brokers_down = Some(REFUSED);
    bench.silent(100).await;
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_goes_takes_its_links_along_without_a_word_of_them() {
    let mut bench = Bench::connected().await;
    assert_eq!(bench.does("s/q", hold(queue("b"))).await, HELD);
    bench.router.state().brokers_down = Some(REFUSED);
    assert_eq!(bench.connector().await, Some(REFUSED.into()));
    bench.silent(200).await;
    bench.router.asked();
    bench.router.state().brokers_down = None;
    assert_eq!(bench.connector().await, None);
    bench.silent(200).await;
    assert!(bench.router.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_goes_takes_its_trouble_along() {
    let mut bench = Bench::connected().await;
    bench.router.state().failing.insert("s/q".into(), 1_000);
    assert_eq!(bench.does("s/q", hold(queue("b"))).await, Ok(Done::Held { trouble: Some(failed("from")) }));
    assert_eq!(bench.does("s/q", hold(queue("b"))).await, Ok(Done::Held { trouble: Some(failed("from")) }));
    assert!(bench.router.asked().is_empty(), "it is known");
    assert_eq!(bench.does("s/q", Wish::Gone).await, Ok(Done::Gone));
    bench.silent(100).await;
}

#[test]
fn a_link_that_is_tried_again_is_told_as_the_one_that_failed() {
    use crate::drive::router::watch::Watch;
    let link = AutoLink { direction: Direction::In, broker: "b".into(), external: None };
    let words = |status: &str, error: &str| {
        Watch::words(&link, |attribute| match attribute {
            "operStatus" => Some(status.into()),
            "lastError" => Some(error.into()),
            _ => None,
        })
        .1
    };
    assert_eq!(words("attaching", "no such queue"), failed("from"));
    assert_eq!(words("failed", "no such queue"), failed("from"));
    assert_eq!(&*words("attaching", ""), "link from broker b is attaching");
}
