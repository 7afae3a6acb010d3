use super::*;

#[test]
fn opposite_errors_do_not_cancel_out() {
    let mut of_a_stream = PredictionError::default();
    of_a_stream.add(10.0, 30.0);
    of_a_stream.add(30.0, 10.0);
    let mut predicted = [PredictionError::default(); STREAMS];
    predicted[1] = of_a_stream;
    let stats = StreamCounters::default().stats(&predicted);
    assert_eq!(stats[1].prediction_error(), Some(1.0));
    assert_eq!(stats[0].prediction_error(), None, "nothing was predicted and nothing died");
}

#[test]
fn learned_blocks_are_counted_apart_from_hinted_ones() {
    let stream_counters = StreamCounters::default();
    stream_counters.wrote(Lifetime::Long, 5, false);
    stream_counters.wrote(Lifetime::Long, 7, true);
    stream_counters.moved(Stream::MOVED, 3);
    let stats = stream_counters.stats(&[PredictionError::default(); STREAMS]);
    let of = |name: &str| stats[stream_names().iter().position(|known| *known == name).unwrap()];
    assert_eq!((of("long").written, of("long").by_learning), (12, 7));
    assert_eq!((of("moved").moved, of("none").written), (3, 0));
}
