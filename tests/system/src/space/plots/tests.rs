use super::super::bounds::tests::row;
use super::super::row::Part;
use super::*;

#[test]
fn bars_stand_on_one_another_up_to_the_amplification() {
    let parts = [("data", 1.0), ("gc", 0.5), ("journal", 0.25), ("checkpoint", 0.25)];
    let parts = parts.map(|(cause, amplification)| Part { cause: cause.to_owned(), amplification });
    let of = |fill, fsync, hints| Row { fsync, parts: parts.to_vec(), ..row("mix", fill, hints, 2.0) };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("causes.svg");
    let rows = [of(80, false, false), of(95, true, false), of(90, false, true)];
    causes(&path, "mix", &rows.each_ref()).unwrap();
    let drawn = std::fs::read_to_string(&path).unwrap();
    for (cause, name, _) in CAUSES {
        assert!(drawn.contains(name), "{cause} is not named");
    }
    let attribute = |line: &str, name: &str| -> i32 {
        let (_, rest) = line.split_once(&format!(" {name}=\"")).unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    };
    // Top and height of the bars of one colour.
    let bars = |number: usize| -> Vec<[i32; 2]> {
        let RGBColor(red, green, blue) = CAUSES[number].2;
        let colour = format!("fill=\"#{red:02X}{green:02X}{blue:02X}\"");
        let is_meant = |line: &&str| line.starts_with("<rect") && line.contains(&colour);
        drawn.lines().filter(is_meant).map(|line| ["y", "height"].map(|name| attribute(line, name))).collect()
    };
    let (data, gc) = (bars(0), bars(1));
    assert_eq!([data.len(), gc.len()], [3, 3]);
    for ([data_top, data_height], [gc_top, gc_height]) in data.into_iter().zip(gc) {
        assert!((gc_top + gc_height - data_top).abs() <= 1, "{gc_top} + {gc_height}, {data_top}");
        assert!((gc_height * 2 - data_height).abs() <= 2, "{gc_height}, {data_height}");
    }
}

/// The lines of a plot of these rows.
fn drawn(draw: fn(&Path, &str, &[&Row]) -> Result<()>, rows: &[Row]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plot.svg");
    draw(&path, "mix", &rows.iter().collect::<Vec<_>>()).unwrap();
    std::fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect()
}

fn count(drawn: &[String], line: &str) -> usize {
    drawn.iter().filter(|other| *other == line).count()
}

#[test]
fn every_row_has_a_bar_with_its_name_and_every_level_its_share_of_the_device() {
    let plain = |fill| row("mix", fill, false, 2.0);
    let rows = [
        plain(60),
        Row { live_percent_of_raw: 83.4, ..plain(90) },
        Row { live_percent_of_raw: 83.4, fsync: true, ..plain(90) },
        Row { live_percent_of_raw: 84.6, learning: false, hints: true, ..plain(90) },
    ];
    for draw in [causes, latencies, latencies_at_half_rate] {
        let drawn = drawn(draw, &rows);
        let names =
            ["plain", "fsync", "learning off, hints", "60 %", "(70 % of raw)", "90 %", "(83–85 % of raw)"];
        assert_eq!(names.map(|name| count(&drawn, name)), [2, 1, 1, 1, 1, 1, 1]);
    }
}

#[test]
fn lines_that_have_no_points_are_not_in_the_key() {
    let names = ["Polder", "Polder, hints", "analytical optimum", "by file off", "learning off"];
    let key = |rows: &[Row]| names.map(|name| count(&drawn(amplification, rows), name));
    assert_eq!(key(&[row("mix", 80, false, 2.0), row("mix", 80, true, 2.0)]), [1, 1, 0, 0, 0]);
    let without = Row { learning: false, fsync: true, ..row("uniform", 80, false, 2.0) };
    assert_eq!(key(&[row("uniform", 80, false, 2.0), without]), [1, 0, 1, 0, 1]);
}

#[test]
fn nothing_to_draw_is_no_error() {
    let nothing = Row { parts: Vec::new(), ..row("mix", 80, false, 1.0) };
    for (_, draw) in super::super::PLOTS {
        drawn(draw, &[]);
        drawn(draw, std::slice::from_ref(&nothing));
    }
}
