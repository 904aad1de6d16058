//! Timelines from profiles: gives the contents of a profile to a [`Sink`](crate::timeline::Sink),
//! or writes them to a file.

pub mod activities;
pub mod calls;
pub mod dispatch;
pub mod filter;
mod relay;
pub mod tracks;
