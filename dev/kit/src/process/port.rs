//! TCP ports on loopback that stay ours while we hold them, also while nothing listens there.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Result, bail};

/// Below the kernel's range for outgoing connections (32768 up), which would take a port between two starts.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// A free port of 127.0.0.1. Other users of the kit on this machine do not get it as long as this lives.
#[derive(Debug)]
pub struct Port {
    number: u16,
    // An abstract socket of the port's name: the kernel drops it with the process, so no stale claim is possible.
    _claim: UnixListener,
}

impl Port {
    /// Claims a free port.
    pub fn claim() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let width = u32::from(RANGE.end - RANGE.start);
        // Processes begin at different places, so that they seldom meet.
        let begin = std::process::id().wrapping_mul(97);
        for _ in 0..width {
            let offset = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % width;
            let number = RANGE.start + u16::try_from(offset)?;
            let name = SocketAddr::from_abstract_name(format!("waystation-port-{number}"))?;
            let Ok(claim) = UnixListener::bind_addr(&name) else { continue };
            if TcpListener::bind(("127.0.0.1", number)).is_ok() {
                return Ok(Self { number, _claim: claim });
            }
        }
        bail!("no port of {RANGE:?} is free")
    }

    /// The port's number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }
}
