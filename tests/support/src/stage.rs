//! The C library as programs use it: `libpolder.so`, `polder.h` and `polder.pc` below a directory. The plugin of RocksDB
//! is built with it where RocksDB's headers and a compiler of C++ are.
//!
//! Cargo makes an archive. The linker of C makes the shared library of it, because cargo's own step can version no
//! symbols.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::shell::Line;
use crate::{needs, workspace};

/// The name that programs are linked to. Its number changes when programs must be compiled again.
const SONAME: &str = "libpolder.so.0";

/// The plugin of RocksDB.
pub const PLUGIN: &str = "librocksdb-polder.so";

/// What cargo has made of the crate.
pub struct Built {
    /// The archive of all code.
    pub archive: PathBuf,
    /// The header.
    pub header: PathBuf,
}

/// Builds the plugin and installs it beside the library below `prefix`, if the machine has what it needs.
pub fn install_plugin(prefix: &Path) -> Result<()> {
    match needs::lacks_of_plugin() {
        Some(reason) => println!("{PLUGIN} is not built: {reason}"),
        None => plugin_line(prefix, "install")?.run()?,
    }
    Ok(())
}

/// What builds a target of `rocksdb/Makefile` with the library below `prefix`.
pub fn plugin_line(prefix: &Path, target: &str) -> Result<Line> {
    let build = workspace::target_dir()?.join("rocksdb");
    let line = Line::new("make --no-print-directory --silent -j4 -C rocksdb").arg(target);
    Ok(line
        .arg(format!("POLDER={}", prefix.canonicalize()?.display()))
        .arg(format!("BUILD={}", build.display())))
}

/// Links the shared library and installs it, the header and the file for pkg-config below `target`. The latter says that
/// they are below `prefix`.
pub fn install(built: &Built, target: &Path, prefix: &Path) -> Result<()> {
    let [lib, include] = ["lib", "include"].map(|name| target.join(name));
    for folder in [&lib.join("pkgconfig"), &include] {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let version = workspace::version()?;
    let library = lib.join(format!("libpolder.so.{version}"));
    // A program that runs with the old library keeps it.
    let fresh = lib.join(format!(".libpolder.so.{}", std::process::id()));
    link(&built.archive, &fresh).run()?;
    fs::rename(&fresh, &library)?;
    for name in [SONAME, "libpolder.so"] {
        replace_link(library.file_name().context("it has a name")?.as_ref(), &lib.join(name))?;
    }
    fs::copy(&built.header, include.join("polder.h"))?;
    fs::write(lib.join("pkgconfig/polder.pc"), package(prefix, &version))?;
    Ok(())
}

/// What links the shared library.
fn link(archive: &Path, library: &Path) -> Line {
    let map = workspace::root().join("crates/capi/polder.map");
    Line::new("cc -shared -o")
        .arg(library)
        .arg(format!("-Wl,-soname,{SONAME}"))
        .arg(format!("-Wl,--version-script={}", map.display()))
        // It has threads of its own, so it cannot be unloaded.
        .args([
            "-Wl,--gc-sections",
            "-Wl,-z,nodelete",
            "-Wl,-z,relro,-z,now",
            "-Wl,-S",
            "-Wl,--whole-archive",
        ])
        .arg(archive)
        .args(["-Wl,--no-whole-archive", "-lgcc_s", "-lm", "-lpthread", "-ldl", "-lc"])
}

fn package(prefix: &Path, version: &str) -> String {
    format!(
        "prefix={}\n\
         libdir=${{prefix}}/lib\n\
         includedir=${{prefix}}/include\n\n\
         Name: polder\n\
         Description: a file system in a file or on a zoned device\n\
         Version: {version}\n\
         Libs: -L${{libdir}} -lpolder\n\
         Cflags: -I${{includedir}}\n",
        prefix.display()
    )
}

fn replace_link(target: &Path, link: &Path) -> Result<()> {
    let fresh = link.with_extension(format!("{}", std::process::id()));
    symlink(target, &fresh)
        .and_then(|()| fs::rename(&fresh, link))
        .with_context(|| link.display().to_string())
}

impl Built {
    /// Builds the library for use.
    pub fn for_use() -> Result<Built> {
        let line =
            "cargo build --release --locked --package polder-capi --message-format json-render-diagnostics";
        Built::find(&Line::new(line).output()?)
    }

    /// Finds what `cargo build --message-format json` has made.
    fn find(messages: &str) -> Result<Built> {
        let messages: Vec<Value> =
            messages.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let of_crate = |reason: &str| {
            messages.iter().rev().find(|message| {
                let id = message["package_id"].as_str().unwrap_or_default();
                message["reason"] == reason && id.contains("/crates/capi#")
            })
        };
        let built = of_crate("compiler-artifact").context("cargo has built no library")?;
        let files = built["filenames"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let archive = files.map(PathBuf::from).find(|file| file.extension().is_some_and(|end| end == "a"));
        let script = of_crate("build-script-executed").context("cargo has made no header")?;
        let folder = script["out_dir"].as_str().context("cargo names no folder of the header")?;
        Ok(Built {
            archive: archive.context("cargo has made no archive")?,
            header: Path::new(folder).join("polder.h"),
        })
    }
}
