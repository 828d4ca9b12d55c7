//! The custom resources of group `waystation.dev`: types, CEL rules, columns, conditions and reasons.
//!
//! Owns what a person writes and reads. Nothing here decides anything: `messaging` does, on values of its own that
//! `cluster` makes from these. Whoever speaks to Kubernetes may import this module; models and drives may not.
//!
//! Invariants: every field that the schema has takes effect; `crds/*.yaml` is what [`crds::all`] prints; a stored
//! object whose enum value this version does not know still decodes (as `Unknown`), so that it cannot stop a watch.

pub mod address;
pub mod address_space;
pub mod conditions;
pub mod connector;
pub mod crds;
pub mod duration;
pub mod plans;
pub mod reasons;
pub mod router_config;
pub mod settings;

pub use address::{Address, AddressSpec, AddressStatus};
pub use address_space::{AddressSpace, AddressSpaceSpec, AddressSpaceStatus};
pub use conditions::{ConditionValue, set_condition};
pub use duration::{DurationText, format_duration, parse_duration};
pub use reasons::{
    AddressReason, AddressSpaceReason, ConnectorReason, EdgeReason, ForwarderReason, RouterConfigReason,
};
pub use router_config::{RouterConfig, RouterConfigSpec, RouterConfigStatus};

/// API group of all kinds.
pub const GROUP: &str = "waystation.dev";
/// The one served and stored version.
pub const VERSION: &str = "v1alpha1";

/// Installation that a RouterConfig belongs to when it names none.
pub const DEFAULT_CONTROLLER: &str = "waystation";

/// Finalizer of an Address: held until every data plane has acknowledged the removal.
pub const ADDRESS_FINALIZER: &str = "waystation.dev/address";
/// Finalizer of an AddressSpace: held while the space has Addresses.
pub const ADDRESS_SPACE_FINALIZER: &str = "waystation.dev/address-space";
/// Finalizer of a RouterConfig: held while AddressSpaces refer to it.
pub const ROUTER_CONFIG_FINALIZER: &str = "waystation.dev/router-config";

/// On an Address, its AddressSpace or its RouterConfig: `"true"` lets a deletion go on without a broker that cannot
/// be reached.
pub const FORCE_DELETE_ANNOTATION: &str = "waystation.dev/force-delete";
/// On a RouterConfig: any new value destroys the orphans counted in status once; the value handled last is in
/// `status.orphansPruned`.
pub const PRUNE_ORPHANS_ANNOTATION: &str = "waystation.dev/prune-orphans";
/// On a RouterConfig: any new value makes the operator read and compare every data plane once; the value handled
/// last is in `status.resynced`.
pub const RESYNC_ANNOTATION: &str = "waystation.dev/resync";
