//! Compares the layouts of the interface's structs: in our header as C and as C++, in the published
//! header as it was measured, and in the Rust mirror.

use std::mem::{offset_of, size_of};
use std::process::Command;

use abi::kineto::{
    ConfigureParams, Counter, CreateParams, Extension, HandleParams, Host, ProcessParams,
    ProfileDeviceInfo, ProfileEvent, ProfileEventFlow, ProfileResourceInfo, ProfilerInterface,
    PushParams, QueryParams, Registry, ToggleParams, TraceBuilder,
};
use testkit::{Scratch, c};

/// The layouts of the published structs, measured with a compiler on x86-64: size, size without
/// padding, offsets.
const PUBLISHED: &str = include_str!("layout.txt");

fn line<T>(name: &str, unpadded: usize) -> String {
    format!("{name} {}/{unpadded}\n", size_of::<T>())
}

fn mirror() -> String {
    let at = |name: &str, offset: usize| format!("{name} {offset}\n");
    [
        line::<ProfileEvent>("ProfileEvent", ProfileEvent::SIZE),
        at("ProfileEvent.eventType", offset_of!(ProfileEvent, event_type)),
        at("ProfileEvent.startTimeUtcNs", offset_of!(ProfileEvent, start_ns)),
        at("ProfileEvent.endTimeUtcNs", offset_of!(ProfileEvent, end_ns)),
        at("ProfileEvent.eventId", offset_of!(ProfileEvent, id)),
        at("ProfileEvent.processId", offset_of!(ProfileEvent, device)),
        at("ProfileEvent.threadId", offset_of!(ProfileEvent, resource)),
        line::<ProfileEventFlow>("ProfileEventFlow", ProfileEventFlow::SIZE),
        at("ProfileEventFlow.flowType", offset_of!(ProfileEventFlow, flow_type)),
        at("ProfileEventFlow.flowId", offset_of!(ProfileEventFlow, id)),
        at("ProfileEventFlow.isStartPoint", offset_of!(ProfileEventFlow, is_start)),
        line::<ProfileDeviceInfo>("ProfileDeviceInfo", ProfileDeviceInfo::SIZE),
        at("ProfileDeviceInfo.pLabel", offset_of!(ProfileDeviceInfo, label)),
        line::<ProfileResourceInfo>("ProfileResourceInfo", ProfileResourceInfo::SIZE),
        at("ProfileResourceInfo.displayOrder", offset_of!(ProfileResourceInfo, order)),
        at("ProfileResourceInfo.pName", offset_of!(ProfileResourceInfo, name)),
        line::<TraceBuilder>("TraceBuilder", TraceBuilder::SIZE),
        at("TraceBuilder.addResourceInfo", offset_of!(TraceBuilder, add_resource)),
        line::<CreateParams>("ProfilerCreate_Params", CreateParams::SIZE),
        at("ProfilerCreate_Params.pEnabledActivityTypes", offset_of!(CreateParams, types)),
        line::<HandleParams>("ProfilerStop_Params", HandleParams::SIZE),
        line::<QueryParams>("ProfilerQuery_Params", QueryParams::SIZE),
        at("ProfilerQuery_Params.pSupportedActivityTypes", offset_of!(QueryParams, types)),
        line::<ProcessParams>("ProfilerProcessEvents_Params", ProcessParams::SIZE),
        line::<PushParams>("ProfilerPushCorrelationId_Params", PushParams::SIZE),
        at("ProfilerPushCorrelationId_Params.correlationId", offset_of!(PushParams, id)),
        at("ProfilerPushCorrelationId_Params.pProfilerHandle", offset_of!(PushParams, profiler)),
        line::<ProfilerInterface>("ProfilerInterface", ProfilerInterface::SIZE),
        at(
            "ProfilerInterface.profilerPushCorrelationId",
            offset_of!(ProfilerInterface, push_correlation),
        ),
        at(
            "ProfilerInterface.profilerProcessEvents",
            offset_of!(ProfilerInterface, process_events),
        ),
        line::<Registry>("Registry", Registry::SIZE),
    ]
    .concat()
}

fn extension() -> String {
    [
        line::<Counter>("Counter", Counter::SIZE),
        line::<Host>("Host", Host::SIZE),
        line::<ConfigureParams>("Configure_Params", ConfigureParams::SIZE),
        line::<ToggleParams>("Toggle_Params", ToggleParams::SIZE),
        line::<Extension>("Extension", Extension::SIZE),
    ]
    .concat()
}

#[test]
fn layouts_are_the_published_ones() {
    let scratch = Scratch::new();
    let program = scratch.join("layout");
    for (compiler, flags) in [
        ("gcc", &["-std=c11", "-pedantic"][..]),
        ("clang", &["-std=c11", "-pedantic"]),
        ("g++", &["-std=c++17", "-pedantic", "-x", "c++"]),
    ] {
        // `-x c++` applies only to the source files that follow it.
        let Some(()) = compile_with(compiler, flags, &program) else {
            testkit::skip("layout", &format!("no {compiler}"));
            continue;
        };
        let output = Command::new(&program).output().expect("runs");
        let printed = String::from_utf8(output.stdout).expect("text");
        assert_eq!(printed, format!("{PUBLISHED}{}", extension()), "{compiler}");
    }
    assert_eq!(mirror(), PUBLISHED);
}

fn compile_with(compiler: &str, flags: &[&str], to: &std::path::Path) -> Option<()> {
    let mut command = Command::new(c::compiler(compiler)?);
    command.args(["-Wall", "-Wextra", "-Werror"]).args(flags).arg("-I").arg(c::folder("include"));
    command.arg(c::folder("tests/programs/plugins/layout.c")).arg("-o").arg(to);
    let output = command.output().ok()?;
    assert!(output.status.success(), "{compiler}: {}", String::from_utf8_lossy(&output.stderr));
    Some(())
}
