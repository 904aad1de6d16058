//! `cargo xtask pictures`: renews the outputs of commands in README.md, and, with a browser, the
//! pictures in `docs/pictures`. The data are the profiles in `fixtures/readme`, and invented data
//! for some pictures.

use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};

use crate::layout::Layout;
use crate::process::{cargo, loud};

/// Makes the pictures of the page in docs/pictures again, and the outputs in README.md. Needs Chromium.
#[derive(clap::Args)]
pub struct Args {}

pub fn main(layout: &Layout, _: &Args) -> Result<()> {
    let of = |arguments: &[&str]| {
        let mut test = cargo();
        test.current_dir(&layout.root);
        test.args(["test", "--package", "counterpoint", "--test", "it", "--"]).args(arguments);
        test
    };
    let mut outputs = of(&["--exact", "readme::what_the_first_page_shows_is_printed"]);
    loud(outputs.env("UPDATE_GOLDEN", "1"), "write the outputs of README.md")?;
    let mut test = of(&["--ignored", "--exact", "page_pictures::pictures_for_the_docs"]);
    let begin = SystemTime::now();
    loud(&mut test, "make the pictures")?;
    // `cargo test` also succeeds if there is no browser or if the test was renamed, so new pictures
    // are counted.
    let made = newer(&layout.root.join("docs/pictures"), begin)?;
    ensure!(
        made > 0,
        "no picture was made; the lines above say why, for example that Chromium is missing"
    );
    Ok(())
}

fn newer(folder: &Path, since: SystemTime) -> Result<usize> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let mut found = 0;
    for entry in entries {
        found += usize::from(entry?.metadata()?.modified()? > since);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn old_pictures_do_not_count() {
        let folder = std::env::temp_dir().join(format!("pictures-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let since = SystemTime::now();
        for (name, is_new) in [("old", false), ("new", true)] {
            let by = Duration::from_secs(60);
            let at = if is_new { since + by } else { since - by };
            let file = std::fs::File::create(folder.join(name)).unwrap();
            file.set_modified(at).unwrap();
        }
        let found = newer(&folder, since);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found.unwrap(), 1);
    }
}
