use super::*;

fn counts(of: &[(&str, u64)]) -> Counts {
    of.iter().map(|&(operation, count)| (operation.to_owned(), count)).collect()
}

#[test]
fn more_than_a_twentieth_is_too_much() {
    let recorded = counts(&[("create", 1000), ("read", 1000), ("write", 1000)]);
    let now = counts(&[("create", 1050), ("read", 1051), ("write", 900)]);
    let (table, grown) = compared(&now, &recorded);
    assert_eq!(grown, ["read (1.05)"]);
    assert!(table.contains("0.900 times"), "{table}");
}

#[test]
fn an_operation_that_is_not_recorded_has_grown() {
    assert_eq!(compared(&counts(&[("fsync", 1)]), &Counts::new()).1, ["fsync (inf)"]);
}

#[test]
fn recorded_counts_are_read_again() {
    let some = counts(&[("create", 1), ("unlink", 20)]);
    assert_eq!(read(&written(&some)).expect("it was written like this"), some);
    for wrong in ["", "create,1\n", "operation,instructions\ncreate\n", "operation,instructions\ncreate,x\n"]
    {
        read(wrong).expect_err(wrong);
    }
}

#[test]
fn the_lines_of_both_programs_are_understood() {
    assert_eq!(performed("measured create: 1000"), Some(("create", 1000)));
    assert_eq!(performed("measured create: 0"), None);
    assert_eq!(performed("brk segment overflow in thread #1"), None);
    assert_eq!(total("version: 1\nsummary: 38265103\n\ntotals: 38265103\n"), Some(38_265_103));
    assert_eq!(total("version: 1\n"), None);
}
