//! What must be exact, whatever the machine: `--smoke`.

use super::figures::Figures;

/// Small enough for all scenarios to take less than three minutes, large enough for every one to mean something.
pub(super) const SIZE: usize = 400;
/// The same with routers.
pub(super) const ROUTED_SIZE: usize = 200;

/// Ingresses.
pub(super) const EDGE_SIZE: usize = 60;

/// Prints each check and their number. False: one failed.
pub(super) fn judge(all: &[Figures]) -> bool {
    println!();
    let (mut passed, mut failed) = (0, 0);
    for (figures, (name, words, holds)) in all
        .iter()
        .filter(|figures| figures.is_ours())
        .flat_map(|figures| checks(figures).into_iter().map(move |c| (figures, c)))
    {
        if holds {
            passed += 1;
        } else {
            failed += 1;
        }
        println!(
            "{:6} {}: {words} ({name} {:.3})",
            if holds { "ok" } else { "FAILED" },
            figures.scenario,
            figures.get(name).unwrap_or(f64::NAN)
        );
    }
    println!("{passed} passed, {failed} failed");
    failed == 0
}

type Check = (&'static str, &'static str, bool);

fn checks(figures: &Figures) -> Vec<Check> {
    let get = |key| figures.get(key).unwrap_or(f64::NAN);
    let once = |key| (key, "each address is written once", get(key) == 1.0);
    let no_reload = || ("reloads", "nothing is reloaded", get("reloads") == 0.0);
    let none_failed = || ("failed_requests", "no request fails", get("failed_requests") == 0.0);
    match figures.scenario {
        // Who waits for more than a second is told so: on a busy machine some do.
        "address-bulk" => {
            let key = "writes_per_address";
            vec![(key, "each address is written once, but for a few that wait for long", get(key) <= 1.05)]
        }
        "address-add" | "address-add behind a bulk" => vec![once("status_writes_per_address")],
        "idle" => {
            let expected = get("lease_requests_per_min") + get("watch_requests_per_min");
            vec![("requests_per_min", "nothing but Lease and watches", get("requests_per_min") == expected)]
        }
        "router-restart" => vec![
            ("address_writes", "a router's restart writes no Address", get("address_writes") == 0.0),
            ("space_writes", "with another in service, no space either", get("space_writes") == 0.0),
        ],
        "operator-restart" => vec![("writes", "a restart writes nothing", get("writes") == 0.0)],
        "delete-all" => {
            vec![("calls_per_address", "each address is let go of by one call", get("calls_per_address") == 1.0)]
        }
        "edge-sync" => vec![
            no_reload(),
            (
                "status_writes_per_ingress",
                "the status of each Ingress is written once",
                get("status_writes_per_ingress") == 1.0,
            ),
            ("status_writes_of_restarts", "a restart writes none", get("status_writes_of_restarts") == 0.0),
        ],
        "edge-endpoint" | "edge-route" => vec![no_reload()],
        "edge-traffic" | "edge-traffic, TLS" => vec![no_reload(), none_failed()],
        "edge-churn" => vec![
            no_reload(),
            none_failed(),
            ("drift", "in the end all is as after a start from nothing", get("drift") == 0.0),
        ],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_write_too_many_is_a_failure() {
        assert!(judge(&[Figures::new("operator-restart", 400, 1).with("writes", 0.0)]));
        assert!(!judge(&[Figures::new("operator-restart", 400, 1).with("writes", 1.0)]));
        assert!(!judge(&[Figures::new("address-add", 400, 1).with("status_writes_per_address", 1.01)]));
    }

    #[test]
    fn in_a_bulk_a_few_may_be_written_twice() {
        assert!(judge(&[Figures::new("address-bulk", 400, 1).with("writes_per_address", 1.05)]));
        assert!(!judge(&[Figures::new("address-bulk", 400, 1).with("writes_per_address", 1.06)]));
    }

    #[test]
    fn a_figure_that_is_missing_is_a_failure() {
        assert!(!judge(&[Figures::new("idle", 400, 1)]));
    }
}
