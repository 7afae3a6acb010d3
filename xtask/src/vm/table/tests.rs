use super::*;

fn figure(row: &str, column: &str, words: &str) -> [String; 3] {
    [row, column, words].map(str::to_owned)
}

#[test]
fn figures_are_put_where_they_belong() {
    let figures = [figure("one", "b", "1"), figure("one", "a", "2"), figure("two", "a", "3")];
    assert_eq!(of(&figures), "| | b | a |\n|---|---|---|\n| one | 1 | 2 |\n| two |  | 3 |\n");
}

#[test]
fn a_table_takes_the_place_of_the_one_before() {
    let mark = "<!-- written by `cargo xtask vm x` -->";
    let page = format!("before\n{mark}\nold\n{END}\nafter\n{END}\n");
    let expected = format!("before\n{mark}\nnew\n{END}\nafter\n{END}\n");
    assert_eq!(with(&page, "x", "new\n").unwrap(), expected);
    assert!(with(&page, "y", "new\n").is_err());
}
