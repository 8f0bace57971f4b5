//! The builds that start JVMs, and real frameworks and libraries in them.

mod agentless;
mod forks;
mod gradle;
mod historic;
mod maven;
mod reactor;
mod robolectric;
mod unchanged;
