//! The programs that load no plugins unless the user says so: launchers, shells and the small tools
//! of scripts.

use record::run_file::PluginOptions;

/// Programs that start other programs and do not use a device. A plugin in them would take time,
/// and could record the events of the whole machine a second time.
const STARTERS: &str = "sh bash dash zsh ksh fish busybox env timeout nice nohup setsid stdbuf taskset \
                        numactl time xargs make ninja cmake git counterpoint pyenv";

/// Small programs that scripts often call: a launcher of pyenv runs thirty of them to start one
/// Python. They load plugins only if they are the recorded program itself.
const TOOLS: &str = "awk gawk mawk basename cat chmod cp cut date dirname echo expr find grep head hostname \
                     id ldconfig ldd ln ls mkdir mktemp mv ps pwd readlink realpath rm sed seq sleep sort \
                     tail tr uname which";

/// Removes the recorded program from the list of programs without plugins, if it is one of
/// [`TOOLS`].
pub fn load_into(options: &mut PluginOptions, program: &str) {
    let name = program.rsplit('/').next().unwrap_or_default();
    options.except.retain(|except| except != name || STARTERS.split(' ').any(|word| word == name));
}

pub fn names() -> Vec<String> {
    [STARTERS, TOOLS].iter().flat_map(|all| all.split(' ')).map(str::to_owned).collect()
}
