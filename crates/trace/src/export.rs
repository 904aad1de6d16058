//! Timelines from profiles: what a profile holds, given to a
//! [`TimelineSink`](crate::timeline::TimelineSink) or written as a file.

pub mod activities;
pub mod calls;
pub mod dispatch;
pub mod filter;
pub(crate) mod kinds;
mod relay;
pub mod tracks;
