use super::*;

fn counts(of: &[(&str, u64)]) -> Counts {
    of.iter().map(|&(operation, count)| (operation.to_owned(), count)).collect()
}

#[test]
fn a_twentieth_more_or_less_is_too_much() {
    let recorded = counts(&[("create", 1000), ("list", 1000), ("read", 1000), ("write", 1000)]);
    let now = counts(&[("create", 1050), ("list", 953), ("read", 1051), ("write", 900)]);
    let (table, differ) = compared(&now, &recorded).expect("the operations are the same");
    assert_eq!(differ, ["read (1.05)", "write (0.90)"]);
    assert!(table.contains("0.900 times"), "{table}");
}

#[test]
fn operations_must_be_those_that_are_recorded() {
    for (now, recorded) in
        [(&[("fsync", 1)][..], &[][..]), (&[], &[("fsync", 1)]), (&[("a", 1)], &[("b", 1)])]
    {
        compared(&counts(now), &counts(recorded)).expect_err("other operations");
    }
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
    assert_eq!(performed("measured create: 0"), Some(("create", 0)));
    assert_eq!(performed("brk segment overflow in thread #1"), None);
    assert_eq!(total("version: 1\nsummary: 38265103\n\ntotals: 38265103\n"), Some(38_265_103));
    assert_eq!(total("version: 1\n"), None);
}
