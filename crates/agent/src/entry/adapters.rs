//! The list of adapters. To add one, write its folder below `adapters/` and add a line here.

use crate::adapters::{iree, loops, tvm};
use crate::recorder::adapter::Adapter;

/// All of them. The first whose source of runs is asked for decides.
pub static ADAPTERS: &[&Adapter] = &[&iree::ADAPTER, &tvm::ADAPTER, &loops::ADAPTER];
