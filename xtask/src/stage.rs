//! `cargo xtask stage` and `cargo xtask package`: everything that an installation has, below a directory or in a package.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use support::needs::{self, require_root};
use support::shell::Line;
use support::stage::{self, Built};
use support::workspace;

use crate::clean_root::Root;

/// `cargo xtask stage`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// For example /usr/local.
    prefix: PathBuf,
}

/// `cargo xtask package`.
#[derive(clap::Args)]
pub(crate) struct PackageArgs {
    /// Where the packages are put (default: target/package).
    directory: Option<PathBuf>,
    /// Then install the `.deb` in a clean root, use it there, and remove it. Needs root and the network.
    #[arg(long)]
    test: bool,
}

/// What a package is for, in one line and in a paragraph.
const SUMMARY: &str = "append-only file system for zoned storage, disks and files";
const DESCRIPTION: &str = "Polder is a POSIX file system in user space that only appends. It needs nothing but \
                           sequential zones, and works as well on ordinary disks and in plain files. This package has the \
                           command, the libraries for C, and their documentation.";

pub(crate) fn run(args: &Args) -> Result<()> {
    fs::create_dir_all(&args.prefix).with_context(|| args.prefix.display().to_string())?;
    let prefix = args.prefix.canonicalize()?;
    fill(&prefix, &prefix)?;
    // Packages do without it, because it fits one version of RocksDB only.
    stage::install_plugin(&prefix)?;
    println!("{}: programs find the library with PKG_CONFIG_PATH={0}/lib/pkgconfig", prefix.display());
    Ok(())
}

/// Builds everything, and puts it below `target`. Files that name their own place name `prefix`.
fn fill(target: &Path, prefix: &Path) -> Result<()> {
    let built = Built::for_use()?;
    stage::install(&built, target, prefix)?;
    let polder = workspace::build_polder()?;
    let [sbin, bin] = ["sbin", "bin"].map(|name| target.join(name));
    fs::create_dir_all(&sbin)?;
    fs::create_dir_all(&bin)?;
    // The program knows the names under which the system looks for it.
    Line::program(&polder).args(["install", "--prefix"]).arg(&sbin).output()?;
    Line::new("strip --strip-debug").arg(sbin.join("polder")).run()?;
    let _ = fs::remove_file(bin.join("polder"));
    symlink("../sbin/polder", bin.join("polder"))?;
    let share = target.join("share");
    Line::program(&polder).arg("manual").arg(share.join("man/man8")).output()?;
    for (shell, place) in [
        ("bash", "bash-completion/completions/polder"),
        ("zsh", "zsh/vendor-completions/_polder"),
        ("fish", "fish/vendor_completions.d/polder.fish"),
    ] {
        let script = Line::program(&polder).args(["completions", shell]).output()?;
        write(&share.join(place), &script)?;
    }
    let root = workspace::root();
    for (from, to) in [
        ("contrib/udev/60-polder.rules", "lib/udev/rules.d/60-polder.rules"),
        ("contrib/grafana/polder.json", "share/doc/polder/grafana.json"),
        ("contrib/magic/polder", "share/doc/polder/magic"),
        ("contrib/prometheus/polder.yml", "share/doc/polder/prometheus.yml"),
        ("README.md", "share/doc/polder/README.md"),
        ("CHANGELOG.md", "share/doc/polder/CHANGELOG.md"),
        ("docs/manual.md", "share/doc/polder/manual.md"),
        ("docs/semantics.md", "share/doc/polder/semantics.md"),
        ("docs/library.md", "share/doc/polder/library.md"),
        ("docs/c.md", "share/doc/polder/c.md"),
        ("examples/c/first_steps.c", "share/doc/polder/examples/first_steps.c"),
        ("examples/c/journal.c", "share/doc/polder/examples/journal.c"),
        ("LICENSE-APACHE", "share/doc/polder/LICENSE-APACHE"),
        ("LICENSE-MIT", "share/doc/polder/LICENSE-MIT"),
    ] {
        write(&target.join(to), &fs::read_to_string(root.join(from)).with_context(|| from.to_owned())?)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().context("it lies in a folder")?;
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, text))
        .with_context(|| path.display().to_string())
}

/// Builds the packages.
pub(crate) fn package(args: &PackageArgs) -> Result<()> {
    needs::require(&needs::PACKAGES)?;
    let home = match &args.directory {
        Some(directory) => directory.clone(),
        None => workspace::target_dir()?.join("package"),
    };
    let root = home.join("root");
    let _ = fs::remove_dir_all(&root);
    fill(&root.join("usr"), Path::new("/usr"))?;
    let deb = debian(&home, &root)?;
    let rpm = rpm(&home, &root)?;
    fs::remove_dir_all(&root)?;
    println!("{}\n{}", deb.display(), rpm.display());
    if args.test { trial(&home, &deb) } else { Ok(()) }
}

/// What a user does with a package, in a root that has nothing.
const USE: &str = "\
set -eu
polder --version
test -s /usr/share/man/man8/polder-mount.8
test -s /usr/share/doc/polder/manual.md
ldconfig -p | grep -q libpolder.so.0
mkfs.polder /volume --size 64M --label packaged
mkdir -p /mnt/volume
mount -t polder /volume /mnt/volume
echo kept > /mnt/volume/file
umount /mnt/volume
fsck.polder -n /volume
polder cat /volume file | grep -q kept
rm /volume
";

/// Installs a package in a clean root, uses it, and removes it again. Before that, `polder install` has put another
/// version there.
fn trial(home: &Path, deb: &Path) -> Result<()> {
    require_root("make a root")?;
    let root = Root::make(&home.join("roots"), "package")?;
    let name = deb.file_name().context("it has a name")?.to_string_lossy();
    fs::copy(deb, root.place().join(&*name))?;
    fs::copy(workspace::target_dir()?.join("release/polder"), root.place().join("usr/local/bin/polder"))?;
    root.run("polder install --prefix /sbin")?;
    fs::remove_file(root.place().join("usr/local/bin/polder"))?;
    root.run("apt-get update")?;
    root.run(&format!("apt-get install --yes --no-install-recommends /{name}"))?;
    root.write("usr/local/bin/use-package", USE)?;
    root.run("sh /usr/local/bin/use-package")?;
    root.run("dpkg --verify polder")?;
    root.run("apt-get remove --yes polder")?;
    for left in [
        "usr/sbin/polder",
        "usr/sbin/mkfs.polder",
        "usr/bin/polder",
        "usr/lib/libpolder.so.0",
        "usr/include/polder.h",
    ] {
        ensure!(root.place().join(left).symlink_metadata().is_err(), "/{left} is left behind");
    }
    println!("package: installed over `polder install`, used, and removed without a trace");
    Ok(())
}

/// A package for Debian and its descendants.
fn debian(home: &Path, root: &Path) -> Result<PathBuf> {
    let version = workspace::version()?;
    let architecture = Line::new("dpkg --print-architecture").output()?.trim().to_owned();
    let description = DESCRIPTION.to_owned();
    let kilobytes = Line::new("du --summarize --block-size 1024").arg(root).output()?;
    let kilobytes = kilobytes.split_whitespace().next().context("du printed nothing")?;
    let control = format!(
        "Package: polder\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: The authors of Polder\n\
         Section: admin\nPriority: optional\nInstalled-Size: {kilobytes}\n\
         Depends: libc6 (>= {GLIBC}), libgcc-s1\nRecommends: fuse3\n\
         Description: {SUMMARY}\n {description}\n"
    );
    let settings = root.join("DEBIAN");
    write(&settings.join("control"), &control)?;
    write(&settings.join("triggers"), "activate-noawait ldconfig\n")?;
    let package = home.join(format!("polder_{version}_{architecture}.deb"));
    Line::new("dpkg-deb --root-owner-group --build").arg(root).arg(&package).output()?;
    fs::remove_dir_all(settings)?;
    Ok(package)
}

/// The C library that the programs were linked to must not be newer.
const GLIBC: &str = "2.34";

/// A package for Fedora and its relatives.
fn rpm(home: &Path, root: &Path) -> Result<PathBuf> {
    let version = workspace::version()?;
    let top = home.join("rpmbuild");
    let mut files = Vec::new();
    list(root, root, &mut files)?;
    let spec = format!(
        "Name: polder\nVersion: {version}\nRelease: 1\nSummary: {SUMMARY}\nLicense: Apache-2.0 OR MIT\n\
         %global debug_package %{{nil}}\n%global __os_install_post %{{nil}}\n\
         Recommends: fuse3\n\n%description\n{DESCRIPTION}\n\n\
         %install\ncp --archive '{}/.' %{{buildroot}}\n\n\
         %post -p /sbin/ldconfig\n%postun -p /sbin/ldconfig\n\n%files\n{}\n",
        root.display(),
        files.join("\n")
    );
    write(&top.join("polder.spec"), &spec)?;
    Line::new("rpmbuild -bb --define")
        .arg(format!("_topdir {}", top.display()))
        .arg(top.join("polder.spec"))
        .output()
        .context("building the rpm")?;
    let built = support::packages::only_entry(&top.join("RPMS"))?;
    let folder = top.join("RPMS").join(built);
    let name = support::packages::only_entry(&folder)?;
    let package = home.join(&name);
    fs::rename(folder.join(&name), &package)?;
    fs::remove_dir_all(top)?;
    ensure!(package.is_file(), "rpmbuild made no package");
    Ok(package)
}

/// All files and links below a directory, by their paths from `root`.
fn list(root: &Path, folder: &Path, into: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            list(root, &entry.path(), into)?;
        } else {
            into.push(format!("/{}", entry.path().strip_prefix(root)?.display()));
        }
    }
    into.sort();
    Ok(())
}
