//! The agent in a virtual machine.

mod attach;
mod dormant;
mod follow;
mod foreign;
mod idle;
mod killed;
mod soak;
