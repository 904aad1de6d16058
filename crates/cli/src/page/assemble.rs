//! Assembles the page from the template, the style, the modules as one script, and the data.
//!
//! There is no bundler. Each `import` and `export` is at the start of a line, and no two modules
//! use the same name at their top level. So the `import` lines and the word `export` are removed,
//! and the modules are concatenated.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

use crate::terminal::visible;

const TEMPLATE: &str = include_str!("app/page.html");
const STYLE: &str = include_str!("app/page.css");
/// The modules in order: outside of its functions, a module uses only modules that come before it.
const MODULES: &[&str] = &[
    include_str!("app/data.js"),
    include_str!("app/text.js"),
    include_str!("app/dom.js"),
    include_str!("app/state.js"),
    include_str!("app/load.js"),
    include_str!("app/bins.js"),
    include_str!("app/scale.js"),
    include_str!("app/rows.js"),
    include_str!("app/context.js"),
    include_str!("app/chart.js"),
    include_str!("app/small.js"),
    include_str!("app/plots.js"),
    include_str!("app/table.js"),
    include_str!("app/tables.js"),
    include_str!("app/lives.js"),
    include_str!("app/icicle.js"),
    include_str!("app/overview.js"),
    include_str!("app/distribution.js"),
    include_str!("app/joint.js"),
    include_str!("app/drift.js"),
    include_str!("app/op.js"),
    include_str!("app/lanes.js"),
    include_str!("app/paint.js"),
    include_str!("app/calls.js"),
    include_str!("app/hands.js"),
    include_str!("app/surroundings.js"),
    include_str!("app/moment.js"),
    include_str!("app/timeline.js"),
    include_str!("app/loops.js"),
    include_str!("app/compare.js"),
    include_str!("app/roofline.js"),
    include_str!("app/recording.js"),
    include_str!("app/main.js"),
];

/// Assembles the page. `blocks` are the names and the contents of the data.
pub fn page(title: &str, blocks: &[(&str, &[u8])]) -> String {
    let script = script();
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; require-trusted-types-for 'script'; \
         trusted-types 'none'; base-uri 'none'; form-action 'none'",
        digest(&script),
        digest(STYLE)
    );
    let blocks: Vec<String> = blocks.iter().map(|(id, bytes)| block(id, bytes)).collect();
    let values = [
        ("{{csp}}", policy.as_str()),
        ("{{title}}", &escaped(title)),
        ("{{style}}", STYLE),
        ("{{script}}", &script),
        ("{{blocks}}", &blocks.join("\n")),
    ];
    fill(TEMPLATE, &values)
}

/// Fills in the placeholders of the template. Placeholders in the inserted text are left as they
/// are.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut page = String::new();
    let mut rest = template;
    while let Some((at, (mark, value))) = values
        .iter()
        .filter_map(|value| Some((rest.find(value.0)?, value)))
        .min_by_key(|(at, _)| *at)
    {
        page.push_str(&rest[..at]);
        page.push_str(value);
        rest = &rest[at + mark.len()..];
    }
    page + rest
}

/// Joins the modules to one script. Comments on lines of their own are left out.
fn script() -> String {
    let mut script = String::new();
    let mut is_comment = false;
    for line in MODULES.iter().flat_map(|module| module.lines()) {
        let code = line.trim_start();
        is_comment |= code.starts_with("/*");
        if is_comment {
            is_comment = !code.trim_end().ends_with("*/");
            continue;
        }
        if line.starts_with("import ")
            || line == "export {};"
            || code.is_empty()
            || code.starts_with("//")
        {
            continue;
        }
        script.push_str(line.strip_prefix("export ").unwrap_or(line));
        script.push('\n');
    }
    script
}

fn digest(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text.as_bytes())))
}

/// Compresses the data with gzip's default level. For calls of a regular program, the best level
/// makes the data 4 to 19 % smaller, but takes 10 to 20 times as long (1.4 s for a million calls).
pub fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(bytes).and_then(|()| packed.finish()).unwrap_or_default()
}

/// Returns a `script` element that contains the data; its type keeps the browser from executing it.
fn block(id: &str, bytes: &[u8]) -> String {
    format!(
        "<script type=\"application/gzip;base64\" id=\"{id}\">{}</script>",
        STANDARD.encode(packed(bytes))
    )
}

fn escaped(text: &str) -> String {
    visible(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place() {
        let page = page("</title><script>alert(1)</script>{{blocks}}", &[("head", b"{}")]);
        // The given title appears twice in the page: in the title and in the heading.
        assert_eq!(page.matches("alert(1)").count(), 2);
        assert!(page.contains("&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;{{blocks}}"));
        assert_eq!(page.matches("id=\"head\"").count(), 1);
    }

    /// A browser runs the script only if the page's policy contains the digest of the script.
    #[test]
    fn the_policy_has_the_digests_of_what_is_in_the_page() {
        let page = page("x", &[]);
        let between = |from: &str, to: &str| {
            let rest = &page[page.find(from).unwrap() + from.len()..];
            rest[..rest.find(to).unwrap()].to_owned()
        };
        let script = between("<script type=\"module\">", "</script>");
        assert!(page.contains(&format!("script-src '{}'", digest(&script))));
        let style = between("<style>", "</style>");
        assert!(page.contains(&format!("style-src '{}'", digest(&style))));
        assert!(!script.contains("\nimport ") && !script.contains("\nexport "));
    }
}
