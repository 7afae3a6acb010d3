//! Command lines: what is run is what is printed.

use std::ffi::OsStr;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

/// One command line, with its environment and the folder it runs in.
#[derive(Clone, Debug)]
pub struct Line {
    program: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    env_removed: Vec<&'static str>,
    dir: PathBuf,
}

impl Line {
    /// A command that will run in the workspace's root. `words` is split at spaces.
    pub fn new(words: &str) -> Self {
        let mut words = words.split_whitespace();
        let program = words.next().expect("callers name a program");
        Line::program(program).args(words)
    }

    /// A program by its path, which may have spaces in it.
    pub fn program(path: impl AsRef<OsStr>) -> Self {
        Line {
            program: path.as_ref().to_string_lossy().into_owned(),
            args: Vec::new(),
            env: Vec::new(),
            env_removed: Vec::new(),
            dir: crate::workspace::root(),
        }
    }

    /// Adds one argument, spaces and all.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_string_lossy().into_owned());
        self
    }

    /// Adds arguments.
    pub fn args<S: AsRef<str>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets a variable of the environment.
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.env.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Removes a variable that this process may have inherited.
    pub fn without_env(mut self, key: &'static str) -> Self {
        self.env_removed.push(key);
        self
    }

    /// Runs in another folder.
    pub fn in_dir(mut self, dir: &Path) -> Self {
        dir.clone_into(&mut self.dir);
        self
    }

    /// Lets another program start this command, as `nice` does.
    pub fn started_by(mut self, starter: Line) -> Self {
        let program = std::mem::replace(&mut self.program, starter.program);
        self.args = starter.args.into_iter().chain([program]).chain(self.args).collect();
        self
    }

    /// Runs the command with this process's output; an error if it fails.
    pub fn run(&self) -> Result<()> {
        let status = self.command().status().with_context(|| format!("cannot start `{self}`"))?;
        if !status.success() {
            bail!("`{self}` failed ({status})");
        }
        Ok(())
    }

    /// Runs the command, hands on each line of its standard output and shows it to `each`.
    pub fn run_watched(&self, mut each: impl FnMut(&str)) -> Result<()> {
        let mut child = self.command().stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().expect("asked for a pipe one line above");
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line.with_context(|| format!("cannot read what `{self}` prints"))?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            each(&line);
        }
        let status = child.wait()?;
        if !status.success() {
            bail!("`{self}` failed ({status})");
        }
        Ok(())
    }

    /// Runs the command and returns whether it succeeded and all that it printed.
    pub fn verdict(&self) -> Result<(bool, String)> {
        let (status, said) = self.outcome()?;
        Ok((status == Some(0), said))
    }

    /// The same with the exit status (none: a signal ended it).
    pub fn outcome(&self) -> Result<(Option<i32>, String)> {
        let output = self.command().output().with_context(|| format!("cannot start `{self}`"))?;
        let said = [output.stdout, output.stderr].concat();
        Ok((output.status.code(), String::from_utf8_lossy(&said).into_owned()))
    }

    /// Runs the command and returns its standard output; an error if it fails.
    pub fn output(&self) -> Result<String> {
        String::from_utf8(self.output_bytes()?).with_context(|| format!("`{self}` printed no UTF-8"))
    }

    /// The same, whatever the output is.
    pub fn output_bytes(&self) -> Result<Vec<u8>> {
        let output = self.command().output().with_context(|| format!("cannot start `{self}`"))?;
        if !output.status.success() {
            let said = [output.stderr, output.stdout].map(|said| String::from_utf8_lossy(&said).into_owned());
            bail!("`{self}` failed ({}): {}", output.status, said.join(" ").trim());
        }
        Ok(output.stdout)
    }

    /// Runs the command as this process; returns the reason if it cannot be started.
    pub fn replace_this_process(&self) -> anyhow::Error {
        anyhow::Error::new(self.command().exec()).context(format!("cannot start `{self}`"))
    }

    /// Starts the command and leaves it running, for the caller to wait for.
    pub fn start(&self, input: Stdio, output: Stdio, errors: Stdio) -> Result<Child> {
        let mut command = self.command();
        command.stdin(input).stdout(output).stderr(errors);
        command.spawn().with_context(|| format!("cannot start `{self}`"))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).current_dir(&self.dir).stdin(Stdio::null());
        for key in &self.env_removed {
            command.env_remove(key);
        }
        // What cargo has set for this program. Some build scripts depend on it, and a cargo that this program starts would
        // build their packages again.
        let inherited = std::env::vars_os().map(|(key, _)| key);
        for key in inherited.filter(|key| key.to_str().is_some_and(is_of_package)) {
            command.env_remove(key);
        }
        command.envs(self.env.iter().map(|(key, value)| (key, value)));
        command
    }
}

/// Whether cargo sets a variable for each package.
fn is_of_package(key: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|start| key.starts_with(start))
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (key, value) in &self.env {
            write!(f, "{key}={} ", quoted(value))?;
        }
        write!(f, "{}", quoted(&self.program))?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", quoted(arg)))
    }
}

/// `word` as a shell would have to be given it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests;
