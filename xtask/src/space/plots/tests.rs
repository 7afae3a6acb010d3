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
    causes(&path, &[of(80, false, false), of(95, true, false), of(90, false, true)]).unwrap();
    let drawn = std::fs::read_to_string(&path).unwrap();
    for (cause, name) in CAUSES {
        assert!(drawn.contains(name), "{cause} is not named");
    }
    let attribute = |line: &str, name: &str| -> i32 {
        let (_, rest) = line.split_once(&format!(" {name}=\"")).unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    };
    // Top and height of the bars of one colour; the last such rectangle is beside its name.
    let bars = |number: usize| -> Vec<[i32; 2]> {
        let RGBColor(red, green, blue) = COLOURS[number];
        let colour = format!("fill=\"#{red:02X}{green:02X}{blue:02X}\"");
        let is_meant = |line: &&str| line.starts_with("<rect") && line.contains(&colour);
        let mut bars: Vec<_> = drawn
            .lines()
            .filter(is_meant)
            .map(|line| ["y", "height"].map(|name| attribute(line, name)))
            .collect();
        bars.pop();
        bars
    };
    let (data, gc) = (bars(0), bars(1));
    assert_eq!([data.len(), gc.len()], [2, 2], "none of them is of the row with hints");
    for ([data_top, data_height], [gc_top, gc_height]) in data.into_iter().zip(gc) {
        assert!((gc_top + gc_height - data_top).abs() <= 1, "{gc_top} + {gc_height}, {data_top}");
        assert!((gc_height * 2 - data_height).abs() <= 2, "{gc_height}, {data_height}");
    }
}
