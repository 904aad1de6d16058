//! Timelines from profiles: what a profile holds, given to a [`Sink`](crate::timeline::Sink) or
//! written as a file.

pub mod activities;
pub mod calls;
pub mod dispatch;
pub mod filter;
pub mod loops;
mod relay;
pub mod tracks;
