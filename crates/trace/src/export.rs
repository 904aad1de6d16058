//! Makes timelines from profiles, for a [`TimelineSink`](crate::timeline::TimelineSink) or a file.

pub mod activities;
pub mod calls;
pub mod facts;
pub mod filter;
pub mod kinds;
pub mod loops;
pub mod members;
mod relay;
pub mod tracks;
