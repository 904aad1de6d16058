//! Finds files of a crate or of the Python packages that use each other in a circle. Also checks
//! that no layer of a crate uses a higher layer.
//!
//! Two files that use each other can only be understood together. Uses between a module and the
//! modules inside of it do not count, because a module names what is inside of it. Among the
//! remaining uses, a circle of any number of files is a finding.
//!
//! A use is a path in the syntax tree (`use`, types, calls, and everything that looks like a path
//! inside a macro). `crate::thread::guarded` is a use of `thread.rs`, or of the file from which
//! `thread.rs` re-exports the name. Uses in tests (`#[cfg(test)]`) do not count.
//!
//! In Python, a use is an import, also one inside of a function or for types only.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::Findings;
use super::rules::{LAYERS, Layers};
use crate::dist::files_below;
use crate::layout::Layout;

/// A path of names below the root of a crate: `["tvm", "op"]` for `src/tvm/op.rs`.
type Module = Vec<String>;

pub struct Uses {
    files: BTreeMap<Module, Source>,
}

#[derive(Default)]
struct Source {
    /// The file's path, relative to the folder `src`.
    path: String,
    used: BTreeSet<Module>,
    /// The names that the file re-exports. Each name leads to the path for which it stands.
    exported: BTreeMap<String, Module>,
}

const PYTHON: &str = "bindings/python/src";

pub fn check(layout: &Layout, findings: &mut Findings) -> Result<()> {
    let mut folders = vec![layout.root.join("xtask")];
    for rooms in ["crates", "plugins"] {
        let rooms = layout.root.join(rooms);
        let entries = std::fs::read_dir(&rooms);
        let entries = entries.with_context(|| format!("read folder {}", rooms.display()))?;
        folders.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
    }
    folders.retain(|path| path.join("src").is_dir());
    folders.sort();
    for folder in folders {
        let source = folder.join("src");
        let shown = source.strip_prefix(&layout.root).unwrap_or(&source).display().to_string();
        let uses = Uses::read(&source)?;
        uses.report_circles(&shown, findings);
        for layers in LAYERS.iter().filter(|layers| shown == layers.folder) {
            uses.check_layers(layers, findings);
        }
    }
    let texts = texts_below(&layout.root.join(PYTHON), "py")?;
    Uses::of_python(&texts).report_circles(PYTHON, findings);
    Ok(())
}

/// Returns the relative path and the content of each file below `folder` whose extension is
/// `ending`.
fn texts_below(folder: &Path, ending: &str) -> Result<Vec<(String, String)>> {
    let mut texts = Vec::new();
    for path in files_below(folder)? {
        if path.extension().is_some_and(|found| found == ending) {
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("read {}", path.display()))?;
            let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
            texts.push((name, text));
        }
    }
    Ok(texts)
}

impl Uses {
    pub fn read(source: &Path) -> Result<Self> {
        Self::of(&texts_below(source, "rs")?)
    }

    /// Reads the uses in `texts`: paths relative to `src`, each with the file's content.
    fn of(texts: &[(String, String)]) -> Result<Self> {
        let mut files = BTreeMap::new();
        let mut tests = BTreeSet::new();
        let modules: BTreeSet<Module> = texts.iter().map(|(path, _)| module_of(path)).collect();
        for (path, text) in texts {
            let tree = syn::parse_file(text).with_context(|| format!("parse {path}"))?;
            let module = module_of(path);
            let mut reader = Reader {
                modules: &modules,
                here: module.clone(),
                source: Source { path: path.clone(), ..Source::default() },
                tests: &mut tests,
            };
            reader.visit_file(&tree);
            files.insert(module, reader.source);
        }
        files.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
        Ok(Self { files })
    }

    fn of_python(texts: &[(String, String)]) -> Self {
        let files = texts.iter().map(|(path, text)| {
            let module = path.strip_suffix(".py").unwrap_or(path);
            let package = module.strip_suffix("/__init__");
            let module: Module = package.unwrap_or(module).split('/').map(String::from).collect();
            let around = &module[..module.len() - usize::from(package.is_none())];
            let used = imports(text, around);
            (module, Source { path: path.clone(), used, ..Source::default() })
        });
        Self { files: files.collect() }
    }

    fn report_circles(&self, shown: &str, findings: &mut Findings) {
        for circle in self.circles() {
            findings.add(shown, format_args!("files use each other: {}", circle.join(" → ")));
        }
    }

    /// Returns the files that a file uses, except its ancestors and descendants.
    fn used_by(&self, module: &Module) -> BTreeSet<&Module> {
        let source = &self.files[module];
        let used = source.used.iter().filter_map(|path| self.file_of(path));
        used.filter(|other| !other.starts_with(module) && !module.starts_with(other)).collect()
    }

    /// Follows re-exports to the file that defines a name.
    fn file_of(&self, path: &Module) -> Option<&Module> {
        let mut path = path.clone();
        // After eight re-exports, they probably form a circle.
        for _ in 0..8 {
            let at = (0..=path.len()).rev().find(|&n| self.files.contains_key(&path[..n]))?;
            let (file, source) = self.files.get_key_value(&path[..at])?;
            match path.get(at).and_then(|name| source.exported.get(name)) {
                Some(target) => {
                    let rest = path.split_off(at + 1);
                    path = target.iter().cloned().chain(rest).collect();
                }
                None => return Some(file),
            }
        }
        None
    }

    /// Returns one of the shortest circles through each file, without duplicates.
    pub fn circles(&self) -> Vec<Vec<String>> {
        let graph: BTreeMap<&Module, BTreeSet<&Module>> =
            self.files.keys().map(|module| (module, self.used_by(module))).collect();
        let mut seen = BTreeSet::new();
        let mut circles = Vec::new();
        for &start in graph.keys() {
            let Some(circle) = shortest_circle(&graph, start) else { continue };
            let key: BTreeSet<&Module> = circle.iter().copied().collect();
            if seen.insert(key) {
                let names = circle.iter().chain([&start]);
                circles.push(names.map(|&module| self.files[module].path.clone()).collect());
            }
        }
        circles
    }

    fn check_layers(&self, layers: &Layers, findings: &mut Findings) {
        let layer = |module: &Module| {
            let top = module.first().map_or("", String::as_str);
            layers.layers.iter().position(|(_, rooms)| rooms.contains(&top))
        };
        for module in self.files.keys().filter(|module| !module.is_empty()) {
            let path = format!("{}/{}", layers.folder, self.files[module].path);
            let Some(mine) = layer(module) else {
                findings.add(path, "is in no layer (xtask/src/tidy/rules.rs)");
                continue;
            };
            for other in self.used_by(module) {
                if let Some(theirs) = layer(other).filter(|&theirs| theirs > mine) {
                    let (mine, theirs) = (layers.layers[mine].0, layers.layers[theirs].0);
                    let other = &self.files[other].path;
                    findings.add(&path, format_args!("{mine} uses {other} of {theirs} above it"));
                }
            }
        }
    }
}

/// Returns the absolute names that a module of the package `around` imports.
fn imports(text: &str, around: &[String]) -> BTreeSet<Module> {
    let split = |name: &str| name.split('.').map(String::from).collect::<Module>();
    let mut used = BTreeSet::new();
    for (at, _) in text.match_indices("import ") {
        let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let before = text[line..at].trim();
        let after = &text[at + "import ".len()..];
        let list = match after.strip_prefix('(') {
            Some(several) => several.split(')').next(),
            None => after.lines().next(),
        };
        let first_word = |part: &str| part.split_whitespace().next().map(str::to_owned);
        let names = list.unwrap_or_default().split(',').filter_map(first_word);
        if before.is_empty() {
            used.extend(names.map(|name| split(&name)));
        } else if let Some(from) = before.strip_prefix("from ") {
            let module = from.trim_start_matches('.');
            let dots = from.len() - module.len();
            let mut base = match dots {
                0 => Module::new(),
                _ => around[..around.len().saturating_sub(dots - 1)].to_vec(),
            };
            base.extend(split(module).into_iter().filter(|name| !name.is_empty()));
            used.extend(names.map(|name| [&base[..], &[name]].concat()));
        }
    }
    used
}

/// Returns the shortest path from `start` back to itself, beginning with `start`.
fn shortest_circle<'a>(
    graph: &BTreeMap<&'a Module, BTreeSet<&'a Module>>,
    start: &'a Module,
) -> Option<Vec<&'a Module>> {
    let mut from = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(at) = queue.pop_front() {
        for &next in &graph[at] {
            if next == start {
                let mut way = vec![at];
                while let Some(&before) = from.get(way.last()?) {
                    way.push(before);
                }
                way.reverse();
                return Some(way);
            }
            if !from.contains_key(next) {
                from.insert(next, at);
                queue.push_back(next);
            }
        }
    }
    None
}

/// Returns the module of a file. `a/b.rs` and `a/b/mod.rs` are `["a", "b"]`; `lib.rs` and `main.rs`
/// are the root.
fn module_of(path: &str) -> Module {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if matches!(path, "lib" | "main") {
        return Vec::new();
    }
    path.split('/').map(String::from).collect()
}

struct Reader<'a> {
    modules: &'a BTreeSet<Module>,
    /// The module that is being read: the file's module, or an inline module in the file.
    here: Module,
    source: Source,
    /// Modules that are only compiled for tests.
    tests: &'a mut BTreeSet<Module>,
}

impl Reader<'_> {
    /// Returns `path` as an absolute path in this crate, or `None` if `path` does not seem to begin
    /// in this crate.
    fn absolute(&self, path: &[String]) -> Option<Module> {
        let mut rest = path;
        let mut absolute = match path.first()?.as_str() {
            "crate" => Vec::new(),
            "self" | "super" => self.here.clone(),
            name => {
                let child: Module = self.here.iter().cloned().chain([name.to_string()]).collect();
                return self.modules.contains(&child).then(|| [&self.here[..], path].concat());
            }
        };
        while let [first, ..] = rest {
            match first.as_str() {
                "crate" | "self" => {}
                "super" => drop(absolute.pop()),
                _ => break,
            }
            rest = &rest[1..];
        }
        absolute.extend_from_slice(rest);
        Some(absolute)
    }

    fn add(&mut self, path: &[String]) {
        if let Some(path) = self.absolute(path) {
            self.source.used.insert(path);
        }
    }

    fn tree(&mut self, tree: &syn::UseTree, before: &[String], exports: bool) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.tree(&path.tree, &with(&path.ident), exports),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.tree(item, before, exports));
            }
            syn::UseTree::Glob(_) => self.add(before),
            syn::UseTree::Name(name) => {
                let path = if name.ident == "self" { before.to_vec() } else { with(&name.ident) };
                let known = path.last().cloned();
                self.leaf(&path, known.filter(|_| exports));
            }
            syn::UseTree::Rename(rename) => {
                let path =
                    if rename.ident == "self" { before.to_vec() } else { with(&rename.ident) };
                self.leaf(&path, exports.then(|| rename.rename.to_string()));
            }
        }
    }

    /// Adds a used or re-exported name. A re-export does not count as a use: a file that uses the
    /// name uses the file that defines it.
    fn leaf(&mut self, path: &[String], exported: Option<String>) {
        match (self.absolute(path), exported) {
            (Some(path), Some(name)) => drop(self.source.exported.insert(name, path)),
            (Some(path), None) => drop(self.source.used.insert(path)),
            (None, _) => {}
        }
    }

    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.add(&path);
                        path.clear();
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.add(&path);
                    path.clear();
                    colons = 0;
                    self.tokens(group.stream());
                }
                _ => {
                    self.add(&path);
                    path.clear();
                    colons = 0;
                }
            }
        }
        self.add(&path);
    }
}

fn for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|name| name == "test")
    })
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !for_tests(attributes) {
            visit::visit_item(self, item);
        } else if let syn::Item::Mod(item) = item {
            let module = self.here.iter().cloned().chain([item.ident.to_string()]).collect();
            self.tests.insert(module);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.content.is_some() {
            self.here.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.here.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let exports = !matches!(item.vis, syn::Visibility::Inherited);
        self.tree(&item.tree, &[], exports);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        self.add(&names);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files.iter().map(|(p, t)| (p.to_string(), t.to_string())).collect();
        let uses = Uses::of(&files).expect("parse the test's files");
        uses.circles().iter().map(|circle| circle.join(" → ")).collect()
    }

    #[test]
    fn two_files_in_a_circle() {
        let found = circles(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "pub struct B; fn f() { super::a::A; }"),
        ]);
        assert_eq!(found, ["a.rs → b.rs → a.rs"]);
    }

    #[test]
    fn a_long_circle_is_found_once_and_a_path_without_return_is_not() {
        let found = circles(&[
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::{b, d::D};"),
            ("b.rs", "fn f() { assert!(crate::c::X > 1); }"),
            ("c.rs", "impl crate::a::T for u8 {}"),
            ("d.rs", "pub struct D;"),
        ]);
        assert_eq!(found, ["a.rs → b.rs → c.rs → a.rs"]);
    }

    #[test]
    fn parents_and_children_are_exempt_and_so_are_tests() {
        let found = circles(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "mod child; use child::C; #[cfg(test)] mod tests { use crate::b::B; }"),
            ("a/child.rs", "use super::A;"),
            ("b.rs", "use crate::a::A; #[cfg(test)] mod tests;"),
            ("b/tests.rs", "use crate::a;"),
        ]);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn a_re_exported_name_counts_as_a_use_of_the_defining_file() {
        let found = circles(&[
            ("lib.rs", "mod a; mod b; pub use a::A; pub(crate) use b::c::B;"),
            ("a.rs", "use crate::B as Other;"),
            ("b.rs", "pub mod c;"),
            ("b/c.rs", "use crate::A; pub struct B;"),
        ]);
        assert_eq!(found, ["a.rs → b/c.rs → a.rs"]);
    }

    #[test]
    fn files_of_python_that_import_each_other() {
        let texts = [
            ("p/__init__.py", "from p.a import f"),
            ("p/a.py", "import os\nfrom . import (\n    b,\n    d,\n)"),
            ("p/b.py", "def f():\n    from p.c import g"),
            ("p/c.py", "\"\"\"What `import p.d` runs.\"\"\"\nimport p.a as other"),
            ("p/d.py", "from .e.x import g"),
            ("p/e/x.py", ""),
        ];
        let texts = texts.map(|(path, text)| (path.to_owned(), text.to_owned()));
        let found = Uses::of_python(&texts).circles();
        assert_eq!(found, [["p/a.py", "p/b.py", "p/c.py", "p/a.py"]]);
    }
}
