//! Whole-system tests live in `tests/`: one binary that drives the real program.
