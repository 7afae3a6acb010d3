use super::*;
use crate::mutants::drawing::{Function, Place};

const SOURCE: &str = "\
/// Says {what}.
#[inline] // {
fn more(a: u32) -> u32 {
    a + 1 // Ä + B
}

fn const_of() -> u32 { 7 }
";

fn position(line: usize, column: usize) -> Position {
    Position { line, column }
}

fn mutant(number: usize, span: (Position, Position), replacement: &str, function: Span) -> Mutant {
    Mutant {
        span: Span { start: span.0, end: span.1 },
        replacement: replacement.to_owned(),
        function: Some(Function { span: function }),
        place: Place { number, of: 9 },
        ..Mutant::default()
    }
}

fn more() -> Span {
    Span { start: position(1, 1), end: position(5, 2) }
}

#[test]
fn each_mistake_gets_a_body_of_its_own_and_the_rest_stays() {
    let minus = mutant(3, (position(4, 7), position(4, 8)), "-", more());
    let zero = mutant(5, (position(4, 5), position(4, 10)), "0", more());
    let woven = weave(SOURCE, &[&minus, &zero]);
    let expected = "\
/// Says {what}.
#[inline] // {
fn more(a: u32) -> u32 {
if crate::mutant_switch::is_on(3) {

    a - 1 // Ä + B

} else 
if crate::mutant_switch::is_on(5) {

    0 // Ä + B

} else 
{

    a + 1 // Ä + B

}
}

fn const_of() -> u32 { 7 }
";
    assert_eq!(woven.text, expected);
    assert_eq!(woven.numbers().collect::<Vec<_>>(), [3, 5]);
}

#[test]
fn a_line_that_does_not_compile_is_the_fault_of_its_body_or_of_the_function() {
    let minus = mutant(3, (position(4, 7), position(4, 8)), "-", more());
    let zero = mutant(5, (position(4, 5), position(4, 10)), "0", more());
    let woven = weave(SOURCE, &[&minus, &zero]);
    assert_eq!(woven.blamed(6), [3]);
    assert_eq!(woven.blamed(11), [5]);
    assert_eq!(woven.blamed(16), [3, 5]);
    assert!(woven.blamed(21).is_empty());
    assert!(woven.blamed(2).is_empty());
}

#[test]
fn mutants_in_no_function_or_in_a_nested_one_are_left_out() {
    let outer = Span { start: position(1, 1), end: position(7, 27) };
    let mut nowhere = mutant(1, (position(7, 24), position(7, 25)), "8", more());
    nowhere.function = None;
    let whole = mutant(2, (position(4, 5), position(4, 6)), "b", outer);
    let inner = mutant(3, (position(7, 24), position(7, 25)), "8", Span { start: position(7, 1), ..outer });
    let woven = weave(SOURCE, &[&nowhere, &inner, &whole]);
    assert_eq!(woven.numbers().collect::<Vec<_>>(), [2]);
}

#[test]
fn columns_count_characters() {
    assert_eq!(&SOURCE[offset(SOURCE, position(4, 18))..][..1], "B");
    assert_eq!(offset(SOURCE, position(1, 1)), 0);
}
