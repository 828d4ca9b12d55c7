//! `waystation-dev router`.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use tokio::sync::mpsc;
use waystation_kit::artemis::Login;
use waystation_kit::router::{Router, RouterOptions};
use waystation_kit::router_core::Flavour;

/// Runs until it is interrupted. Lines on standard input command faults: `hang`, `go-on`, `cut`, `slow MILLISECONDS`,
/// `refuse PART WORDS`, `relent PART`, `restart`, `counters`, `entities`.
#[derive(Args)]
pub struct Arguments {
    /// Where it listens on 127.0.0.1; 0 for a free port
    #[arg(long, default_value_t = 5672)]
    port: u16,
    /// The router's id
    #[arg(long, default_value = "R1")]
    id: String,
    /// Stand in for skrouterd, which has no link routes and no waypoints
    #[arg(long)]
    skupper: bool,
    /// Who may log in, by SASL PLAIN; anybody when not given
    #[arg(long, requires = "password_file")]
    user: Option<String>,
    /// A file with the password
    #[arg(long, requires = "user")]
    password_file: Option<std::path::PathBuf>,
    /// The real router: the binary that WAYSTATION_QDROUTERD names, on a free port
    #[arg(long)]
    real: bool,
}

pub async fn run(arguments: &Arguments) -> Result<()> {
    let login = match (&arguments.user, &arguments.password_file) {
        (Some(user), Some(file)) => Login::password(user, std::fs::read_to_string(file)?.trim_end()),
        _ => Login::Anonymous,
    };
    let flavour = if arguments.skupper { Flavour::Skrouterd } else { Flavour::Qdrouterd };
    let options = RouterOptions { id: arguments.id.clone(), flavour, login, ..RouterOptions::default() };
    let mut router = match arguments.real {
        true => {
            let binary = waystation_kit::router::real_binary().context("WAYSTATION_QDROUTERD names no binary")?;
            Router::real(&binary, options).await?
        }
        false => Router::stand_in(arguments.port, options).await?,
    };
    let what = if router.is_real() { "a router" } else { "a stand-in for a router" };
    println!("{what} listens on 127.0.0.1:{}", router.port());
    let mut lines = standard_input();
    loop {
        let line = tokio::select! {
            line = lines.recv() => line,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        let Some(line) = line else { break };
        if let Err(error) = command(&mut router, line.trim()).await {
            println!("{error:#}");
        }
    }
    // Nobody commands it any more; it goes on until it is ended.
    tokio::signal::ctrl_c().await?;
    Ok(())
}

/// Lines, read by a thread that waits for them and ends with the process.
fn standard_input() -> mpsc::UnboundedReceiver<String> {
    let (give, lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(std::result::Result::ok) {
            if give.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

async fn command(router: &mut Router, line: &str) -> Result<()> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    match word {
        "" => return Ok(()),
        "hang" => router.hang()?,
        "go-on" => router.go_on()?,
        "cut" => router.cut()?,
        "slow" => router.slow(Duration::from_millis(rest.parse()?))?,
        "refuse" => {
            let (part, words) = rest.split_once(' ').context("refuse PART WORDS")?;
            router.refuse(part, words)?;
        }
        "relent" => router.with(|core| core.relent(rest))?,
        "restart" => router.restart_empty().await?,
        "counters" => println!("{:?}, {} together", router.counters()?, router.most_in_flight()?),
        "entities" => print!("{}", router.with(|core| core.listing())?),
        _ => bail!("no such command: {word}"),
    }
    println!("done");
    Ok(())
}
