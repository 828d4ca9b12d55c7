mod backends;
mod conditions;
mod hosts;
mod options;
mod property;
mod routes;
pub(crate) mod support;
