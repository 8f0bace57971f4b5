//! What Android's malloc_debug writes and lists.

mod captures;
mod lists;
mod symbols;
