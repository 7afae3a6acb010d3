//! `cargo xtask setup-test`: runs set-up in a root that has nothing, and in one with unsuitable programs.
//!
//! Each root is a small Debian of its own below the target folder, made by `debootstrap` from the mirror that this
//! machine uses. Set-up's packages are installed there by this program, in namespaces of its own: nothing of this
//! machine changes, and no process or mount stays. Compilers and cargo's tools are left out, and so is the kernel, which
//! a root has not of its own; for these, tests show programs that look right.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use support::needs::require_root;
use support::packages::{KEYRING, Source, mirror};
use support::shell::Line;
use support::workspace;

const RELEASE: &str = "bookworm";
/// Where this program lies in a root, and where it puts files that it fetches and does not install.
const PROGRAM: &str = "/usr/local/bin/xtask";
const FETCHED: &str = "/var/cache/fetched";
/// Programs that are found before those of packages, and do not do what is needed.
const UNSUITABLE: [(&str, &str); 2] =
    [("clang", "#!/bin/sh\nexit 0\n"), ("qemu-system-x86_64", "#!/bin/sh\necho nvme-ns without zones\n")];

pub(crate) fn run() -> Result<()> {
    require_root("make a root")?;
    let home = workspace::target_dir()?.join("setup-test");
    fs::create_dir_all(&home)?;
    let clean = Root::make(&home, "clean")?;
    clean.passes()?;
    let other = Root::make(&home, "unsuitable")?;
    other.run("apt-get install --yes --no-install-recommends busybox")?;
    for (name, text) in UNSUITABLE {
        other.write(&format!("usr/local/bin/{name}"), text)?;
    }
    for (name, _) in UNSUITABLE {
        other.is_refused_for(&format!("/usr/local/bin/{name}"))?;
        fs::remove_file(other.place.join("usr/local/bin").join(name))?;
    }
    other.passes()?;
    other.run("dpkg --status busybox").context("set-up replaced the machine's busybox")?;
    println!("setup-test: 2 roots, {} unsuitable programs refused by name", UNSUITABLE.len());
    Ok(())
}

/// A root; removed in the end.
struct Root {
    place: PathBuf,
    /// The archives of packages that roots have in common.
    archives: PathBuf,
}

impl Root {
    fn make(home: &Path, name: &str) -> Result<Root> {
        let work = home.join("fetch");
        let tools = work.join("unpacked");
        if !tools.join("usr/sbin/debootstrap").is_file() {
            Source::of(RELEASE, &work)?.unpack(&["debootstrap"])?;
        }
        let archives = home.join("archives");
        fs::create_dir_all(archives.join("partial"))?;
        let root = Root { place: home.join(name), archives };
        root.remove()?;
        println!("=== a root: {name}");
        let line = Line::new("sh")
            .arg(tools.join("usr/sbin/debootstrap"))
            .args(["--variant=minbase", "--keyring", KEYRING, RELEASE])
            .arg(&root.place)
            .arg(mirror()?)
            .env("DEBOOTSTRAP_DIR", &tools.join("usr/share/debootstrap").to_string_lossy());
        println!("    {line}");
        line.output()?;
        root.furnish()?;
        Ok(root)
    }

    /// How the machine reaches its mirror, this program, and the folder in which it runs commands. Servers that a
    /// package brings are not started.
    fn furnish(&self) -> Result<()> {
        for settings in ["/etc/resolv.conf", "/etc/hosts", "/etc/apt/apt.conf.d"] {
            if Path::new(settings).exists() {
                Line::new("cp --recursive --dereference --no-target-directory")
                    .args([settings, &format!("{}{settings}", self.place.display())])
                    .run()?;
            }
        }
        fs::create_dir_all(self.place.join(workspace::root().strip_prefix("/")?))?;
        self.write("usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n")?;
        let own = std::env::current_exe().context("cannot find this program")?;
        fs::copy(own, self.place.join(PROGRAM.trim_start_matches('/')))?;
        Ok(())
    }

    fn write(&self, path: &str, text: &str) -> Result<()> {
        let path = self.place.join(path);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    /// A command in the root, without anything that it starts or mounts outliving it.
    fn line(&self, words: &str) -> Line {
        let line = Line::new("unshare --mount --pid --fork --kill-child sh -ec").arg(
            "mount -t proc proc \"$0/proc\"; mount --bind \"$1\" \"$0/var/cache/apt/archives\"; shift; \
             exec chroot \"$0\" \"$@\"",
        );
        let line = line.arg(&self.place).arg(&self.archives).args(words.split(' '));
        line.env("DEBIAN_FRONTEND", "noninteractive")
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
    }

    fn run(&self, words: &str) -> Result<()> {
        println!("    in {}: {words}", self.place.display());
        self.line(words).output().map(drop)
    }

    fn set_up(&self) -> Result<(bool, String)> {
        let (passed, said) = self.line(&format!("{PROGRAM} setup --packages {FETCHED}")).verdict()?;
        let own = ["Missing: ", "Nothing ", "Installing: ", "error: "];
        let lines = said.lines().filter(|line| own.iter().any(|begin| line.starts_with(begin)));
        lines.for_each(|line| println!("    {line}"));
        Ok((passed, said))
    }

    /// Set-up installs what is missing, and finds nothing missing when it runs again.
    fn passes(&self) -> Result<()> {
        let (passed, said) = self.set_up()?;
        ensure!(passed, "set-up failed in {}: {said}", self.place.display());
        let (passed, said) = self.set_up()?;
        ensure!(passed && said.contains("Nothing to install"), "set-up has not done all of it: {said}");
        Ok(())
    }

    /// Set-up says which program is in the way.
    fn is_refused_for(&self, program: &str) -> Result<()> {
        let (passed, said) = self.set_up()?;
        let error = said.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
        ensure!(!passed && error.contains(program), "{program} is in the way, and set-up says: {error}");
        Ok(())
    }

    fn remove(&self) -> Result<()> {
        Line::new("rm --recursive --force --one-file-system").arg(&self.place).run()
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            println!("{} is left behind: {error:#}", self.place.display());
        }
    }
}
