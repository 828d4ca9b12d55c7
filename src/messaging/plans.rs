//! What an Address costs, and how much a space may have. All sums are of whole thousandths of a credit.

use std::fmt;
use std::sync::Arc;

use super::input::{AddressType, Defaults, Redelivery, Ttl};

/// `messaging.addressPlans[]`.
#[derive(Clone, Debug, PartialEq)]
pub struct AddressPlan {
    /// Its name.
    pub name: Arc<str>,
    /// The types that it fits.
    pub types: Vec<AddressType>,
    /// Thousandths.
    pub router: i64,
    /// Thousandths.
    pub broker: i64,
    /// How many brokers hold a queue.
    pub partitions: usize,
    /// For queues and topics without one.
    pub ttl: Ttl,
    /// For queues and topics without one.
    pub redelivery: Redelivery,
}

/// `messaging.spacePlans[]`.
#[derive(Clone, Debug, PartialEq)]
pub struct SpacePlan {
    /// Its name.
    pub name: Arc<str>,
    /// How much its spaces may have.
    pub limits: Limits,
    /// Address plans that it allows; none: all.
    pub allowed: Vec<Arc<str>>,
}

/// What a data plane is asked for, or has given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Charge {
    /// Addresses.
    pub addresses: i64,
    /// Thousandths of router credit.
    pub router: i64,
    /// Thousandths of broker credit.
    pub broker: i64,
}

impl Charge {
    /// What an address of this plan takes.
    pub fn of(plan: Option<&AddressPlan>, kind: AddressType, standard: bool) -> Self {
        let Some(plan) = plan else { return Self { addresses: 1, router: 0, broker: 0 } };
        let stored = !standard || super::entry::stored(kind);
        Self {
            addresses: 1,
            router: if standard { plan.router } else { 0 },
            broker: if stored { plan.broker } else { 0 },
        }
    }

    /// The sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            addresses: self.addresses + other.addresses,
            router: self.router + other.router,
            broker: self.broker + other.broker,
        }
    }

    /// The difference.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            addresses: self.addresses - other.addresses,
            router: self.router - other.router,
            broker: self.broker - other.broker,
        }
    }

    fn on(self, limit: Limit) -> i64 {
        match limit {
            Limit::Addresses => self.addresses,
            Limit::Router => self.router,
            Limit::Broker => self.broker,
            Limit::Aggregate => self.router + self.broker,
        }
    }
}

/// The kinds of limits, in the order in which they are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// Number of Addresses.
    Addresses,
    /// Sum of router credits.
    Router,
    /// Sum of broker credits.
    Broker,
    /// Sum of both.
    Aggregate,
}

impl Limit {
    const ALL: [Self; 4] = [Self::Addresses, Self::Router, Self::Broker, Self::Aggregate];

    /// A number of this kind, with its unit.
    fn amount(self, amount: i64) -> String {
        match self {
            Self::Addresses if amount == 1 => "1 Address".to_owned(),
            Self::Addresses => format!("{amount} {}", if amount == 1 { "Address" } else { "Addresses" }),
            Self::Router => format!("{} router credit", Credit(amount)),
            Self::Broker => format!("{} broker credit", Credit(amount)),
            Self::Aggregate => format!("{} router and broker credit together", Credit(amount)),
        }
    }
}

/// How much a space may have; `None`: any amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Addresses.
    pub addresses: Option<i64>,
    /// Thousandths of router credit.
    pub router: Option<i64>,
    /// Thousandths of broker credit.
    pub broker: Option<i64>,
    /// Thousandths of both together.
    pub aggregate: Option<i64>,
}

impl Limits {
    /// No more than there is.
    pub const NOTHING: Self = Self { addresses: Some(0), router: Some(0), broker: Some(0), aggregate: Some(0) };

    fn get(&self, limit: Limit) -> Option<i64> {
        match limit {
            Limit::Addresses => self.addresses,
            Limit::Router => self.router,
            Limit::Broker => self.broker,
            Limit::Aggregate => self.aggregate,
        }
    }

    /// The limits that have no room for `more` beside `used`. What is not asked for is not looked at, so that whoever
    /// gives something back always fits.
    pub fn exceeded(&self, used: Charge, more: Charge) -> impl Iterator<Item = Exceeded> + use<> {
        let limits = *self;
        Limit::ALL.into_iter().filter_map(move |limit| {
            let most = limits.get(limit)?;
            let (used, asked) = (used.on(limit), more.on(limit));
            (asked > 0 && used + asked > most).then_some(Exceeded { limit, most, used, asked })
        })
    }

    /// The limit that `used` is beyond already, in words.
    pub fn overdrawn(&self, used: Charge) -> Option<String> {
        let over = |limit: &Limit| self.get(*limit).filter(|most| used.on(*limit) > *most);
        Limit::ALL.iter().find_map(|limit| Some(limit.amount(over(limit)?)))
    }

    /// Whether `more` fits beside `used`.
    pub fn fits(&self, used: Charge, more: Charge) -> bool {
        self.exceeded(used, more).next().is_none()
    }
}

/// A limit that has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    limit: Limit,
    most: i64,
    used: i64,
    asked: i64,
}

impl Exceeded {
    /// Which one.
    pub fn limit(&self) -> Limit {
        self.limit
    }

    /// What is asked and what there is in all, which stays the same while others come and go.
    pub fn head(&self, plan: &str, space: &str) -> String {
        let (most, asked) = (self.limit.amount(self.most), self.limit.amount(self.asked));
        format!("plan {plan} of AddressSpace {space} has room for {most}, and this asks for {asked} more: ")
    }

    /// What there was when it was asked, and the remedy.
    pub fn tail(&self) -> String {
        let used = self.limit.amount(self.used);
        format!("{used} were in use; delete Addresses of the space, or give it a larger plan, and it follows by itself")
    }
}

/// Thousandths as people write them.
struct Credit(i64);

impl fmt::Display for Credit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1_000, self.0 % 1_000);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let text = format!("{whole}.{rest:03}");
        f.write_str(text.trim_end_matches('0'))
    }
}

impl AddressPlan {
    /// The defaults of a RouterConfig with those of the plan laid over them.
    pub fn over(&self, below: &Defaults) -> Defaults {
        Defaults {
            message_ttl: self.ttl.or(below.message_ttl),
            redelivery: self.redelivery.or(below.redelivery),
            ..below.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USED: Charge = Charge { addresses: 9, router: 500, broker: 1_250 };

    #[test]
    fn each_limit_is_held_by_itself_and_named_with_its_numbers() {
        let more = Charge { addresses: 1, router: 250, broker: 1_000 };
        let cases = [
            (Limits { addresses: Some(9), ..Limits::default() }, "room for 9 Addresses, and this asks for 1 Address"),
            (Limits { router: Some(749), ..Limits::default() }, "room for 0.749 router credit, and this asks for 0.25"),
            (
                Limits { broker: Some(2_000), ..Limits::default() },
                "room for 2 broker credit, and this asks for 1 broker",
            ),
            (Limits { aggregate: Some(2_999), ..Limits::default() }, "2.999 router and broker credit together"),
        ];
        for (limits, says) in cases {
            let exceeded: Vec<Exceeded> = limits.exceeded(USED, more).collect();
            assert_eq!(exceeded.len(), 1, "{limits:?}");
            let head = exceeded[0].head("team", "shop");
            assert!(head.contains(says), "{head}");
        }
        let room = Limits { addresses: Some(10), router: Some(750), broker: Some(2_250), aggregate: Some(3_000) };
        assert!(room.fits(USED, more));
    }

    #[test]
    fn who_gives_back_always_fits() {
        let less = Charge { addresses: 0, router: -1, broker: 0 };
        assert!(Limits::NOTHING.fits(USED, less));
        assert!(!Limits::NOTHING.fits(USED, Charge { broker: 1, ..less }));
    }
}
