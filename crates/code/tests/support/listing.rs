//! Reads a disassembler's listing. This module uses nothing of the crate under test.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::Compiler;

#[derive(Clone, Debug, Default)]
pub struct Line {
    /// The instruction's length in bytes.
    pub length: u64,
    /// The address to which the instruction jumps. Empty for an indirect jump, and if the
    /// instruction is no jump.
    pub targets: Vec<u64>,
    /// Whether execution may continue with the instruction at the next address.
    pub falls: bool,
    pub loads: bool,
    pub stores: bool,
    pub branch: bool,
    pub call: bool,
    pub scalar: bool,
    /// For 64, 128, 256 and 512 bits: whether the instruction's widest vector has this width.
    pub vector: [bool; 4],
}

/// Returns the instructions of the object file by their addresses.
pub fn of(compiler: &Compiler, object: &Path) -> BTreeMap<u64, Line> {
    let mut lines: BTreeMap<u64, Line> = BTreeMap::new();
    for text in compiler.disassembled(object).lines() {
        let Some((address, rest)) = text.split_once(':') else { continue };
        let Ok(address) = u64::from_str_radix(address.trim(), 16) else { continue };
        let mut fields = rest.trim_start().splitn(2, '\t');
        let bytes = fields.next().unwrap_or_default();
        let length = match compiler.is_arm {
            true => 4,
            false => bytes.split_whitespace().count() as u64,
        };
        let Some(code) = fields.next() else {
            // This line has no instruction, but further bytes of the instruction before it.
            let Some(mut last) = lines.last_entry() else { continue };
            if *last.key() + last.get().length == address && !compiler.is_arm {
                last.get_mut().length += length;
            }
            continue;
        };
        let code = code.split(['#', '<']).next().unwrap_or_default();
        // For AArch64, LLVM's disassembler writes comments with `//` and immediates with `#`.
        let code =
            if compiler.is_arm { rest.trim_start().split_once('\t').unwrap().1 } else { code };
        let code = code.split("//").next().unwrap_or_default().trim();
        let (name, operands) = code.split_once(char::is_whitespace).unwrap_or((code, ""));
        let line = match compiler.is_arm {
            true => arm(name, operands.trim()),
            false => x86(name, operands.trim()),
        };
        lines.insert(address, Line { length, ..line });
    }
    assert!(!lines.is_empty(), "{} lists nothing", object.display());
    lines
}

/// Splits operands at the commas outside of brackets.
fn split(operands: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (i, letter) in operands.char_indices() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                all.push(operands[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    all.push(operands[start..].trim());
    all
}

fn target(operand: &str) -> Option<u64> {
    let first = operand.split_whitespace().next()?;
    u64::from_str_radix(first.trim_start_matches("0x"), 16).ok()
}

fn x86(name: &str, operands: &str) -> Line {
    // If `name` is a prefix, the instruction's name follows it.
    if matches!(
        name,
        "cs" | "data16" | "rep" | "repz" | "lock" | "notrack" | "ds" | "es" | "addr32"
    ) {
        let (name, operands) = operands.split_once(' ').unwrap_or((operands, ""));
        return x86(name, operands.trim());
    }
    let mut line = Line { falls: true, ..Line::default() };
    if name.starts_with('j') {
        line.branch = true;
        line.falls = name != "jmp";
        line.targets = target(operands).into_iter().collect();
        line.loads = operands.starts_with('*') && operands.contains('(');
        return line;
    }
    if name.starts_with("call") {
        line.call = true;
        line.loads = operands.starts_with('*') && operands.contains('(');
        return line;
    }
    if name.starts_with("ret") || name.starts_with("ud") || name == "hlt" {
        line.falls = false;
        return line;
    }
    let all = split(operands);
    for (width, register) in [(1, "%xmm"), (2, "%ymm"), (3, "%zmm")] {
        if operands.contains(register) {
            line.vector = [false; 4];
            line.vector[width] = true;
        }
    }
    let ends_scalar = ["ss", "sd"].iter().any(|end| name.ends_with(end));
    // Conversions from integers may have another suffix, as in `cvtsi2sdq`.
    let converts = ["cvtsi2ss", "cvtsi2sd"]
        .iter()
        .any(|start| name.trim_start_matches('v').starts_with(start));
    if line.vector[1] && (ends_scalar || converts) && !name.starts_with("vbroadcast") {
        line.vector = [false; 4];
        line.scalar = true;
    }
    if name.starts_with("nop") || name.starts_with("lea") || name.starts_with("prefetch") {
        return line;
    }
    let memory =
        |operand: &&str| operand.contains('(') || operand.contains("%fs:") || target_only(operand);
    let Some((last, before)) = all.split_last() else { return line };
    if before.iter().any(memory) {
        line.loads = true;
    }
    if memory(last) {
        let only_reads = ["cmp", "test", "push", "mul", "div", "imul", "idiv", "ucomis", "comis"];
        let only_writes =
            name.starts_with("mov") || name.starts_with("vmov") || name.starts_with("set");
        if only_reads.iter().any(|start| name.trim_start_matches('v').starts_with(start)) {
            line.loads = true;
        } else if only_writes || name.starts_with("pop") || name.starts_with("stmxcsr") {
            line.stores = true;
        } else {
            (line.loads, line.stores) = (true, true);
        }
    }
    line
}

/// Returns whether an operand is an address without registers. (The callers do not pass the
/// operands of jumps.)
fn target_only(operand: &str) -> bool {
    operand.starts_with("0x")
}

fn arm(name: &str, operands: &str) -> Line {
    let mut line = Line { falls: true, ..Line::default() };
    let all = split(operands);
    let is_compare = name == "cbz" || name == "cbnz";
    let is_bit = name == "tbz" || name == "tbnz";
    match name {
        _ if name == "b" || name.starts_with("b.") || is_compare || is_bit => {
            line.branch = true;
            line.falls = name != "b";
            line.targets = all.last().and_then(|operand| target(operand)).into_iter().collect();
            return line;
        }
        "br" => {
            line.branch = true;
            line.falls = false;
            return line;
        }
        "bl" | "blr" => {
            line.call = true;
            return line;
        }
        "ret" | "udf" | "brk" => {
            line.falls = false;
            return line;
        }
        _ => {}
    }
    line.loads = name.starts_with("ld");
    line.stores = name.starts_with("st");
    let registers = all.iter().enumerate().flat_map(|(i, operand)| {
        operand.split(['{', '}', ',', '[', ']']).map(move |register| (i, register.trim()))
    });
    let mut widest = 0;
    for (i, register) in registers {
        let Some((letter, rest)) = register.split_at_checked(1) else { continue };
        let number = rest.split(['.', ' ']).next().unwrap_or_default();
        if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        let kind = match letter {
            "q" => 3,
            "v" if ["16b", "8h", "4s", "2d"]
                .iter()
                .any(|arrangement| rest.ends_with(arrangement)) =>
            {
                3
            }
            // A vector's element counts as 128 bits if it is written or moved to an `x` register,
            // and as 64 bits if it is moved to a `w` register.
            "v" if ["b", "h", "s", "d"]
                .iter()
                .any(|element| rest.ends_with(&format!(".{element}"))) =>
            {
                match all[0].chars().next() {
                    _ if i == 0 => 3,
                    Some('x') => 3,
                    Some('w') => 2,
                    _ => 0,
                }
            }
            "v" => 2,
            "d" | "s" | "h" | "b" => 1,
            _ => 0,
        };
        widest = widest.max(kind);
    }
    match widest {
        3 => line.vector[1] = true,
        2 => line.vector[0] = true,
        1 => line.scalar = true,
        _ => {}
    }
    line
}

/// Returns the addresses of those instructions of `among` that may run directly after the one at
/// `at`.
fn after(among: &BTreeMap<u64, &Line>, at: u64) -> Vec<u64> {
    let line = among[&at];
    let next = line.falls.then_some(at + line.length);
    line.targets.iter().copied().chain(next).filter(|to| among.contains_key(to)).collect()
}

/// Returns the addresses at which the cycles of the control flow are entered. From each strongly
/// connected set, this takes one instruction at which the set is entered. The search continues in
/// the rest of the set, which may contain other cycles. Only code that can be reached from the
/// function's first instruction counts as entering a set; this excludes padding.
pub fn cycles(
    among: &BTreeMap<u64, &Line>,
    all: &BTreeMap<u64, Line>,
    function: u64,
) -> BTreeSet<u64> {
    let all: BTreeMap<u64, &Line> = all.iter().map(|(at, line)| (*at, line)).collect();
    let mut before: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut reached = BTreeSet::from([function]);
    let mut work = vec![function];
    while let Some(from) = work.pop() {
        for to in after(&all, from) {
            before.entry(to).or_default().push(from);
            if reached.insert(to) {
                work.push(to);
            }
        }
    }
    let mut headers = BTreeSet::new();
    let mut work: Vec<BTreeSet<u64>> = vec![among.keys().copied().collect()];
    while let Some(nodes) = work.pop() {
        for cycle in strongly_connected(among, &nodes) {
            let entered = |node: &&u64| {
                before.get(node).is_some_and(|all| all.iter().any(|from| !cycle.contains(from)))
            };
            let header = *cycle.iter().find(entered).unwrap();
            headers.insert(header);
            work.push(cycle.into_iter().filter(|node| *node != header).collect());
        }
    }
    headers
}

/// Finds the strongly connected sets by a walk along the control flow, and a second walk against
/// it. Leaves out sets without a cycle.
fn strongly_connected(among: &BTreeMap<u64, &Line>, nodes: &BTreeSet<u64>) -> Vec<BTreeSet<u64>> {
    let mut forwards: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut backwards: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for node in nodes {
        for to in after(among, *node).into_iter().filter(|to| nodes.contains(to)) {
            forwards.entry(*node).or_default().push(to);
            backwards.entry(to).or_default().push(*node);
        }
    }
    let mut order = Vec::new();
    let mut seen = BTreeSet::new();
    for node in nodes {
        let mut stack = vec![(*node, false)];
        while let Some((at, done)) = stack.pop() {
            if done {
                order.push(at);
            } else if seen.insert(at) {
                stack.push((at, true));
                stack.extend(forwards.get(&at).into_iter().flatten().map(|to| (*to, false)));
            }
        }
    }
    let mut taken = BTreeSet::new();
    let mut sets = Vec::new();
    for node in order.into_iter().rev() {
        let mut set = BTreeSet::new();
        let mut stack = vec![node];
        while let Some(at) = stack.pop() {
            if taken.insert(at) {
                set.insert(at);
                stack.extend(backwards.get(&at).into_iter().flatten());
            }
        }
        let loops = |node: &u64| forwards.get(node).is_some_and(|to| to.contains(node));
        if set.len() > 1 || set.iter().any(loops) {
            sets.push(set);
        }
    }
    sets
}

/// Returns the instructions of the cycle that is entered at `header`.
pub fn body<'a>(among: &BTreeMap<u64, &'a Line>, header: u64) -> Vec<&'a Line> {
    let mut nodes: BTreeSet<u64> = among.keys().copied().collect();
    loop {
        let set = strongly_connected(among, &nodes).into_iter().find(|set| set.contains(&header));
        let set = set.unwrap();
        // If the set is not entered at `header`, it is a larger cycle: the next round leaves out
        // the addresses at which it is entered.
        let outside = among.keys().filter(|from| !set.contains(from));
        let entered: BTreeSet<u64> =
            outside.flat_map(|from| after(among, *from)).filter(|to| set.contains(to)).collect();
        if entered.contains(&header) || set == nodes {
            return set.iter().map(|at| among[at]).collect();
        }
        nodes = set.into_iter().filter(|node| !entered.contains(node)).collect();
    }
}
