//! AMQP 1.0 connections and management requests.
