//! Checks that a program does the work it is needed for. Its name alone shows nothing.
//!
//! A check calls the program and looks at its output or at the file that it makes. The name does not tell the version,
//! the features that were built in, or whether the program runs at all. `rustup` has a `cargo-fmt` where no `rustfmt` is installed, `busybox` can be
//! linked dynamically or statically, and an old QEMU has NVMe without zones.
//!
//! Every check returns the reason why something does not do, as the end of a message.

use std::ffi::OsString;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::shell::Line;

/// The verdict of a check; the reason ends the message "X is needed: …".
pub(crate) type Shown = Result<(), String>;

/// The magic number of a file system, its offset, and the size of a file for it.
pub(crate) const EXT4: Made = Made { bytes: 16 << 20, offset: 0x438, magic: &[0x53, 0xef] };
pub(crate) const XFS: Made = Made { bytes: 512 << 20, offset: 0, magic: b"XFSB" };

pub(crate) struct Made {
    bytes: u64,
    offset: u64,
    magic: &'static [u8],
}

/// Where programs are looked for.
pub(crate) struct Machine {
    path: OsString,
}

impl Machine {
    /// This machine: where the shell looks, where root's programs are, and where cargo looks for its tools.
    pub(crate) fn this() -> Machine {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let cargo_home = std::env::var_os("CARGO_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cargo")));
        let folders = std::env::split_paths(&path)
            .chain(["/sbin", "/usr/sbin"].map(PathBuf::from))
            .chain(cargo_home.map(|home| home.join("bin")));
        Machine { path: std::env::join_paths(folders).unwrap_or(path) }
    }

    /// One that has no programs but those in a folder.
    #[cfg(test)]
    pub(crate) fn of(folder: &Path) -> Machine {
        Machine { path: folder.into() }
    }

    /// The program that a command of this name starts.
    fn find(&self, program: &str) -> Result<PathBuf, String> {
        let is_program = |path: &PathBuf| {
            path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        };
        let mut places = std::env::split_paths(&self.path).map(|folder| folder.join(program));
        places.find(is_program).ok_or_else(|| format!("there is no program `{program}`"))
    }

    /// Runs the command; its output if it succeeds.
    fn said(&self, command: &str) -> Result<String, String> {
        self.called(command, Line::new(command))
    }

    fn called(&self, command: &str, line: Line) -> Result<String, String> {
        let program = self.find(command.split(' ').next().unwrap_or(command))?;
        let path = self.path.to_string_lossy();
        let (works, said) = line.env("PATH", &path).verdict().map_err(|error| format!("{error:#}"))?;
        if works {
            return Ok(said);
        }
        let why = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it says nothing");
        Err(format!("`{command}` fails with {}: {why}", program.display()))
    }

    /// The command succeeds.
    pub(crate) fn runs(&self, command: &str) -> Shown {
        self.said(command).map(drop)
    }

    /// The command succeeds and says all of these.
    pub(crate) fn says(&self, command: &str, words: &[&str]) -> Shown {
        let said = self.said(command)?;
        match words.iter().find(|word| !said.contains(**word)) {
            Some(word) => Err(format!("`{command}` does not know `{word}`{}", self.whose(command))),
            None => Ok(()),
        }
    }

    /// The command names a version that cargo would take for `wanted`: at least as new, and compatible.
    pub(crate) fn compatible(&self, command: &str, wanted: &str) -> Shown {
        self.version(command, wanted, |found| {
            // Before 1.0 the second number is the one that tells compatible versions.
            let same = if numbers(wanted)[0] == 0 { 2 } else { 1 };
            found[..same] == numbers(wanted)[..same] && *found >= numbers(wanted)
        })
    }

    /// The command names a version that is at least as new.
    pub(crate) fn at_least(&self, command: &str, wanted: &str) -> Shown {
        self.version(command, wanted, |found| *found >= numbers(wanted))
    }

    fn version(&self, command: &str, wanted: &str, is_right: impl Fn(&[u64; 3]) -> bool) -> Shown {
        let said = self.said(command)?;
        let mut words = said.split_whitespace().map(|word| word.strip_prefix('v').unwrap_or(word));
        let found = words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        match found {
            Some(found) if is_right(&numbers(found)) => Ok(()),
            Some(found) => {
                Err(format!("`{command}` says {found}, {wanted} is needed{}", self.whose(command)))
            }
            None => Err(format!("`{command}` names no version{}", self.whose(command))),
        }
    }

    /// The compiler makes a program that runs.
    pub(crate) fn compiles(&self, compiler: &str) -> Shown {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let (source, program) = (folder.path().join("hello.c"), folder.path().join("hello"));
        let text = "#include <stdio.h>\nint main(void) { return puts(\"hello\") < 0; }\n";
        std::fs::write(&source, text).map_err(|error| error.to_string())?;
        let line = Line::new(compiler).args(["-Wall", "-Werror", "-o"]).arg(&program).arg(source);
        self.called(compiler, line)?;
        let ran = Line::program(&program).verdict().is_ok_and(|(works, said)| works && said == "hello\n");
        if ran {
            return Ok(());
        }
        Err(format!("a program made by `{compiler}` does not run{}", self.whose(compiler)))
    }

    /// The command, with a file behind it, makes a file system in the file.
    pub(crate) fn makes(&self, command: &str, made: &Made) -> Shown {
        let wrong = |error: std::io::Error| format!("a file to try `{command}` on: {error}");
        let file = tempfile::NamedTempFile::new().map_err(wrong)?;
        file.as_file().set_len(made.bytes).map_err(wrong)?;
        self.called(command, Line::new(command).arg(file.path()))?;
        let mut found = vec![0; made.magic.len()];
        file.as_file().read_exact_at(&mut found, made.offset).map_err(wrong)?;
        if found == made.magic {
            return Ok(());
        }
        Err(format!("`{command}` makes another file system{}", self.whose(command)))
    }

    /// The command, with two folders behind it, copies a file from one to the other.
    pub(crate) fn copies(&self, command: &str) -> Shown {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
        for place in [&from, &to] {
            std::fs::create_dir(place).map_err(|error| error.to_string())?;
        }
        std::fs::write(from.join("file"), "contents").map_err(|error| error.to_string())?;
        self.called(command, Line::new(command).arg(from.join("file")).arg(&to))?;
        match std::fs::read(to.join("file")) {
            Ok(found) if found == b"contents" => Ok(()),
            _ => Err(format!("`{command}` copies nothing{}", self.whose(command))),
        }
    }

    /// The program works for users other than root: it belongs to root and is set-uid.
    pub(crate) fn is_set_uid(&self, program: &str) -> Shown {
        let path = self.find(program)?;
        let mode = path.metadata().map_err(|error| error.to_string())?.permissions().mode();
        if mode & 0o4000 != 0 {
            return Ok(());
        }
        Err(format!("{} is not set-uid, so only root can mount with it", path.display()))
    }

    /// The module can be imported by this interpreter.
    pub(crate) fn imports(&self, python: &str, module: &str) -> Shown {
        let line = Line::new(python).args(["-c", &format!("import {module}")]);
        self.called(python, line).map(drop).map_err(|_| format!("{python} cannot import `{module}`"))
    }

    /// Which program it was that a command started.
    fn whose(&self, command: &str) -> String {
        let program = self.find(command.split(' ').next().unwrap_or(command));
        program.map(|path| format!(" (it is {})", path.display())).unwrap_or_default()
    }
}

/// The file is there: a header, of which no program shows that it is.
pub(crate) fn has_file(path: &str) -> Shown {
    if Path::new(path).is_file() { Ok(()) } else { Err(format!("there is no {path}")) }
}

/// The first three numbers of a version, as `1.97.0-nightly` or `27.1.0`; a missing number is 0.
fn numbers(version: &str) -> [u64; 3] {
    let mut parts = version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}

/// Whether a guest without libraries can run this program: its ELF header asks for no interpreter.
pub(crate) fn is_static(program: &[u8]) -> Result<(), String> {
    const CLASS_64_LITTLE_ENDIAN: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, 1];
    const X86_64: u64 = 62;
    const INTERPRETER: u64 = 3;
    let number = |at: usize, bytes: usize| {
        let field = program.get(at..at.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    };
    if !program.starts_with(&CLASS_64_LITTLE_ENDIAN) || number(18, 2) != Some(X86_64) {
        return Err("it is no program for x86-64".to_owned());
    }
    // Where the table of segments is, how long an entry is, and how many there are.
    let table = number(32, 8).zip(number(54, 2)).zip(number(56, 2));
    let ((table, entry), entries) = table.ok_or("its header is cut short")?;
    for index in 0..entries {
        let at = table.saturating_add(index.saturating_mul(entry));
        let kind = usize::try_from(at).ok().and_then(|at| number(at, 4));
        match kind {
            Some(INTERPRETER) => return Err("it is linked dynamically".to_owned()),
            Some(_) => {}
            None => return Err("its table of segments is cut short".to_owned()),
        }
    }
    Ok(())
}
