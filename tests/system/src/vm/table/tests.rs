use super::*;

fn figure(row: &str, column: &str, words: &str) -> [String; 3] {
    [row, column, words].map(str::to_owned)
}

#[test]
fn figures_are_put_where_they_belong() {
    let figures = [figure("one", "b", "1"), figure("one", "a", "2"), figure("two", "a", "3")];
    assert_eq!(of(&figures), "| | b | a |\n|---|---|---|\n| one | 1 | 2 |\n| two |  | 3 |\n");
}
