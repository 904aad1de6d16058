//! Shortens names to the width of a column so that different names stay different.
//!
//! Names of compiled functions often have the same beginning (`tinyloop_dispatch_`) and the same
//! end (`_elementwise_16_f32`). Common parts are cut:
//!
//! ```text
//!  tinyloop_dispatch_0_elementwise_16_f32          …0_elementwise_16_f32
//!  tinyloop_dispatch_1_elementwise_16_f32    ─►    …1_elementwise_16_f32     1. a common beginning
//!  tinyloop_dispatch_12_matmul_8x8x8_f32           …12_matmul_8x8x8_f32
//!
//!  main$async_dispatch_3_reduction_128_f32         main$as…3_reduction_128_f32   2. the middle, if that
//!  main$async_dispatch_4_reduction_128_f32   ─►    main$as…4_reduction_128_f32      is enough
//!  …                                               ma…_3_re…                     3. around what differs
//! ```
//!
//! If even the parts in which names differ do not fit, only the beginnings of the names are kept,
//! followed by different numbers (`…#1`, `…#2`).

use std::collections::HashMap;

use super::units::shorten;

/// A shorter common beginning, such as `aten::`, is not cut: readers know names by it, and the line
/// that explains the cut would take more room than the cut saves.
const SHORTEST: usize = 8;
/// A beginning is cut only if at least one of so many names has it. Few names are shortened in the
/// middle instead, which keeps the words at their beginning.
const MANY: usize = 6;
const CUT: char = '…';

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fitted {
    /// The shortened names, in the order of the original names.
    pub names: Vec<String>,
    /// The common beginning that was replaced by `…`, if one was cut.
    pub common: Option<String>,
}

/// Returns the width of the longest name, without the common beginning if `cut_beginning` is set.
pub fn least(names: &[String], cut_beginning: bool) -> usize {
    let Fitted { names, .. } = beginning(names, cut_beginning);
    names.iter().map(|name| length(name)).max().unwrap_or(0)
}

/// Shortens names to `width` characters where necessary. Different names stay different if `width`
/// is at least 8. With `cut_beginning`, a common beginning is cut first, and the caller must
/// explain the cut.
pub fn fit(names: &[String], width: usize, cut_beginning: bool) -> Fitted {
    if names.iter().all(|name| length(name) <= width) {
        return Fitted { names: names.to_vec(), common: None };
    }
    let mut fitted = beginning(names, cut_beginning);
    fitted.names = without_types(&fitted.names, width);
    let long = fitted.names.clone();
    if long.iter().all(|name| length(name) <= width) {
        return fitted;
    }
    fitted.names = long.iter().map(|name| between_words(name, width)).collect();
    for group in equal(&fitted.names, &long) {
        let inner: Vec<&String> = group.iter().map(|i| &long[*i]).collect();
        for (i, name) in group.iter().zip(around_differences(&inner, width)) {
            fitted.names[*i] = name;
        }
    }
    for group in equal(&fitted.names, &long) {
        let mut numbers: HashMap<&String, usize> = HashMap::new();
        for i in group {
            let next = numbers.len() + 1;
            let number = format!("{CUT}#{}", numbers.entry(&long[i]).or_insert(next));
            let room = width.saturating_sub(length(&number));
            fitted.names[i] = long[i].chars().take(room).collect::<String>() + &number;
        }
    }
    fitted
}

/// Removes the types from long names of C++ and Rust functions: `double
/// product<double>(std::vector<double> const&)` becomes `product<double>(…)`. Types are kept if
/// different functions would otherwise have the same name.
fn without_types(names: &[String], width: usize) -> Vec<String> {
    let short = |name: &String| match length(name) > width {
        true => signature(name).unwrap_or_else(|| name.clone()),
        false => name.clone(),
    };
    let shorter: Vec<String> = names.iter().map(short).collect();
    let mut same = vec![false; names.len()];
    for group in equal(&shorter, names) {
        group.into_iter().for_each(|i| same[i] = true);
    }
    let kept = shorter.into_iter().zip(names).zip(same);
    kept.map(|((short, name), same)| if same { name.clone() } else { short }).collect()
}

/// Returns the name of a function without its return type and the types of its parameters. `None`
/// if the text does not look like a function. Spaces that indent a tree are kept.
fn signature(name: &str) -> Option<String> {
    let text = name.trim_start();
    let indent = &name[..name.len() - text.len()];
    let end = text.strip_suffix(" const").unwrap_or(text).strip_suffix(')')?;
    let mut depth = 1;
    let open = end.char_indices().rev().find(|(_, c)| {
        depth += i32::from(*c == ')') - i32::from(*c == '(');
        depth == 0
    })?;
    let head = &end[..open.0];
    // A parenthesis after a space begins a remark, such as `(range)`.
    if head.is_empty() || head.ends_with(' ') {
        return None;
    }
    let mut depth = 0;
    let space = head.char_indices().rev().find(|(_, c)| {
        depth += i32::from(matches!(c, '>' | ')')) - i32::from(matches!(c, '<' | '('));
        *c == ' ' && depth == 0
    });
    let own = space.map_or(head, |(at, _)| &head[at + 1..]);
    Some(format!("{indent}{own}({CUT})"))
}

fn beginning(names: &[String], cut: bool) -> Fitted {
    if cut { without_beginning(names) } else { Fitted { names: names.to_vec(), common: None } }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

fn ends_word(c: char) -> bool {
    matches!(c, '_' | '$' | '.' | ':' | '/' | ' ' | '-')
}

/// Cuts the middle out of a name between words, or within words if little would be left.
fn between_words(name: &str, width: usize) -> String {
    let all: Vec<char> = name.chars().collect();
    if all.len() <= width {
        return name.to_owned();
    }
    let room = width.saturating_sub(1);
    let tail_in = |room: usize| {
        let at = (all.len() - room..all.len()).find(|at| ends_word(all[*at]));
        at.map_or(0, |at| all.len() - at)
    };
    let half = tail_in(room / 2);
    let head = (0..room - half).rev().find(|at| ends_word(all[*at])).map_or(0, |at| at + 1);
    // The end of the name gets the width that its beginning does not need.
    let tail = tail_in(room - head);
    if tail == 0 || head == 0 || 3 * (head + tail) < 2 * room {
        return shorten(name, width);
    }
    let mut text: String = all[..head].iter().collect();
    text.push(CUT);
    text.extend(&all[all.len() - tail..]);
    text
}

/// Returns groups of indices. In each group, the texts in `shown` are the same, but not all names
/// are.
fn equal(shown: &[String], names: &[String]) -> Vec<Vec<usize>> {
    let mut places: HashMap<&String, Vec<usize>> = HashMap::new();
    for (i, text) in shown.iter().enumerate() {
        places.entry(text).or_default().push(i);
    }
    let differ = |group: &Vec<usize>| group.iter().any(|i| names[*i] != names[group[0]]);
    let mut groups: Vec<_> = places.into_values().filter(differ).collect();
    groups.sort_unstable();
    groups
}

/// Whether something of the name remains without a beginning, and not only a remark such as
/// `(region)`.
fn is_name(rest: &str) -> bool {
    !rest.is_empty() && !rest.starts_with([' ', '('])
}

/// Removes a beginning that many names have in common and that ends at a word boundary. The
/// beginning that saves the most characters is cut.
fn without_beginning(names: &[String]) -> Fitted {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let mut different: Vec<&String> = names.iter().collect();
    different.sort_unstable();
    different.dedup();
    let many = different.len().div_ceil(MANY).max(2);
    for name in different {
        let words = name.char_indices().filter(|(_, c)| ends_word(*c));
        let ends = words.map(|(at, c)| at + c.len_utf8()).filter(|end| is_name(&name[*end..]));
        ends.for_each(|end| *counts.entry(&name[..end]).or_default() += 1);
    }
    let saves = |(beginning, count): &(&str, usize)| (length(beginning) - 1) * count;
    let best = counts
        .into_iter()
        .filter(|(beginning, count)| *count >= many && length(beginning) >= SHORTEST)
        .max_by(|a, b| saves(a).cmp(&saves(b)).then_with(|| b.0.cmp(a.0)));
    let Some((common, _)) = best else {
        return Fitted { names: names.to_vec(), common: None };
    };
    let cut = |name: &String| match name.strip_prefix(common) {
        Some(rest) if is_name(rest) => format!("{CUT}{rest}"),
        _ => name.clone(),
    };
    Fitted { names: names.iter().map(cut).collect(), common: Some(common.to_owned()) }
}

/// Shortens names that would otherwise look the same. A name keeps the part that differs, and as
/// much text around it as fits.
fn around_differences(names: &[&String], width: usize) -> Vec<String> {
    let names: Vec<Vec<char>> = names.iter().map(|name| name.chars().collect()).collect();
    let shortest = names.iter().map(Vec::len).min().unwrap_or(0);
    let same = |at: &dyn Fn(&Vec<char>) -> char| names.iter().all(|n| at(n) == at(&names[0]));
    let before = (0..shortest).take_while(|i| same(&|name| name[*i])).count();
    let after =
        (0..shortest - before).take_while(|i| same(&|name| name[name.len() - 1 - i])).count();
    let one = |name: &Vec<char>| {
        let own = name.len() - before - after;
        // The width that is left for the text around the part that differs, if each side of this
        // part also gets a `…`.
        let room = width.saturating_sub(own + 2);
        let tail = after.min((room / 2).max(room.saturating_sub(before)));
        let head = before.min(room - tail);
        let mut text: String = name[..head].iter().collect();
        if head < before {
            text.push(CUT);
        }
        text.extend(&name[before..name.len() - after]);
        if tail < after {
            text.push(CUT);
        }
        text.extend(&name[name.len() - tail..]);
        shorten(&text, width).replace("……", "…")
    };
    names.iter().map(one).collect()
}

/// Shortens a source location at its beginning, because its end is the most important part.
pub fn place(text: &str, width: usize) -> String {
    let length = length(text);
    if length <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    std::iter::once(CUT).chain(text.chars().skip(length - kept)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(names: &[&str], width: usize) -> Vec<String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let fitted = fit(&names, width, true);
        for (i, name) in fitted.names.iter().enumerate() {
            assert!(length(name) <= width, "{name}");
            for (j, other) in fitted.names.iter().enumerate() {
                assert_eq!(name == other, names[i] == names[j], "{name} {other}");
            }
        }
        fitted.names
    }

    #[test]
    fn a_common_beginning_is_cut_first() {
        let names = [
            "tinyloop_dispatch_0_elementwise_16_f32",
            "tinyloop_dispatch_1_elementwise_16_f32",
            "tinyloop_dispatch_12_matmul_8x8x8_f32",
        ];
        assert_eq!(fitted(&names, 38), names);
        let short = ["…0_elementwise_16_f32", "…1_elementwise_16_f32", "…12_matmul_8x8x8_f32"];
        assert_eq!(fitted(&names, 37), short);
        assert_eq!(fitted(&names, 21), short);
        let names = names.map(str::to_owned);
        assert_eq!(least(&names, true), 21);
        assert_eq!(least(&names, false), 38);
        assert_eq!(fit(&names, 30, true).common.as_deref(), Some("tinyloop_dispatch_"));
        assert_eq!(fit(&names, 60, true).common, None);
        assert_eq!(fit(&names, 30, false).common, None);
        // What is left must be a name, and not only what kind of calls these are.
        let names = ["native_batch_norm (region)", "native_batch_norm (task)"];
        assert_eq!(fitted(&names, 24), ["…norm (region)", "…norm (task)"]);
        let names = ["layernormalisation (region)", "layernormalisation (task)"];
        assert_eq!(fitted(&names, 20), ["layernorma… (region)", "layernorma…on (task)"]);
        // Two of thirteen names are too few to explain their beginning.
        let few = ["aten::_scaled_dot_product_for_cpu", "aten::_scaled_dot_product_for_gpu"];
        let others: Vec<String> = (0..11).map(|n| format!("op{n}")).collect();
        let all: Vec<&str> = few.into_iter().chain(others.iter().map(String::as_str)).collect();
        assert_eq!(fitted(&all, 24)[..2], ["aten::_scaled_…_for_cpu", "aten::_scaled_…_for_gpu"]);
        // The last name has another beginning.
        let names = ["a_dispatch_0_x", "a_dispatch_1_x", "other"];
        assert_eq!(fitted(&names, 10), ["…0_x", "…1_x", "other"]);
    }

    #[test]
    fn the_middle_is_cut_between_words() {
        let name = "10_softmax_4x128x128xf32_dispatch_tensor_store";
        assert_eq!(between_words(name, 34), "10_softmax_…_dispatch_tensor_store");
        assert_eq!(between_words(name, 46), name);
        assert_eq!(between_words("autograd::engine::Node: Sqrt", 22), "autograd::…:Node: Sqrt");
        // A cut between words would leave little of this name.
        assert_eq!(between_words("a_b_0123456789012345678901234", 21), "a_b_012345…5678901234");
        assert_eq!(between_words("a_b", 0), "…");
    }

    #[test]
    fn types_are_left_out_before_names_of_functions_are() {
        let product =
            "  double product<double>(std::vector<double, std::allocator<double> > const&, int)";
        let others = ["kernel", "forward (run)", "aten::mm (region)", "(between)"];
        let all = [&others[..], &[product]].concat();
        assert_eq!(fitted(&all, 24)[4], "  product<double>(…)");
        assert_eq!(fitted(&all, 24)[..4], others);
        // The types stay, because only they distinguish these functions.
        let [a, b] =
            ["int", "float"].map(|name| format!("void gemm({name} const*, {})", "x".repeat(30)));
        let [a, b] = [&a, &b].map(|name| fitted(&[&a, &b, name], 30)[2].clone());
        assert!(a.contains("int") && b.contains("float"), "{a} {b}");
        let of = |name: &str| signature(name);
        assert_eq!(
            of("(anonymous namespace)::f(int) const").unwrap(),
            "(anonymous namespace)::f(…)"
        );
        assert_eq!(
            of("std::map<int, long>::operator[](int&&)").unwrap(),
            "std::map<int, long>::operator[](…)"
        );
        assert_eq!(of("f(void (*)(int))").unwrap(), "f(…)");
        for name in ["prog::rows", "forward (run)", "(between)", "()", ")", "(", "f(", "ü)"] {
            assert_eq!(of(name), None, "{name}");
        }
    }

    #[test]
    fn the_parts_that_differ_are_kept() {
        let a = format!("{}1{}", "x".repeat(50), "y".repeat(50));
        let b = format!("{}2{}", "x".repeat(50), "y".repeat(50));
        assert_eq!(fitted(&[&a, &b], 9), ["xxx…1…yyy", "xxx…2…yyy"]);
        assert_eq!(fitted(&[&a, &b, &a], 8), ["xxx…1…yy", "xxx…2…yy", "xxx…1…yy"]);
        let long = |c: char| format!("same{}{c}{}same", "p".repeat(30), "q".repeat(30));
        fitted(&[&long('1'), &long('2'), &long('3')], 8);
        let far =
            ["abc1xxxxxxxxxxxxxxxx2xyz", "abc2xxxxxxxxxxxxxxxx1xyz", "abc1xxxxxxxxxxxxxxxx1xyz"];
        fitted(&far, 8);
        fitted(&["same", "same", "a much longer name"], 8);
    }

    #[test]
    fn adjacent_marks_become_one() {
        // The parts that differ have different lengths.
        let name =
            |rows: u32| format!("match(float32[{rows}, 1024], float32[{rows}, 1024], int64[4])");
        let names = [1, 10, 100, 1000].map(name);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for width in 8..60 {
            for name in fitted(&names, width) {
                assert!(!name.contains("……"), "{name}");
            }
        }
    }

    #[test]
    fn many_at_every_width() {
        let names: Vec<String> = (0..300)
            .map(|i| format!("m$async_dispatch_{i}_matmul_{}x{}_f32", i % 7, i % 3))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        (8..60).for_each(|width| {
            fitted(&names, width);
        });
    }

    #[test]
    fn places() {
        assert_eq!(place("/a/b/model.mlir:12", 18), "/a/b/model.mlir:12");
        assert_eq!(place("/a/b/model.mlir:12", 15), "…/model.mlir:12");
        assert_eq!(place("/a/b/model.mlir:12", 14), "…model.mlir:12");
    }
}
