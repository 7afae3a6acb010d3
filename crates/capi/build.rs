//! Makes `polder.h` from the documentation and the signatures of the functions.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=cbindgen.toml");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = std::env::var_os("OUT_DIR").expect("cargo sets it");
    let header = cbindgen::generate(here).expect("the header can be made of the sources");
    header.write_to_file(Path::new(&target).join("polder.h"));
}
