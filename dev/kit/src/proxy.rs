//! A TCP proxy that misbehaves on demand: a network between a client and a server.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// What the proxy does with bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Hands them on at once.
    Pass,
    /// Hands them on after this time, in both directions.
    Slow(Duration),
    /// Accepts connections and bytes, and never hands on or answers anything. Connections that were made before stand
    /// still and go on when the mode changes.
    Hang,
    /// Resets every connection, the old ones and new ones.
    Cut,
}

/// A proxy on a free port of 127.0.0.1, until it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts one in front of 127.0.0.1:`target`, in [`Mode::Pass`]. The target need not listen yet.
    pub async fn start(target: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (mode, receiver) = watch::channel(Mode::Pass);
        Ok(Self { address, mode, task: tokio::spawn(serve(listener, target, receiver)) })
    }

    /// Where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Changes what it does, from now on and also for the connections that there are.
    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, target: u16, mode: watch::Receiver<Mode>) {
    // Connections end with the set, and so with the proxy.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((client, _)) = accepted {
                connections.spawn(connection(client, target, mode.clone()));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(client: TcpStream, target: u16, mut mode: watch::Receiver<Mode>) {
    let _ = client.set_nodelay(true);
    // Until bytes may pass, the server must not see the client either.
    if mode.wait_for(|mode| *mode != Mode::Hang).await.is_err() || *mode.borrow() == Mode::Cut {
        reset(&client);
        return;
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", target)).await else {
        reset(&client);
        return;
    };
    let _ = server.set_nodelay(true);
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let mut cut = mode.clone();
    tokio::select! {
        _ = cut.wait_for(|mode| *mode == Mode::Cut) => {}
        () = async {
            tokio::join!(
                pump(&mut from_client, &mut to_server, mode.clone()),
                pump(&mut from_server, &mut to_client, mode.clone()),
            );
        } => {}
    }
    if *mode.borrow() == Mode::Cut {
        reset(from_client.as_ref());
        reset(from_server.as_ref());
    }
}

/// Closing then sends a reset instead of an orderly end.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}

async fn pump(
    from: &mut tokio::net::tcp::OwnedReadHalf,
    to: &mut tokio::net::tcp::OwnedWriteHalf,
    mut mode: watch::Receiver<Mode>,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let now = *mode.borrow();
        if let Mode::Slow(delay) = now {
            tokio::time::sleep(delay).await;
        }
        if mode.wait_for(|mode| *mode != Mode::Hang).await.is_err() || to.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}
