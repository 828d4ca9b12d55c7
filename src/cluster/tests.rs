//! What the tests of this module share.

pub mod api_server;
