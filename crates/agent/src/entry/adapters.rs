//! The list of adapters. To add one, write its folder below `adapters/` and add a line here.

use crate::adapters::{announced, iree, loops, plugins, torch, tvm};
use crate::recorder::adapter::Adapter;

/// If the environment asks for a profile in the ways of several adapters (`run_source`), the first
/// one in this list is used.
pub static ADAPTERS: &[&Adapter] = &[
    &iree::ADAPTER,
    &tvm::ADAPTER,
    &torch::ADAPTER,
    &announced::ADAPTER,
    &loops::ADAPTER,
    &plugins::ADAPTER,
];
