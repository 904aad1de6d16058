//! The list of adapters. To add one, write its folder below `adapters/` and add a line here.

use crate::adapters::{announced, iree, loops, plugins, torch, tvm};
use crate::recorder::adapter::Adapter;

/// An adapter can have its own environment variables that ask for a profile (`run_source`). If
/// several adapters are asked for a profile, the first of them in the list is used.
pub static ADAPTERS: &[&Adapter] = &[
    &iree::ADAPTER,
    &tvm::ADAPTER,
    &torch::ADAPTER,
    &announced::ADAPTER,
    &loops::ADAPTER,
    &plugins::ADAPTER,
];
