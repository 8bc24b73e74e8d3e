//! A pure function from a snapshot and an evaluation to a plan, with explanations.
