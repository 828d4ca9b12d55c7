//! `waystation-dev`: what `dev/cluster` and `dev/demo` call.

fn main() {}
