//! The list of adapters. To add one, write its folder below `adapters/` and add a line here.

use crate::adapters::{announced, iree, loops, plugins, torch, tvm};
use crate::recorder::adapter::Adapter;

/// All adapters. The run comes from the first one whose source of runs is asked for.
pub static ADAPTERS: &[&Adapter] = &[
    &iree::ADAPTER,
    &tvm::ADAPTER,
    &torch::ADAPTER,
    &announced::ADAPTER,
    &loops::ADAPTER,
    &plugins::ADAPTER,
];
