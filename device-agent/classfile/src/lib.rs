//! Inserts calls into a Java class file as it is loaded.
//!
//! Data flow: [`insert_calls`] reads the class once ([`class::Class`]: constant pool, methods, their code), finds the
//! position of each [`Call`], appends the constants of the calls to the constant pool, and copies everything else
//! unchanged. Nothing is recomputed: no jump moves relative to another, and no stack map changes. A class in which that
//! is not possible is refused and not changed.
//!
//! The only user is the agent's hook of `org.junit.runner.notification.RunNotifier`. The input is any class that a
//! class loader defines. Source of the layout: The Java Virtual Machine Specification, chapter 4.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::arithmetic_side_effects)
)]

mod class;
mod insert;

pub use insert::{Call, Place, insert_calls};

/// The reason why a class is not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It ends too early, or contains an invalid length.
    #[error("it is damaged at byte {0}")]
    Damaged(usize),
    /// The method is missing, or has no code.
    #[error("the method is missing")]
    NoMethod,
    /// A call cannot be inserted into code of this shape.
    #[error("its code is of another shape: {0}")]
    Shape(&'static str),
    /// The constant pool has no room for the constants a call needs.
    #[error("its constant pool is full")]
    Full,
}
