//! memgate.yaml: settings, checks, JSON Schema
