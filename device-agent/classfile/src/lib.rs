//! Inserts calls into a Java class file as it is loaded.
//!
//! Data flow: [`insert_calls`] reads the class once ([`class::Class`]: constant pool, methods,
//! their code), finds for each [`Call`] the one place it asks for, appends the constants the calls
//! need after the pool, and copies everything else unchanged. Nothing is computed again: no jump
//! moves relative to another, no stack map changes. A class in which that cannot be done is
//! refused, and stays as it is.
//!
//! The only user is the agent's hook of `org.junit.runner.notification.RunNotifier`; input is
//! whatever a class loader defines. Source of the layout: The Java Virtual Machine Specification,
//! chapter 4.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::arithmetic_side_effects)
)]

mod class;
mod insert;

pub use insert::{Call, Place, insert_calls};

/// Why a class is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It ends too early, or a length in it makes no sense.
    #[error("it is damaged at byte {0}")]
    Damaged(usize),
    /// The method is not there, or has no code.
    #[error("the method is missing")]
    NoMethod,
    /// The code is of another shape than a call can be inserted into.
    #[error("its code is of another shape: {0}")]
    Shape(&'static str),
    /// The constant pool has no room for the constants a call needs.
    #[error("its constant pool is full")]
    Full,
}
