//! A small Debian of its own below the target folder, made by `debootstrap` from the mirror that this machine uses.
//!
//! Commands run there in namespaces of their own: nothing of this machine changes, and no process or mount stays.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use support::packages::{KEYRING, Source, mirror};
use support::shell::Line;
use support::workspace;

const RELEASE: &str = "bookworm";

/// A root; removed in the end.
pub(crate) struct Root {
    place: PathBuf,
    /// The archives of packages that roots have in common.
    archives: PathBuf,
}

impl Root {
    /// Makes one below `home`.
    pub(crate) fn make(home: &Path, name: &str) -> Result<Root> {
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
        Ok(())
    }

    /// Writes a program.
    pub(crate) fn write(&self, path: &str, text: &str) -> Result<()> {
        let path = self.place.join(path);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    /// A command in the root, without anything that it starts or mounts outliving it.
    pub(crate) fn line(&self, words: &str) -> Line {
        let line = Line::new("unshare --mount --pid --fork --kill-child sh -ec").arg(
            "mount -t proc proc \"$0/proc\"; mount --rbind /dev \"$0/dev\"; mount --bind \"$1\" \"$0/var/cache/apt/archives\"; shift; \
             exec chroot \"$0\" \"$@\"",
        );
        let line = line.arg(&self.place).arg(&self.archives).args(words.split(' '));
        line.env("DEBIAN_FRONTEND", "noninteractive")
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
    }

    /// Runs a command that must succeed, and returns what it prints.
    pub(crate) fn run(&self, words: &str) -> Result<String> {
        println!("    in {}: {words}", self.place.display());
        self.line(words).output()
    }

    /// Where it lies.
    pub(crate) fn place(&self) -> &Path {
        &self.place
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
