//! Writes lines of stacks, in the form of `stackcollapse` programs: `outer;inner 12`.
//!
//! Readers split a line at each `;`, and read the text after the last space as the number. So a `;`
//! in a name is written as `,`, and a control character or a Unicode separator of lines or
//! paragraphs as `U+FFFD`.

use std::io::{self, Write};

use super::Stacks;

/// Writes the stacks whose value of the kind [`Stacks::main`] is above 0.
pub fn write(out: &mut impl Write, stacks: &Stacks) -> io::Result<()> {
    for (path, value) in stacks.with(stacks.main) {
        let names: Vec<String> = path.iter().map(|node| name(stacks.name(node))).collect();
        writeln!(out, "{} {value}", names.join(";"))?;
    }
    Ok(())
}

fn name(name: &str) -> String {
    let one = |c: char| match c {
        ';' => ',',
        c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => '\u{fffd}',
        c => c,
    };
    let name: String = name.trim().chars().map(one).collect();
    if name.is_empty() { "(no name)".to_owned() } else { name }
}
