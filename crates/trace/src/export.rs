//! Makes timelines from profiles: passes the content of a profile to a
//! [`TimelineSink`](crate::timeline::TimelineSink), or writes it to a file.

pub mod activities;
pub mod calls;
pub mod facts;
pub mod filter;
pub mod kinds;
pub mod loops;
pub mod members;
mod relay;
pub mod tracks;
