use super::*;

#[test]
fn what_is_expected_too_high_and_too_low_does_not_cancel_out() {
    let mut of_a_stream = Expected::default();
    of_a_stream.add(10.0, 30.0);
    of_a_stream.add(30.0, 10.0);
    let mut expected = [Expected::default(); STREAMS];
    expected[1] = of_a_stream;
    let told = Flows::default().told(&expected);
    assert_eq!(told[1].error(), Some(1.0));
    assert_eq!(told[0].error(), None, "nothing was expected and nothing died");
}

#[test]
fn what_was_learned_is_told_from_what_was_said() {
    let flows = Flows::default();
    flows.wrote(Lifetime::Long, 5, false);
    flows.wrote(Lifetime::Long, 7, true);
    flows.moved(Stream::MOVED, 3);
    let told = flows.told(&[Expected::default(); STREAMS]);
    let of = |name: &str| told[stream_names().iter().position(|known| *known == name).unwrap()];
    assert_eq!((of("long").written, of("long").by_learning), (12, 7));
    assert_eq!((of("moved").moved, of("none").written), (3, 0));
}
