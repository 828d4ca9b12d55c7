//! `waystation-dev send` and `receive`: a client at hand for whoever looks around in the demo.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use waystation_kit::amqp_client::Client;
use waystation_kit::artemis::Login;

#[derive(Args)]
pub struct Broker {
    /// The broker's AMQP port on 127.0.0.1
    #[arg(long, env = "WAYSTATION_BROKER_PORT")]
    port: u16,
    /// Who sends or receives
    #[arg(long, env = "WAYSTATION_BROKER_USER", default_value = "admin")]
    user: String,
}

#[derive(Args)]
pub struct Send {
    #[command(flatten)]
    broker: Broker,
    /// With the prefix of its space: demo.shop/orders
    address: String,
    text: String,
}

#[derive(Args)]
pub struct Receive {
    #[command(flatten)]
    broker: Broker,
    /// With the prefix of its space: demo.shop/orders, or demo.shop/news::demo.shop/archive for a subscription
    address: String,
    /// How many messages at most
    #[arg(long, default_value_t = 1)]
    count: usize,
    /// How many seconds to wait for them
    #[arg(long, default_value_t = 5)]
    seconds: u64,
}

impl Broker {
    async fn connect(&self) -> Result<Client> {
        // Not a flag: command lines can be read by everybody on the machine.
        let password = std::env::var("WAYSTATION_BROKER_PASSWORD").unwrap_or_else(|_| "admin-password".to_owned());
        Client::connect("127.0.0.1", self.port, &Login::password(&self.user, &password)).await
    }
}

pub async fn send(arguments: &Send) -> Result<()> {
    let mut client = arguments.broker.connect().await?;
    client.send_text(&arguments.address, &arguments.text).await?;
    println!("accepted");
    client.close().await
}

pub async fn receive(arguments: &Receive) -> Result<()> {
    let mut client = arguments.broker.connect().await?;
    let within = Duration::from_secs(arguments.seconds);
    let received = client.receive(&arguments.address, arguments.count, within).await?;
    for message in &received {
        println!("{}", message.body);
    }
    if received.is_empty() {
        eprintln!("nothing came within {} s", arguments.seconds);
    }
    client.close().await
}
