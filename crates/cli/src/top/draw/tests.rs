use anyhow::anyhow;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::*;
use crate::monitor::sample::Sample;
use crate::top::state::Step;

fn sample() -> Sample {
    serde_json::from_str(include_str!("../../monitor/alerts/sample.json")).unwrap()
}

fn later(seconds: f64) -> Sample {
    let mut sample = sample();
    sample.up_seconds += seconds;
    sample.stats.written.user_bytes += 10 << 20;
    sample.stats.written.device_bytes += 15 << 20;
    *sample.stats.written.device_bytes_by_cause.get_mut("data").unwrap() += 15 << 20;
    sample
}

/// The text on a screen of this size.
fn drawn(of: &Screen, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen(frame, of)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>() + "\n";
    (0..height).map(line).collect()
}

fn press(screen: &mut Screen, code: KeyCode) -> Step {
    screen.press(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn the_overview_has_rates_and_the_state_of_gc() {
    let mut screen = Screen::new(sample());
    screen.take(Ok(later(2.0)));
    let text = drawn(&screen, 120, 40);
    for words in [
        "bench on /mnt, read-write",
        "no trouble found",
        "5 MiB/s by programs",
        "7.5 MiB/s written",
        "amplification 1.50 now",
        "throttle",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn trouble_is_shown_in_every_view() {
    let mut bad = sample();
    bad.info.shutdown_reason = Some("a write failed".to_owned());
    let mut screen = Screen::new(bad);
    screen.take(Err(anyhow!("its daemon has not answered")));
    for view in View::ALL {
        screen.view = view;
        let text = drawn(&screen, 120, 30);
        assert!(text.contains("CRITICAL  no new sample: its daemon has not answered"), "{text}");
        assert!(text.contains("CRITICAL  the volume accepts no changes: a write failed"), "{text}");
    }
}

#[test]
fn keys_select_views_pause_and_end() {
    let mut screen = Screen::new(sample());
    assert_eq!(press(&mut screen, KeyCode::Tab), Step::Continue);
    assert_eq!(screen.view, View::Zones);
    press(&mut screen, KeyCode::Left);
    press(&mut screen, KeyCode::Left);
    assert_eq!(screen.view, View::Help);
    assert!(drawn(&screen, 100, 20).contains("scroll"));
    for (key, view) in [(3, View::Zones), (4, View::Requests), (5, View::Writes), (2, View::Overview)] {
        press(&mut screen, KeyCode::F(key));
        assert_eq!(screen.view, view);
        assert!(drawn(&screen, 100, 30).contains(view.name()));
    }
    press(&mut screen, KeyCode::Char('p'));
    screen.take(Ok(later(1.0)));
    assert!(drawn(&screen, 100, 20).contains("PAUSED"));
    assert_eq!(screen.rates.seconds, sample().up_seconds, "a paused screen stays");
    for key in [KeyCode::Char('q'), KeyCode::Esc, KeyCode::F(10)] {
        assert_eq!(press(&mut screen, key), Step::End);
    }
    assert_eq!(screen.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Step::End);
}

#[test]
fn the_map_shows_each_zone() {
    let mut screen = Screen::new(sample());
    screen.view = View::Zones;
    let text = drawn(&screen, 100, 24);
    assert!(text.contains(" 64 zones ") && text.contains("open for writes: 7 (none, 50 % live)"), "{text}");
    let map = |cells: &str| -> String {
        let map = Map { zones: 9, zones_per_cell: 1, cells: cells.to_owned() };
        let lines = map_lines(&map, 100);
        lines.iter().flat_map(|line| line.spans.iter()).map(|span| span.content.to_string()).collect()
    };
    assert_eq!(map("L*M+D0D9G5..XX"), "█+·▇▄·X");
}

/// A terminal can be made smaller than anything that is shown.
#[test]
fn every_size_of_a_terminal_can_be_drawn() {
    let mut screen = Screen::new(sample());
    for view in View::ALL {
        screen.view = view;
        for (width, height) in [(1, 1), (2, 3), (10, 5), (40, 12), (300, 100)] {
            for scroll in [0, 1000, u16::MAX] {
                screen.scroll = scroll;
                drawn(&screen, width, height);
            }
        }
    }
}
