use super::*;

#[derive(Debug)]
struct Number(u64);

impl State for Number {
    fn digest(&self) -> u64 {
        self.0
    }

    fn difference(&self, found: &Self) -> String {
        format!("{} is not {}", found.0, self.0)
    }
}

fn allowed(history: &History<Number>, commands: u64) -> Vec<u64> {
    history.allowed(commands).iter().map(|state| state.0).collect()
}

/// Three steps. The second is promised after the sixth command.
fn three_steps() -> History<Number> {
    let mut history = History::from(Number(0));
    history.begin(2, Number(1));
    history.begin(4, Number(2));
    let second = history.last();
    history.promise(6, second);
    history.begin(6, Number(3));
    history
}

#[test]
fn a_begun_step_may_be_found_and_a_promised_one_must_be() {
    let history = three_steps();
    assert_eq!(allowed(&history, 0), [0]);
    assert_eq!(allowed(&history, 2), [0], "a step that has issued no command cannot be on the device");
    assert_eq!(allowed(&history, 3), [0, 1]);
    assert_eq!(allowed(&history, 5), [0, 1, 2]);
    assert_eq!(allowed(&history, 6), [2]);
    assert_eq!(allowed(&history, 9), [2, 3]);
}

#[test]
fn a_recovery_may_find_any_allowed_state_until_it_has_found_one() {
    let first = three_steps();
    let mut second = History::recovering(first.allowed(5));
    second.settle(4, Arc::new(Number(1)));
    second.begin(5, Number(7));
    assert_eq!(allowed(&second, 3), [0, 1, 2]);
    assert_eq!(allowed(&second, 4), [1], "the state that a mount has found stays");
    assert_eq!(allowed(&second, 6), [1, 7]);
}

#[test]
fn a_step_without_commands_is_promised_at_once() {
    let mut history = History::from(Number(0));
    history.begin(3, Number(1));
    history.promise(3, 1);
    assert_eq!(allowed(&history, 3), [1]);
}

#[test]
fn a_state_is_found_among_those_allowed_and_no_others() {
    let history = three_steps();
    assert_eq!(State::find(history.allowed(5), &Number(1)), Some(1));
    assert_eq!(State::find(history.allowed(6), &Number(1)), None, "older than the promised state");
    assert_eq!(State::find(history.allowed(6), &Number(3)), None, "newer than the begun state");
    assert_eq!(State::explain(history.allowed(6), &Number(1)), "1 is not 2");
}

#[test]
fn the_last_promise_may_be_missing_but_no_more() {
    let mut history = three_steps();
    let but_last = |history: &History<Number>| -> Vec<u64> {
        history.allowed_but_last(9).iter().map(|state| state.0).collect()
    };
    assert_eq!(but_last(&history), [0, 1, 2, 3]);
    // The same state once more, as after an fsync that had nothing to do.
    history.promise(7, history.last());
    history.begin(7, Number(3));
    history.promise(8, history.last());
    assert_eq!(but_last(&history), [2, 3, 3], "the promise before is of another state");
}
