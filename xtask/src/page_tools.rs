//! The npm packages with which tests check the page that `counterpoint report --html` writes.
//! axe-core finds parts that people with a screen reader or poor sight could not use. TypeScript
//! checks the types in the page's JavaScript modules.

use crate::npm::Package;

pub const AXE: Package = Package {
    name: "axe-core@4.14.1",
    home: "axe-core",
    inside: "package",
    archive: "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745",
    sums: "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c  axe.min.js\n",
};

pub const TYPESCRIPT: Package = Package {
    name: "typescript@5.9.3",
    home: "typescript",
    inside: "package/lib",
    archive: "10e108c9cf7d5f2879053dff18515fb405abf2ccef63eaaf017d9c571687a1d3",
    sums: "\
2cffde0b8c6760dfb0b5b0382bbb7e00ba6a8b2d981b9205b256a700a481d983  tsc.js
e8f349eabd48486bdb2bf9dc1a00c89d58297270c54b745838879e2859194419  _tsc.js
c430d44666289dae81f30fa7b2edebf186ecc91a2d4c71266ea6ae76388792e1  lib.es5.d.ts
080941d9f9ff9307f7e27a83bcd888b7c8270716c39af943532438932ec1d0b9  lib.dom.d.ts
",
};
