//! Numbers and names of workloads.

use std::collections::BTreeSet;

use super::*;

#[test]
fn each_step_has_a_name_of_its_own_and_is_found_by_it() {
    let space = Space::new();
    let names: BTreeSet<String> = space.names().collect();
    assert_eq!(names.len() as u64, space.count(1));
    for number in 0..space.count(1) {
        let workload = space.workload(1, number);
        let again = space.parse(&workload.to_string()).expect("its own name");
        assert_eq!(again.to_string(), workload.to_string());
    }
    assert!(space.parse("append-a,nonsense").unwrap_err().contains("nonsense"));
}

#[test]
fn numbers_of_pairs_are_all_pairs() {
    let space = Space::new();
    let pairs: BTreeSet<String> =
        (0..space.count(2)).map(|number| space.workload(2, number).to_string()).collect();
    assert_eq!(pairs.len() as u64, space.count(2));
}

#[test]
fn every_operation_is_possible_in_some_pair() {
    let (space, block) = (Space::new(), 4096);
    let mut start = Model::new(block as usize);
    prepare(block).iter().for_each(|operation| start.apply(operation).expect("the tree can be made"));
    let mut done = BTreeSet::new();
    for number in 0..space.count(2) {
        let workload = space.workload(2, number);
        if is_possible(&workload, &start, block) {
            done.extend(workload.steps.iter().map(Step::to_string));
        }
    }
    let never: Vec<String> = space.names().filter(|name| !done.contains(name)).collect();
    assert!(never.is_empty(), "{never:?}");
}
