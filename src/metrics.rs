//! Counters, gauges and histograms.
