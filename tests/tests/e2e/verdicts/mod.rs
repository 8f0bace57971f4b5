//! From a suspect to the verdict, whatever kind of suite it is.

mod confirm;
mod crash;
mod gate;
mod hunt;
mod ids;
mod waivers;
