//! Text in Markdown.

use crate::terminal::visible;

/// Text in which nothing is Markdown or HTML.
pub fn plain(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in visible(text).chars() {
        if matches!(c, '|' | '*' | '_' | '`' | '\\' | '<' | '>' | '[' | ']' | '#' | '@' | '~') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
