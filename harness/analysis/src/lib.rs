//! From frames to verdicts: deltas, growth, leak groups, signatures, the gate
