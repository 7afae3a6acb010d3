//! Draws the screen.

use std::collections::BTreeMap;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table, Wrap};

use super::state::{Screen, View};
use super::text;
use crate::bytes;
use crate::monitor::alerts::{Alert, Level};
use crate::monitor::sample::Map;

/// The most alerts that are shown at once.
const ALERTS_MAX: usize = 5;
/// Characters for the share of live blocks, from none to all.
const LEVELS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

const HELP: [(&str, &str); 10] = [
    ("F2 F3 F4 F5, 1 2 3 4", "overview, zones, requests, writes"),
    ("Tab, arrows left and right", "the next view, the previous view"),
    ("arrows up and down, PgUp, PgDn", "scroll"),
    ("p", "pause, and continue"),
    ("F1, h", "this page"),
    ("q, F10, Esc", "end"),
    ("", ""),
    ("median, 99 %, 99.9 %", "durations of requests of the last interval, to within a quarter"),
    ("amplification", "bytes written to the device for each byte that programs wrote"),
    ("throttle", "writers wait for garbage collection while it is on"),
];

pub(super) fn screen(frame: &mut Frame<'_>, screen: &Screen) {
    let alerts = alert_lines(screen, frame.area().width.into());
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(alerts.len() as u16),
        Constraint::Fill(1),
        Constraint::Length(1),
    ]);
    let [title, trouble, body, keys] = areas.areas(frame.area());
    let paused = if screen.is_paused { "  PAUSED" } else { "" };
    let heading = format!(" polder  {}{paused}", text::title(&screen.sample));
    frame.render_widget(Paragraph::new(heading).style(Style::new().add_modifier(Modifier::REVERSED)), title);
    frame.render_widget(Paragraph::new(alerts), trouble);
    match screen.view {
        View::Overview => overview(frame, screen, body),
        View::Zones => zones(frame, screen, body),
        View::Requests => requests(frame, screen, body),
        View::Writes => writes(frame, screen, body),
        View::Help => help(frame, body),
    }
    frame.render_widget(Paragraph::new(key_line(screen.view)), keys);
}

/// The remedy is on a line of its own if it does not fit behind the alert.
fn alert_lines(screen: &Screen, width: usize) -> Vec<Line<'static>> {
    let error = screen.error.as_ref().map(|error| Alert {
        level: Level::Critical,
        what: format!("no new sample: {error}"),
        remedy: "the numbers below are old".to_owned(),
    });
    let all: Vec<&Alert> = error.iter().chain(&screen.alerts).collect();
    if all.is_empty() {
        return vec![Line::styled(" OK        no trouble found", Color::Green)];
    }
    let line = |alert: &&Alert| {
        let colour = if alert.level == Level::Critical { Color::Red } else { Color::Yellow };
        let head = Span::styled(format!(" {:<9} ", text::level(alert.level)), Style::new().fg(colour).bold());
        let one = format!("{}; {}", alert.what, alert.remedy);
        if head.width() + one.chars().count() <= width {
            return vec![Line::from(vec![head, Span::raw(one)])];
        }
        let remedy = format!("{}{}", " ".repeat(head.width()), alert.remedy);
        vec![Line::from(vec![head, Span::raw(alert.what.clone())]), Line::raw(remedy)]
    };
    all.iter().take(ALERTS_MAX).flat_map(line).collect()
}

fn key_line(view: View) -> Line<'static> {
    let key = |of: View| {
        let style = if of == view { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        [Span::raw(format!(" {}", of.key())), Span::styled(of.name(), style)]
    };
    let views = View::ALL.into_iter().flat_map(key);
    let rest = [" p", "pause", " q", "end"].map(Span::raw);
    Line::from(views.chain(rest).collect::<Vec<_>>())
}

fn overview(frame: &mut Frame<'_>, screen: &Screen, area: Rect) {
    let lines = text::summary(&screen.sample, &screen.rates);
    let numbers = Constraint::Length(lines.len() as u16);
    let [top, trend, times] =
        Layout::vertical([numbers, Constraint::Length(5), Constraint::Fill(1)]).areas(area);
    let lines = lines.into_iter().map(|(name, value)| {
        let is_on = name == "throttle" && value.starts_with("ON");
        let style = if is_on { Style::new().fg(Color::Yellow).bold() } else { Style::new() };
        Line::from(vec![Span::styled(format!(" {name:<14}"), Color::Cyan), Span::styled(value, style)])
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), top);
    let [user, device] = Layout::horizontal([Constraint::Fill(1); 2]).areas(trend);
    draw_trend(frame, user, "written by programs", screen.trend.iter().map(|(user, _)| *user), Color::Green);
    draw_trend(
        frame,
        device,
        "written to the device",
        screen.trend.iter().map(|(_, device)| *device),
        Color::Blue,
    );
    requests(frame, screen, times);
}

fn draw_trend(
    frame: &mut Frame<'_>,
    area: Rect,
    name: &str,
    values: impl DoubleEndedIterator<Item = u64>,
    colour: Color,
) {
    let width = usize::from(area.width.saturating_sub(2));
    let mut values: Vec<u64> = values.rev().take(width).collect();
    values.reverse();
    let most = values.iter().copied().max().unwrap_or(0);
    let block = Block::bordered().title(format!(" {name}, at most {}/s ", bytes::show(most)));
    frame.render_widget(Sparkline::default().block(block).data(values).style(colour), area);
}

fn requests(frame: &mut Frame<'_>, screen: &Screen, area: Rect) {
    let rows = screen.rates.requests.iter().map(|(kind, of)| {
        let times = [of.p50, of.p99, of.p999, of.max].map(text::seconds);
        let is_slow = of.p99.is_some_and(|p99| p99 > 1.0);
        let style = if is_slow { Style::new().fg(Color::Yellow) } else { Style::new() };
        Row::new([vec![kind.clone(), format!("{:.1}", of.per_second)], times.to_vec()].concat()).style(style)
    });
    let head = Row::new(["requests", "per second", "median", "99 %", "99.9 %", "longest"]);
    draw_table(frame, area, "requests of the kernel", head, rows.collect(), screen.scroll);
}

fn draw_table(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    head: Row<'_>,
    rows: Vec<Row<'_>>,
    scroll: u16,
) {
    let first = usize::from(scroll).min(rows.len().saturating_sub(1));
    let widths = [Constraint::Length(16)].into_iter().chain([Constraint::Length(14); 5]);
    let table = Table::new(rows.into_iter().skip(first), widths)
        .header(head.style(Style::new().bold()))
        .block(Block::bordered().title(format!(" {title} ")));
    frame.render_widget(table, area);
}

fn writes(frame: &mut Frame<'_>, screen: &Screen, area: Rect) {
    let (stats, rates) = (&screen.sample.stats, &screen.rates);
    let [causes, streams] = Layout::vertical([Constraint::Fill(3), Constraint::Fill(2)]).areas(area);
    let user = stats.written.user_bytes;
    let of_user =
        |bytes: u64| if user > 0 { format!("{:.3}", bytes as f64 / user as f64) } else { "-".into() };
    let rows = stats.written.device_bytes_by_cause.iter().map(|(cause, written)| {
        let now = rates.device_bytes_per_second_by_cause.get(cause).copied().unwrap_or(0.0);
        Row::new([cause.clone(), text::rate(now), bytes::show(*written), of_user(*written)])
    });
    let head = Row::new(["cause", "now", "since mount", "of user writes"]);
    draw_table(frame, causes, "bytes written to the device", head, rows.collect(), screen.scroll);
    let open: BTreeMap<&str, usize> =
        screen.sample.open_zones.iter().fold(BTreeMap::new(), |mut open, zone| {
            *open.entry(zone.lifetime.as_str()).or_default() += 1;
            open
        });
    let rows = stats.streams.iter().map(|(name, stream)| {
        let open = open.get(name.as_str()).copied().unwrap_or(0).to_string();
        Row::new([name.clone(), bytes::show(stream.user_bytes), bytes::show(stream.moved_bytes), open])
    });
    let head = Row::new(["stream", "user writes", "moved", "open zones"]);
    draw_table(frame, streams, "streams since the mount", head, rows.collect(), 0);
}

fn zones(frame: &mut Frame<'_>, screen: &Screen, area: Rect) {
    let Some(map) = &screen.sample.zone_map else { return };
    let [top, rest] = Layout::vertical([Constraint::Fill(1), Constraint::Length(8)]).areas(area);
    let of = match map.zones_per_cell {
        1 => format!(" {} zones ", map.zones),
        many => format!(" {} zones, {many} in a cell ", map.zones),
    };
    let block = Block::bordered().title(of);
    let width = usize::from(block.inner(top).width).max(1);
    let lines = map_lines(map, width);
    let scroll = usize::from(screen.scroll).min(lines.len().saturating_sub(1));
    frame.render_widget(Paragraph::new(lines[scroll..].to_vec()).block(block), top);
    let legend = [("log", 'L'), ("metadata", 'M'), ("data", 'D'), ("gc", 'G'), ("free", '.'), ("bad", 'X')];
    let legend = legend
        .into_iter()
        .flat_map(|(name, letter)| [Span::styled(" ■ ", colour_of(letter)), Span::raw(name)]);
    let mut lines = vec![
        Line::from(legend.collect::<Vec<_>>()),
        Line::raw(" the higher, the more blocks are live; + is being written"),
    ];
    let open = screen.sample.open_zones.iter().map(|zone| {
        let percent = 100 * u64::from(zone.live_blocks) / u64::from(zone.capacity_blocks.max(1));
        format!("{} ({}, {percent} % live)", zone.zone, zone.lifetime)
    });
    lines.push(Line::raw(format!(" open for writes: {}", open.collect::<Vec<_>>().join(", "))));
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), rest);
}

fn map_lines(map: &Map, width: usize) -> Vec<Line<'static>> {
    let characters: Vec<char> = map.cells.chars().collect();
    let cells: Vec<Span<'static>> =
        characters.chunks_exact(2).map(|cell| cell_span(cell[0], cell[1])).collect();
    cells.chunks(width).map(|line| Line::from(line.to_vec())).collect()
}

fn cell_span(role: char, level: char) -> Span<'static> {
    let shown = match (role, level) {
        ('.', _) => '·',
        ('X', _) => 'X',
        (_, '+') => '+',
        (_, '*') => LEVELS[8],
        (_, tenths) => LEVELS[tenths.to_digit(10).map_or(0, |tenths| tenths as usize * 8 / 10)],
    };
    Span::styled(shown.to_string(), colour_of(role))
}

fn colour_of(role: char) -> Color {
    match role {
        'L' => Color::Magenta,
        'M' => Color::Cyan,
        'D' => Color::Green,
        'G' => Color::Blue,
        'X' => Color::Red,
        _ => Color::DarkGray,
    }
}

fn help(frame: &mut Frame<'_>, area: Rect) {
    let line = |(keys, meaning): &(&str, &str)| Line::raw(format!(" {keys:<32}{meaning}"));
    frame.render_widget(Paragraph::new(HELP.iter().map(line).collect::<Vec<_>>()), area);
}

#[cfg(test)]
mod tests;
