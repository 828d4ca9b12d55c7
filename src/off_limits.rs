//! Addresses that no tenant may have anything led to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What clouds answer at besides link-local addresses: metadata, tokens, DNS of the host.
const METADATA: [IpAddr; 5] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

/// Why nothing may be led to that address; `None` if it may.
pub fn refused(address: IpAddr) -> Option<&'static str> {
    let plain = address.to_canonical();
    if METADATA.contains(&plain) {
        return Some("a cloud's metadata service");
    }
    match plain {
        IpAddr::V4(v4) if v4.is_loopback() => Some("a loopback address"),
        IpAddr::V4(v4) if v4.is_link_local() => Some("a link-local address"),
        IpAddr::V4(v4) if v4.is_multicast() => Some("a multicast address"),
        IpAddr::V4(v4) if v4.is_broadcast() => Some("a broadcast address"),
        IpAddr::V4(v4) if v4.octets()[0] == 0 => Some("no address of a host"),
        IpAddr::V4(v4) if v4.octets()[0] >= 240 => Some("a reserved address"),
        IpAddr::V6(v6) => refused_v6(v6),
        IpAddr::V4(_) => None,
    }
}

fn refused_v6(v6: Ipv6Addr) -> Option<&'static str> {
    let parts = v6.segments();
    // ::a.b.c.d, 64:ff9b::a.b.c.d and 2002:ab:cd:: lead to an IPv4 address.
    let embedded = match parts {
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => Some((high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some((high, low)),
        [0x2002, high, low, ..] => Some((high, low)),
        _ => None,
    };
    if v6.is_loopback() {
        Some("a loopback address")
    } else if v6.is_unicast_link_local() {
        Some("a link-local address")
    } else if v6.is_multicast() {
        Some("a multicast address")
    } else if v6.is_unspecified() {
        Some("no address of a host")
    } else {
        let (high, low) = embedded?;
        let v4 = Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
        refused(IpAddr::V4(v4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_inside_the_machine_or_of_the_cloud_are_refused() {
        let bad = "127.0.0.1 127.9.9.9 169.254.169.254 169.254.1.1 0.0.0.0 0.1.2.3 224.0.0.1 255.255.255.255 250.0.0.1 \
                   100.100.100.200 168.63.129.16 192.0.0.192 ::1 :: fe80::1 ff02::1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 \
                   ::127.0.0.1 64:ff9b::7f00:1 2002:7f00:1:: fd00:ec2::254 fd20:ce::254";
        for text in bad.split_whitespace() {
            assert!(refused(text.parse().unwrap()).is_some(), "{text}");
        }
        for text in "10.0.0.1 192.168.1.1 8.8.8.8 fd00::1 2001:db8::1 64:ff9b::a00:1 ::ffff:10.0.0.1".split_whitespace()
        {
            assert_eq!(refused(text.parse().unwrap()), None, "{text}");
        }
    }
}
