//! What a seed decides: the installation, the faults, and what people and machines do, in order.

use crate::seeds;
use crate::world::Faults;

/// A namespace and the name of an object in it.
pub type Name = (&'static str, &'static str);

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    CreateAddress {
        name: Name,
        space: &'static str,
        address: &'static str,
        kind: &'static str,
        topic: Option<&'static str>,
        dead: Option<&'static str>,
        expiry: Option<&'static str>,
        when_empty: bool,
        plan: Option<&'static str>,
        /// Which forwarders it asks for.
        forwards: usize,
    },
    ChangePlan(Name, &'static str),
    ChangeSpacePlan(Name, &'static str),
    /// On how many brokers a queue of the larger plan is, and how many Addresses the smaller spaces may have.
    ConfigPlans {
        partitions: u64,
        room: u64,
    },
    /// A broker is to be emptied, or is no more.
    DrainBroker {
        broker: usize,
        drain: bool,
    },
    /// How a space is reached: not at all, inside the cluster, from outside as well.
    Endpoints(Name, usize),
    /// Somebody takes a Service away, or has it lead elsewhere.
    ServiceByHand {
        pick: u64,
        change: bool,
    },
    /// A space has a connector of this name, of this kind.
    Connect(Name, &'static str, usize),
    Disconnect(Name, &'static str),
    /// Which forwarders an Address asks for.
    Forward(Name, usize),
    /// Which remote hosts the first RouterConfig allows.
    ConfigConnectors(usize),
    /// Another password; known: the remote hosts take it, and cut: drop whoever came by an older one.
    RotateFarSecret {
        namespace: &'static str,
        known: bool,
        cut: bool,
    },
    DeleteFarSecret(&'static str),
    CreateFarSecret(&'static str),
    /// Remote hosts take the passwords that Secrets have now.
    FarLearns,
    /// A remote host goes away; where no time is given, for good.
    FarDown {
        host: &'static str,
        ms: Option<u64>,
    },
    FarUp,
    /// A remote host has no such address, or has it again.
    FarLacks {
        host: &'static str,
        address: &'static str,
        lacks: bool,
    },
    ChangeTtl(Name, u64),
    ChangeDeadLetter(Name, Option<&'static str>),
    ChangeConsumers(Name, u64),
    ChangeDeletionPolicy(Name, bool),
    DeleteAddress(Name),
    StripAddress(Name),
    ForceAddress(Name),
    /// A value in the spec that cannot be read; `false` mends it.
    SpoilAddress(Name, bool),
    CreateSpace(Name),
    DeleteSpace(Name),
    StripSpace(Name),
    ForceSpace(Name),
    CreateNamespace(&'static str),
    DeleteNamespace(&'static str),
    CreateConfig,
    DeleteConfig,
    ConfigTtl(Option<u64>),
    ConfigDeadLetter(bool),
    ConfigBrokers(usize),
    ConfigAllowed(bool),
    Resync,
    Prune,
    RotateSecret,
    DeleteSecret,
    CreateSecret,
    /// Messages arrive at every queue of the address.
    Send(Name, &'static str, u64),
    Drain(Name, &'static str),
    RemoveQueue(Name, &'static str),
    /// The broker refuses everything about this name.
    Refuse(Name, &'static str),
    Relent(Name, &'static str),
    /// Somebody else makes a queue of this name.
    Squat(Name, &'static str),
    Unsquat(Name, &'static str),
    /// A client receives from a multicast address.
    Attach(Name, &'static str),
    Detach(Name, &'static str),
    /// Nobody may read any more what the broker holds.
    Deny(usize),
    BrokerRestart {
        broker: usize,
        down_ms: u64,
        empty: bool,
    },
    BrokerHang {
        broker: usize,
        ms: u64,
    },
    BreakConnections(usize),
    /// It comes back empty, as every router does.
    RouterRestart {
        router: usize,
        down_ms: u64,
    },
    RouterHang {
        router: usize,
        ms: u64,
    },
    /// Every answer takes longer.
    RouterSlow {
        router: usize,
        by_ms: u64,
        ms: u64,
    },
    RouterCut(usize),
    /// Routers refuse everything about this name.
    RefuseRoute(Name, &'static str),
    RelentRoute(Name, &'static str),
    /// Somebody else makes a router address of this pattern.
    SquatRoute(Name, &'static str),
    UnsquatRoute(Name, &'static str),
    /// Somebody takes an entity away from a router, or changes it.
    Drift {
        router: usize,
        pick: u64,
        change: bool,
    },
    ConfigRouters(usize),
    Crash {
        replica: usize,
        down_ms: u64,
    },
    /// Right after so many more changes have been carried out.
    CrashAfter {
        changes: u64,
    },
    Stop {
        replica: usize,
        down_ms: u64,
    },
    ApiOutage(u64),
    CutWatches,
    /// Nobody can go on from where he was.
    Compact,
    StallWatches {
        replica: usize,
        ms: u64,
    },
    Snapshot,
    /// Back to the last snapshot; operators are started anew.
    Restore,
    /// Faults cease, everything comes to rest and is compared.
    Quiet,
    /// The same, then one cause is looked at by itself: no Address may be written for it.
    Measure(Cause),
}

/// What must not cost a single Address write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    OperatorRestart,
    Takeover,
    BrokerRestart {
        empty: bool,
    },
    BrokerOutage,
    Relist,
    /// Every router at once, or the first.
    RouterRestart {
        all: bool,
    },
    RouterOutage {
        all: bool,
    },
    RouterCut,
    /// Every remote host, for a while.
    FarOutage,
    /// The passwords for remote hosts change, and those know.
    FarRotation,
    /// What somebody does to the entity of this number is mended.
    Drift {
        pick: u64,
        change: bool,
    },
}

pub type Step = seeds::Step<Action>;

/// An installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    pub brokers: usize,
    /// None: spaces are of type brokered.
    pub routers: usize,
    /// One space is of type brokered though there are routers.
    pub mixed: bool,
    pub replicas: usize,
    /// The finalizer comes by admission.
    pub policy: bool,
    /// Lists come by the watch.
    pub stream: bool,
    pub page: u32,
    pub secret: bool,
    /// The first RouterConfig has tenancy Single.
    pub single: bool,
    /// There is a second RouterConfig with an owner of its own on the same brokers.
    pub second: bool,
    /// There are plans.
    pub planned: bool,
    /// The routers of the first RouterConfig are the endpoints of a Service.
    pub followed: bool,
    /// Spaces have endpoints.
    pub exposed: bool,
    /// Spaces have connectors to remote hosts.
    pub remote: bool,
    /// Routers enforce policies, without which none is made.
    pub policies: bool,
    pub faults: Faults,
}

/// All of it.
pub type Plan = seeds::Plan<Setup, Action>;

pub const NAMESPACES: [&str; 2] = ["red", "blue"];
pub const SPACES: [Name; 4] = [("red", "one"), ("red", "two"), ("blue", "one"), ("blue", "two")];

impl Setup {
    /// Whether nothing ever fails by itself: then writes are counted exactly.
    pub fn calm(&self) -> bool {
        self.faults.api == 0 && self.faults.broker == 0
    }
}
