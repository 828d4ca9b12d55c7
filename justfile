# Recipes only call what people and CI call.

# List the recipes
[private]
default:
    @just --list --unsorted

# Format the code
fmt:
    cargo fmt --all

# Lints, as CI sees them
lint:
    cargo clippy --workspace --all-targets -- -D warnings

# Everything that CI runs
test:
    ./dev/test

# What needs no control plane and no broker
test-fast:
    ./dev/test --fast

# Write the generated files anew
generate:
    cargo run --quiet --bin waystation -- crds --dir crds
    cargo run --quiet --bin waystation -- crds --dir charts/waystation-crds/files

# The whole story on one screen
demo *arguments:
    ./dev/demo {{ arguments }}

# Measure: just bench address-add --size 1000
bench *arguments:
    ./dev/bench {{ arguments }}

# Start a control plane to work with
cluster-up *arguments:
    ./dev/cluster up {{ arguments }}

# Stop it
cluster-down:
    ./dev/cluster down
