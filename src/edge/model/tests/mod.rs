mod backends;
mod conditions;
mod hosts;
mod options;
mod property;
mod routes;
pub(in crate::edge) mod support;
