//! Tests of the model: behaviour by behaviour, and a property that holds incremental equal to full.

mod addresses;
mod api_server;
mod broker_secrets;
mod brokers;
mod deletions;
mod draining;
mod drives;
mod endpoints;
mod keeping;
mod links;
mod logging;
mod missing;
mod moving;
mod peer;
mod people;
mod plans;
mod property;
mod remote_secrets;
mod remotes;
mod router_peer;
mod routers;
mod samples;
mod services;
mod steps;
mod twins;
mod world;
