//! Whole-system tests: one test binary that drives the real program.
