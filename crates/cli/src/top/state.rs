//! What the screen shows, and what keys do.

use std::collections::VecDeque;

use anyhow::Result;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::monitor::alerts::{Alert, Throttled, alerts};
use crate::monitor::rates::Rates;
use crate::monitor::sample::Sample;

/// The number of samples whose throughput is drawn.
const TREND: usize = 240;
const PAGE_LINES: u16 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Overview,
    Zones,
    Requests,
    Writes,
    Help,
}

/// What comes after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Continue,
    End,
}

pub(super) struct Screen {
    pub(super) view: View,
    pub(super) is_paused: bool,
    /// The number of lines above the screen.
    pub(super) scroll: u16,
    pub(super) sample: Sample,
    pub(super) rates: Rates,
    pub(super) alerts: Vec<Alert>,
    throttled: Throttled,
    /// User writes and device writes in bytes per second, the newest last.
    pub(super) trend: VecDeque<(u64, u64)>,
    /// Why there is no newer sample.
    pub(super) error: Option<String>,
}

impl View {
    pub(super) const ALL: [View; 5] = [View::Overview, View::Zones, View::Requests, View::Writes, View::Help];

    pub(super) fn name(self) -> &'static str {
        match self {
            View::Overview => "overview",
            View::Zones => "zones",
            View::Requests => "requests",
            View::Writes => "writes",
            View::Help => "help",
        }
    }

    /// The key that selects it.
    pub(super) fn key(self) -> &'static str {
        match self {
            View::Overview => "F2",
            View::Zones => "F3",
            View::Requests => "F4",
            View::Writes => "F5",
            View::Help => "F1",
        }
    }

    fn after(self, steps: usize) -> View {
        let at = View::ALL.iter().position(|view| *view == self).unwrap_or(0);
        View::ALL[(at + steps) % View::ALL.len()]
    }
}

impl Screen {
    pub(super) fn new(sample: Sample) -> Screen {
        let rates = Rates::between(None, &sample);
        let mut throttled = Throttled::default();
        throttled.note(&sample);
        let alerts = alerts(&sample, &rates, throttled);
        Screen {
            view: View::Overview,
            is_paused: false,
            scroll: 0,
            sample,
            rates,
            alerts,
            throttled,
            trend: VecDeque::new(),
            error: None,
        }
    }

    /// Takes a new sample, or the reason why there is none. A paused screen drops both.
    pub(super) fn take(&mut self, taken: Result<Sample>) {
        if self.is_paused {
            return;
        }
        match taken {
            Ok(sample) => {
                self.rates = Rates::between(Some(&self.sample), &sample);
                self.throttled.note(&sample);
                self.alerts = alerts(&sample, &self.rates, self.throttled);
                self.sample = sample;
                self.error = None;
                let bytes = [self.rates.written_bytes_per_second, self.rates.device_bytes_per_second()];
                self.trend.push_back((bytes[0] as u64, bytes[1] as u64));
                self.trend.drain(..self.trend.len().saturating_sub(TREND));
            }
            Err(error) => self.error = Some(format!("{error:#}")),
        }
    }

    pub(super) fn press(&mut self, key: KeyEvent) -> Step {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return Step::End,
            KeyCode::Char('q' | 'Q') | KeyCode::F(10) | KeyCode::Esc => return Step::End,
            KeyCode::Char('p' | 'P' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Tab | KeyCode::Right => self.see(self.view.after(1)),
            KeyCode::BackTab | KeyCode::Left => self.see(self.view.after(View::ALL.len() - 1)),
            KeyCode::F(1) | KeyCode::Char('h' | '?') => self.see(View::Help),
            KeyCode::F(2) | KeyCode::Char('1') => self.see(View::Overview),
            KeyCode::F(3) | KeyCode::Char('2') => self.see(View::Zones),
            KeyCode::F(4) | KeyCode::Char('3') => self.see(View::Requests),
            KeyCode::F(5) | KeyCode::Char('4') => self.see(View::Writes),
            KeyCode::Down => self.scroll = self.scroll.saturating_add(1),
            KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_add(PAGE_LINES),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(PAGE_LINES),
            KeyCode::Home => self.scroll = 0,
            _ => {}
        }
        Step::Continue
    }

    fn see(&mut self, view: View) {
        self.view = view;
        self.scroll = 0;
    }
}
