//! `counterpoint completions`, and the manual pages of a release. Both are made from the options
//! that the program parses.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell as Known;

use crate::Cli;
use crate::failure::Failure;
use crate::terminal::{Kind, stdout};

/// Print the completions of commands and options for a shell
///
/// bash: `source <(counterpoint completions bash)` in ~/.bashrc. zsh: write them to a file `_counterpoint` in
/// a folder of `fpath`. fish: write them to ~/.config/fish/completions/counterpoint.fish.
#[derive(clap::Args)]
pub struct Args {
    /// Shell to print them for
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    /// The file, relative to a folder such as `/usr/share`, in which each shell looks for the
    /// completions of this program.
    const FILES: [(Self, &'static str); 3] = [
        (Self::Bash, "bash-completion/completions/counterpoint"),
        (Self::Zsh, "zsh/site-functions/_counterpoint"),
        (Self::Fish, "fish/vendor_completions.d/counterpoint.fish"),
    ];

    fn text(self) -> Vec<u8> {
        let shell = match self {
            Self::Bash => Known::Bash,
            Self::Zsh => Known::Zsh,
            Self::Fish => Known::Fish,
        };
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "counterpoint", &mut text);
        text
    }
}

pub fn main(args: &Args) -> Result<ExitCode, Failure> {
    stdout(Kind::Lines).write_all(&args.shell.text())?;
    Ok(ExitCode::SUCCESS)
}

/// Writes all completions and the manual pages into a folder `share`.
pub fn manuals(share: &Path) -> Result<ExitCode, Failure> {
    let failed = |path: &Path| {
        let shown = path.display().to_string();
        move |e: std::io::Error| Failure::new(format!("write {shown}: {e}"))
    };
    for (shell, name) in Shell::FILES {
        let path = share.join(name);
        let folder = path.parent().unwrap_or(share);
        std::fs::create_dir_all(folder).map_err(failed(folder))?;
        std::fs::write(&path, shell.text()).map_err(failed(&path))?;
    }
    let pages = share.join("man/man1");
    std::fs::create_dir_all(&pages).map_err(failed(&pages))?;
    clap_mangen::generate_to(Cli::command(), &pages).map_err(failed(&pages))?;
    Ok(ExitCode::SUCCESS)
}
