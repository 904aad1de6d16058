//! Makes an enum from one list: its variants, their names for people, and (for `numbered!`) their
//! numbers in files.

/// Defines an enum whose variants have names: `named! { pub enum E { A = "a" } }`.
///
/// The enum has the constant `ALL`, in the order of the list, and the method `name`. Documents and
/// tables use these names.
#[macro_export]
macro_rules! named {
    (
        $(#[$meta:meta])*
        $visible:vis enum $name:ident {
            $($(#[$about:meta])* $variant:ident = $word:literal),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visible enum $name { $($(#[$about])* $variant),+ }

        $crate::named!(@words $visible $name $($variant = $word),+);
    };
    (@words $visible:vis $name:ident $($variant:ident = $word:literal),+) => {
        #[allow(dead_code, reason = "not every enum needs all of these")]
        impl $name {
            /// All variants, in the order of the list.
            $visible const ALL: [Self; [$(Self::$variant),+].len()] = [$(Self::$variant),+];

            /// Returns the name.
            $visible fn name(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }
    };
}

/// Like [`named!`], but each variant also has a `u8` number, which files contain:
/// `numbered! { pub enum E { A = 0 "a" } }`. `E::from_u8` returns the variant with a number.
#[macro_export]
macro_rules! numbered {
    (
        $(#[$meta:meta])*
        $visible:vis enum $name:ident {
            $($(#[$about:meta])* $variant:ident = $number:literal $word:literal),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        $visible enum $name { $($(#[$about])* $variant = $number),+ }

        $crate::named!(@words $visible $name $($variant = $word),+);

        impl $name {
            /// Returns the variant with this number, if this version knows it.
            $visible fn from_u8(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}
