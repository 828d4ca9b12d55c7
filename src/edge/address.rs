//! Addresses that no tenant may be led to, and lists of networks as keys of a map that finds the longest prefix.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Entries that a list may have; a longer one is refused as a whole.
pub const MAX_NETWORKS: usize = 1000;

pub use crate::off_limits::refused;

/// A network: an address and how many of its leading bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Network {
    v6: bool,
    /// The bits, from the top; those that do not count are 0.
    bits: u128,
    length: u8,
}

impl Network {
    /// Parses `10.0.0.0/8`, `2001:db8::/32`, or an address alone. Bits behind the length are ignored.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| format!("{text:?} is neither an address nor a network"))?;
        let (v6, bits, width) = match address {
            IpAddr::V4(v4) => (false, u128::from(u32::from(v4)) << 96, 32),
            IpAddr::V6(v6) => (true, u128::from(v6), 128),
        };
        let length = match length {
            None => width,
            Some(length) if length.bytes().all(|b| b.is_ascii_digit()) => {
                length.parse().ok().filter(|l| *l <= width).ok_or(format!("{text:?}: at most /{width}"))?
            }
            Some(_) => return Err(format!("{text:?}: the length is no number")),
        };
        let mask = if length == 0 { 0 } else { u128::MAX << (128 - u32::from(length)) };
        Ok(Self { v6, bits: bits & mask, length })
    }

    fn covers(&self, other: &Self) -> bool {
        let mask = if self.length == 0 { 0 } else { u128::MAX << (128 - u32::from(self.length)) };
        self.v6 == other.v6 && self.length <= other.length && other.bits & mask == self.bits
    }

    /// The hexadecimal prefixes, as HAProxy's `src,hex` writes addresses, that together are this network. An IPv6 key
    /// starts with `6`, an IPv4 one with `4`.
    fn prefixes(&self) -> Vec<String> {
        let family = if self.v6 { '6' } else { '4' };
        let digits = usize::from(self.length.div_ceil(4));
        let spare = digits * 4 - usize::from(self.length);
        let hex = format!("{:032X}", self.bits);
        if spare == 0 {
            return vec![format!("{family}{}", &hex[..digits])];
        }
        let last = u8::from_str_radix(&hex[digits - 1..digits], 16).unwrap_or(0);
        (0..1_u8 << spare).map(|i| format!("{family}{}{:X}", &hex[..digits - 1], last + i)).collect()
    }
}

/// A list of networks; what is not in it is not meant. A network may be taken out of a larger one again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Networks(BTreeMap<Network, bool>);

impl Networks {
    /// Parses networks separated by commas or blanks; `!` before one takes it out of a larger one.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut networks = BTreeMap::new();
        for word in text.split([',', ' ', '\n', '\t', '\r']).filter(|w| !w.is_empty()) {
            let (word, inside) = match word.strip_prefix('!') {
                Some(word) => (word, false),
                None => (word, true),
            };
            let entry = networks.entry(Network::parse(word)?).or_insert(inside);
            // The same network both ways: out.
            *entry &= inside;
            if networks.len() > MAX_NETWORKS {
                return Err(format!("more than {MAX_NETWORKS} networks"));
            }
        }
        if networks.is_empty() {
            return Err("no network is named".into());
        }
        if !networks.values().any(|inside| *inside) {
            // A list of exceptions alone means all but these.
            for all in ["0.0.0.0/0", "::/0"] {
                networks.entry(Network::parse(all)?).or_insert(true);
            }
        }
        Ok(Self(networks))
    }

    /// What the longest network that covers this one says.
    fn says(&self, network: &Network) -> bool {
        self.0
            .iter()
            .filter(|(n, _)| n.covers(network))
            .max_by_key(|(n, _)| n.length)
            .is_some_and(|(_, inside)| *inside)
    }

    /// Addresses that are in both lists.
    pub fn and(&self, other: &Self) -> Self {
        let all = self.0.keys().chain(other.0.keys());
        Self(all.map(|n| (*n, self.says(n) && other.says(n))).collect())
    }

    /// Addresses that are in either list.
    pub fn or(&self, other: &Self) -> Self {
        let all = self.0.keys().chain(other.0.keys());
        Self(all.map(|n| (*n, self.says(n) || other.says(n))).collect())
    }

    /// Whether an address is in the list.
    pub fn contains(&self, address: IpAddr) -> bool {
        Network::parse(&address.to_string()).is_ok_and(|n| self.says(&n))
    }

    /// Keys of a longest-prefix map, with whether they are in: `4` or `6` and the leading hexadecimal digits.
    pub fn keys(&self) -> BTreeMap<String, bool> {
        let mut keys = BTreeMap::new();
        // Longer networks later: within one hexadecimal digit they override the shorter one.
        let mut sorted: Vec<_> = self.0.iter().collect();
        sorted.sort_by_key(|(n, _)| n.length);
        for (network, inside) in sorted {
            for key in network.prefixes() {
                keys.insert(key, *inside);
            }
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(networks: &Networks, address: &str) -> bool {
        let address: IpAddr = address.parse().unwrap();
        let text = match address {
            IpAddr::V4(v4) => format!("4{:08X}", u32::from(v4)),
            IpAddr::V6(v6) => format!("6{:032X}", u128::from(v6)),
        };
        let keys = networks.keys();
        let hit = keys.iter().filter(|(k, _)| text.starts_with(k.as_str())).max_by_key(|(k, _)| k.len());
        let found = hit.is_some_and(|(_, inside)| *inside);
        assert_eq!(found, networks.contains(address), "{address}");
        found
    }

    #[test]
    fn networks_become_hexadecimal_prefixes() {
        let list = Networks::parse("10.0.0.0/8, 192.168.4.0/22 2001:db8::/33,1.2.3.4").unwrap();
        for inside in ["10.255.1.1", "192.168.7.255", "2001:db8:7fff::1", "1.2.3.4"] {
            assert!(found(&list, inside), "{inside}");
        }
        for outside in ["11.0.0.1", "192.168.8.0", "192.168.3.255", "2001:db8:8000::1", "1.2.3.5", "::1"] {
            assert!(!found(&list, outside), "{outside}");
        }
    }

    #[test]
    fn a_network_is_taken_out_of_a_larger_one() {
        let list = Networks::parse("10.0.0.0/8,!10.1.0.0/18,10.1.2.3").unwrap();
        assert!(found(&list, "10.2.0.1") && found(&list, "10.1.2.3") && found(&list, "10.1.64.1"));
        assert!(!found(&list, "10.1.0.1") && !found(&list, "10.1.63.255"));
        let all_but = Networks::parse("!10.0.0.0/7").unwrap();
        assert!(found(&all_but, "9.0.0.1") && found(&all_but, "::1"));
        assert!(!found(&all_but, "11.0.0.1"));
        // Inside one digit, and the whole of it.
        let odd = Networks::parse("0.0.0.0/1,!64.0.0.0/3").unwrap();
        assert!(found(&odd, "1.0.0.1") && !found(&odd, "65.0.0.1") && !found(&odd, "128.0.0.1"));
    }

    #[test]
    fn lists_are_joined() {
        let a = Networks::parse("10.0.0.0/8,!10.9.0.0/16").unwrap();
        let b = Networks::parse("10.8.0.0/13,192.168.0.0/16").unwrap();
        let (both, either) = (a.and(&b), a.or(&b));
        assert!(found(&both, "10.8.1.1") && !found(&both, "10.9.1.1") && !found(&both, "10.1.1.1"));
        assert!(found(&either, "10.9.1.1") && found(&either, "10.1.1.1") && found(&either, "192.168.1.1"));
        assert!(!found(&either, "11.0.0.1") && !found(&both, "192.168.1.1"));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/8/8", "10.0.0.0/+8", "a", ",", "10.0.0.0/"] {
            assert!(Networks::parse(text).is_err(), "{text:?}");
        }
        let many: Vec<String> = (0..=MAX_NETWORKS).map(|i| format!("10.0.{}.{}", i / 256, i % 256)).collect();
        assert!(Networks::parse(&many.join(",")).is_err());
        assert!(Networks::parse(&many[1..].join(",")).is_ok());
    }
}
