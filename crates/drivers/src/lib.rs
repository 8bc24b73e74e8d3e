//! The Driver trait with its conformance suite; raw_exec, exec and mock.
