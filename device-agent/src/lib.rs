//! The agent that is loaded into the tested process
