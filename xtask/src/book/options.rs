//! Makes a page that exists only in the book: the help of all commands, as the program prints it.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::layout::Layout;
use crate::process::{cargo, output};

pub const PAGE: &str = "docs/options.md";

const HEAD: &str = "\
# All options

What `counterpoint COMMAND --help` prints, for each command. [The commands](commands.md) says in one line what each \
of them is for.
";

/// The width that fits on a page of the book.
const COLUMNS: &str = "88";

pub fn page(layout: &Layout) -> Result<String> {
    output(cargo().args(["build", "--quiet", "--package", "counterpoint"]), "build counterpoint")?;
    let program = layout.target.join("debug/counterpoint");
    let ask = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words).env("COLUMNS", COLUMNS).env("NO_COLOR", "1");
        output(&mut command, "ask for help")
    };
    let commands = commands(&ask(&["help", "agents"])?)?;
    let mut text = HEAD.to_owned();
    for name in commands {
        let words: Vec<&str> = name.split(' ').chain(["--help"]).collect();
        let help = ask(&words)?;
        text += &format!("\n## counterpoint {name}\n\n```text\n{}\n```\n", help.trim_end());
    }
    Ok(text)
}

/// Returns the names in the help's list of commands. The lines of this list have the form `trace
/// export: writes …`.
fn commands(help: &str) -> Result<Vec<String>> {
    let (_, list) = help.split_once("# Commands\n\n").context("the help has a list of commands")?;
    let lines = list.lines().take_while(|line| !line.starts_with('`') && !line.is_empty());
    let names: Vec<String> =
        lines.filter_map(|line| Some(line.split_once(": ")?.0.to_owned())).collect();
    ensure!(names.len() > 10, "only {} commands in the help", names.len());
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_from_the_list() {
        let lines: String = (0..11).map(|n| format!("trace c{n}: Does: this\n")).collect();
        let text = format!("# x\n\nno: y\n\n# Commands\n\n{lines}`counterpoint …` has: more\n");
        let found = commands(&text).unwrap();
        assert_eq!((found.len(), found[10].as_str()), (11, "trace c10"));
        assert!(commands("# Commands\n\na: b\n").is_err());
    }
}
