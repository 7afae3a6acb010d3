use super::*;

#[test]
fn every_kind_of_operation_has_a_weight() {
    let (_, weights) = WEIGHTS.split_once("[weights]").unwrap();
    let weights = weights.lines().filter_map(|line| line.split_once(" = "));
    let weights: Vec<f64> = weights.map(|(_, weight)| weight.parse().unwrap()).collect();
    assert_eq!(weights.len(), 14);
    assert!(weights.iter().all(|&weight| weight > 0.0));
}

#[test]
fn the_quick_form_takes_two_shapes_and_the_whole_all() {
    assert_eq!(SHAPES.iter().filter(|shape| shape.operations(true) > 0).count(), 2);
    assert!(SHAPES.iter().all(|shape| shape.operations(false) >= 100_000));
    assert_eq!(ORDINARY.operations(false), 1_000_000);
}
