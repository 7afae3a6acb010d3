//! `polder completions`: how shells complete the command line.

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::output;

/// Print what makes a shell complete the commands and options of `polder`.
#[derive(clap::Args)]
#[command(after_help = "For the present user:\n  \
    bash: polder completions bash > ~/.local/share/bash-completion/completions/polder\n  \
    zsh:  polder completions zsh > DIR/_polder, for a DIR of $fpath\n  \
    fish: polder completions fish > ~/.config/fish/completions/polder.fish")]
pub(crate) struct Arguments {
    /// The shell.
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut crate::Arguments::command(), "polder", &mut script);
    output::say(script)
}
