//! `polder top`: a live view of a mounted volume in the terminal.
//!
//! A thread of its own asks the daemon for samples, so keys work while the daemon is busy or hangs. The screen then shows
//! the last sample, and why there is no newer one.

mod draw;
mod state;
mod text;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use rt::thread::Stop;

use crate::client::Client;
use crate::control::Request;
use crate::misuse::Misuse;
use crate::monitor::rates::Rates;
use crate::monitor::sample::Sample;
use crate::output::{line, say};
use crate::volume::Volume;
use state::{Screen, Step};

/// How often keys and samples are looked for.
const TICK: Duration = Duration::from_millis(100);
/// The time between the two samples of `--once`.
const ONCE: Duration = Duration::from_secs(1);

/// Show what a mounted volume does, live: throughput, latencies, zones, garbage collection, device health.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The directory on which the volume is mounted.
    directory: PathBuf,
    /// The time between two samples in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=3600))]
    interval: u16,
    /// Print one sample as text, with the rates of one second.
    #[arg(long)]
    once: bool,
    /// Print one sample as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if !(arguments.json
        || arguments.once
        || std::io::stdout().is_terminal() && std::io::stdin().is_terminal())
    {
        return Err(Misuse::error(
            "top needs a terminal; use --once for one sample as text, or --json".to_owned(),
        ));
    }
    let mut client = connect(&arguments.directory)?;
    let first: Sample = client.ask(&Request::Monitor)?;
    if arguments.json {
        return line!("{}", serde_json::to_string_pretty(&first)?);
    }
    if arguments.once {
        Stop::default().wait(ONCE);
        let second: Sample = client.ask(&Request::Monitor)?;
        return say(text::of(&second, &Rates::between(Some(&first), &second)));
    }
    let screen = Screen::new(first);
    let samples = keep_asking(client, arguments)?;
    let mut terminal = ratatui::try_init().context("the terminal cannot be used")?;
    let shown = show(&mut terminal, screen, &samples);
    ratatui::restore();
    shown
}

fn connect(directory: &Path) -> Result<Client> {
    match Volume::find(directory)? {
        Volume::Served(client) => Ok(client),
        Volume::Opened(_) => bail!("{}: the volume is not mounted; mount it first", directory.display()),
    }
}

/// Starts the thread that asks for samples. A sample that is not taken from the channel delays the next one.
fn keep_asking(client: Client, arguments: &Arguments) -> Result<Receiver<Result<Sample>>> {
    let (sender, samples) = sync_channel(1);
    let (directory, interval) = (arguments.directory.clone(), Duration::from_secs(arguments.interval.into()));
    rt::thread::spawn("polder-asks", move || ask_until_closed(client, &directory, interval, &sender))?;
    Ok(samples)
}

fn ask_until_closed(
    client: Client,
    directory: &Path,
    interval: Duration,
    sender: &SyncSender<Result<Sample>>,
) {
    let (pause, mut client) = (Stop::default(), Some(client));
    loop {
        pause.wait(interval);
        let connected = client.take().map_or_else(|| connect(directory), Ok);
        let asked = connected.and_then(|mut connected| {
            let sample = connected.ask(&Request::Monitor)?;
            client = Some(connected);
            Ok(sample)
        });
        if sender.send(asked).is_err() {
            return;
        }
    }
}

fn show(
    terminal: &mut DefaultTerminal,
    mut screen: Screen,
    samples: &Receiver<Result<Sample>>,
) -> Result<()> {
    loop {
        terminal.draw(|frame| draw::screen(frame, &screen))?;
        if event::poll(TICK)?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
            && screen.press(key) == Step::End
        {
            return Ok(());
        }
        if let Ok(sample) = samples.try_recv() {
            screen.take(sample);
        }
    }
}
