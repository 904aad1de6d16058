//! Reads shapes in arguments (`float32[64, 784], float32[784, 256]`), in the names of IREE's
//! dispatches (`mlp_dispatch_0_matmul_64x256x784_f32`), and in rules (`[m, k], [k, n]`).

use std::collections::BTreeMap;

/// A type of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number {
    /// Whether the numbers are floating-point numbers.
    pub is_float: bool,
    /// The size of a number in bits.
    pub bits: u32,
}

impl Number {
    /// Reads the name of a type as hosts write it: `float32`, `f32`, `bfloat16`, `int8`, `i64`,
    /// `uint8`, `bool`.
    pub fn of_name(name: &str) -> Option<Self> {
        let digits = name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len());
        let (kind, bits) = name.split_at(digits);
        let is_float = match kind {
            "float" | "f" | "bfloat" | "bf" => true,
            "int" | "i" | "uint" | "u" | "ui" | "si" => false,
            "bool" => return Some(Self { is_float: false, bits: 8 }),
            _ => return None,
        };
        let bits = bits.parse().ok().filter(|bits| matches!(bits, 8 | 16 | 32 | 64))?;
        Some(Self { is_float, bits })
    }

    /// Returns the size of a number in bytes.
    pub fn bytes(self) -> f64 {
        f64::from(self.bits) / 8.0
    }
}

/// An argument that is a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// The type of its numbers. `None` if the type is not known.
    pub number: Option<Number>,
    /// The shape. `None` if it is not known.
    pub dims: Option<Vec<u64>>,
}

impl Tensor {
    /// Returns the number of elements.
    pub fn elements(&self) -> Option<f64> {
        Some(self.dims.as_ref()?.iter().map(|dim| *dim as f64).product())
    }

    /// Returns the number of bytes of an element.
    pub fn bytes_each(&self) -> Option<f64> {
        self.number.map(Number::bytes)
    }

    /// Returns the number of bytes of all elements.
    pub fn bytes(&self) -> Option<f64> {
        Some(self.elements()? * self.bytes_each()?)
    }
}

/// Returns the type of the tensors' numbers. If there are floating-point tensors, tensors of
/// integers are ignored, because they usually contain indices. `None` if the other tensors have
/// different types, or if a type is not known. If all tensors are of integers, none is ignored.
pub fn number_of(tensors: &[Tensor]) -> Option<Number> {
    let is_float = |tensor: &Tensor| tensor.number.is_none_or(|number| number.is_float);
    let any_float = tensors.iter().any(is_float);
    let counted = tensors.iter().filter(|tensor| is_float(tensor) || !any_float);
    let mut numbers = counted.map(|tensor| tensor.number);
    let first = numbers.next()??;
    numbers.all(|number| number == Some(first)).then_some(first)
}

/// Reads arguments in the form that the recorder writes. `None` if the text has another form, for
/// example because it was cut.
pub fn tensors(arguments: &str) -> Option<Vec<Tensor>> {
    let mut rest = arguments.trim();
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('[')?;
        let (dims, after) = after.split_once(']')?;
        let name = name.trim();
        if name.contains([',', ' ']) {
            return None;
        }
        let dim = |text: &str| text.trim().parse::<u64>().ok();
        let dims = match dims.trim() {
            "" => Some(Vec::new()),
            dims => dims.split(',').map(dim).collect(),
        };
        found.push(Tensor { number: Number::of_name(name), dims });
        rest = after.trim_start();
        match rest.strip_prefix(',') {
            Some(more) => rest = more.trim_start(),
            None if rest.is_empty() => {}
            None => return None,
        }
    }
    Some(found)
}

/// Returns the number of elements of the shape to which an elementwise op stretches (broadcasts)
/// these tensors. `None` if the shapes do not fit together, or if one is not known.
pub fn stretched(tensors: &[Tensor]) -> Option<f64> {
    let mut result: Vec<u64> = Vec::new();
    for tensor in tensors {
        let dims = tensor.dims.as_ref()?;
        while result.len() < dims.len() {
            result.insert(0, 1);
        }
        let skipped = result.len() - dims.len();
        for (of_result, dim) in result[skipped..].iter_mut().zip(dims) {
            match (*of_result, *dim) {
                (a, b) if a == b || b == 1 => {}
                (1, b) => *of_result = b,
                _ => return None,
            }
        }
    }
    Some(result.iter().map(|dim| *dim as f64).product())
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InName {
    pub dims: Vec<u64>,
    pub number: Option<Number>,
}

/// Finds the dimensions in the name of a dispatch. They are numbers with `x` between them, in the
/// first part (between underscores) after `_dispatch_N_` that begins with a digit or `D`. The last
/// number may be followed by a type (`64x10xf32`). Otherwise, the next part contains the type, if
/// it is a single type (`f32`, but not `i8xi8xi32`). `None` if there are no dimensions, or if one
/// is only known when the program runs (`D`).
pub fn in_name(name: &str) -> Option<InName> {
    let (_, after) = name.split_once("_dispatch_")?;
    let mut parts = after.split('_').skip(1);
    let part = parts.find(|part| part.starts_with(|c: char| c.is_ascii_digit() || c == 'D'))?;
    let mut pieces: Vec<&str> = part.split('x').collect();
    let mut number = pieces.last().and_then(|last| Number::of_name(last));
    match number {
        Some(_) => drop(pieces.pop()),
        None => number = parts.next().and_then(one_type),
    }
    let dims = pieces.iter().map(|piece| piece.parse().ok()).collect::<Option<Vec<u64>>>()?;
    (!dims.is_empty()).then_some(InName { dims, number })
}

fn one_type(part: &str) -> Option<Number> {
    let mut types = part.split('x').map(Number::of_name);
    let first = types.next()??;
    types.all(|other| other == Some(first)).then_some(first)
}

/// The shape of one argument in a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Fixed(u64),
    One(String),
    /// Any number of dimensions (`*word`), with the word that stands for them. `*` alone has no
    /// word.
    Many(Option<String>),
}

impl Pattern {
    /// Reads shapes such as `[m, k], [*b, k, n]`.
    pub fn all(text: &str) -> Result<Vec<Self>, String> {
        let wrong = || format!("{text:?}: expected shapes such as [m, k], [k, n]");
        let mut rest = text.trim();
        let mut all = Vec::new();
        while !rest.is_empty() {
            let (dims, after) =
                rest.strip_prefix('[').and_then(|r| r.split_once(']')).ok_or_else(wrong)?;
            let pieces = dims.split(',').map(str::trim).filter(|piece| !piece.is_empty());
            let pieces: Vec<Piece> =
                pieces.map(|p| Piece::of(p).ok_or_else(wrong)).collect::<Result<_, _>>()?;
            if pieces.iter().filter(|piece| matches!(piece, Piece::Many(_))).count() > 1 {
                return Err(format!("[{dims}]: only one * in a shape"));
            }
            all.push(Self(pieces));
            rest = after.trim_start().trim_start_matches(',').trim_start();
        }
        Ok(all)
    }

    pub fn names(&self) -> Vec<String> {
        let name = |piece: &Piece| match piece {
            Piece::One(name) | Piece::Many(Some(name)) => Some(name.clone()),
            _ => None,
        };
        self.0.iter().filter_map(name).collect()
    }
}

impl Piece {
    fn of(text: &str) -> Option<Self> {
        let is_word = |word: &str| {
            !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        };
        match text.strip_prefix('*') {
            Some("") => Some(Self::Many(None)),
            Some(word) if is_word(word) => Some(Self::Many(Some(word.to_owned()))),
            Some(_) => None,
            None if is_word(text) => Some(Self::One(text.to_owned())),
            None => text.parse().ok().map(Self::Fixed),
        }
    }
}

/// The dimensions that each word of a rule stands for.
#[derive(Debug, Default)]
pub struct Dimensions<'a>(BTreeMap<&'a str, Vec<u64>>);

impl<'a> Dimensions<'a> {
    /// Matches tensors with patterns. `None` if the tensors do not have these shapes. Tensors after
    /// the last pattern may have any shape.
    pub fn of(patterns: &'a [Pattern], tensors: &[Tensor]) -> Option<Self> {
        let mut found = Self::default();
        if tensors.len() < patterns.len() {
            return None;
        }
        for (pattern, tensor) in patterns.iter().zip(tensors) {
            if !found.fits(pattern, tensor.dims.as_deref()) {
                return None;
            }
        }
        Some(found)
    }

    fn fits(&mut self, pattern: &'a Pattern, dims: Option<&[u64]>) -> bool {
        let pieces = &pattern.0;
        if let ([Piece::Many(None)], None) = (pieces.as_slice(), dims) {
            return true;
        }
        let Some(dims) = dims else { return false };
        let many = pieces.iter().position(|piece| matches!(piece, Piece::Many(_)));
        let fixed = pieces.len() - usize::from(many.is_some());
        if dims.len() < fixed || (many.is_none() && dims.len() != fixed) {
            return false;
        }
        let mut at = 0;
        pieces.iter().all(|piece| {
            let count = if matches!(piece, Piece::Many(_)) { dims.len() - fixed } else { 1 };
            let these = &dims[at..at + count];
            at += count;
            match piece {
                Piece::Fixed(size) => these == [*size],
                Piece::Many(None) => true,
                Piece::One(name) | Piece::Many(Some(name)) => {
                    let known = self.0.entry(name).or_insert_with(|| these.to_vec());
                    known == these
                }
            }
        })
    }

    /// Returns the product of each word's dimensions.
    pub fn values(&self) -> BTreeMap<String, f64> {
        let product = |dims: &Vec<u64>| dims.iter().map(|dim| *dim as f64).product();
        self.0.iter().map(|(name, dims)| ((*name).to_owned(), product(dims))).collect()
    }
}
