//! Tests of descriptions.
