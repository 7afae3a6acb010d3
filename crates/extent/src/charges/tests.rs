use super::*;

#[test]
fn a_charge_is_no_more_than_the_debt_and_the_credit_no_more_than_a_piece() {
    let charges = Charges::default();
    charges.charge(10.0, 4);
    assert_eq!(charges.charged(), 0, "there is no debt");
    charges.set_debts([0, 100], 0);
    charges.charge(60.0, 4);
    charges.charge(60.0, 4);
    assert_eq!(charges.charged(), 100);
    charges.moved(30);
    assert_eq!(charges.charged(), 70);
    charges.moved(1000);
    charges.charge(0.0, 4);
    assert_eq!(charges.charged(), -4);
    charges.charge(14.5, 4);
    assert_eq!(charges.charged(), 10);
    charges.forgive();
    assert!(charges.charged() <= 0);
}

/// A background task that is woken for nothing wakes for each write.
#[test]
fn the_background_task_is_woken_once_and_only_for_work() {
    let charges = Charges::default();
    charges.sleeps.store(true, Ordering::SeqCst);
    assert!(!charges.take_call());
    charges.is_wanted.store(true, Ordering::SeqCst);
    assert!(charges.take_call());
    assert!(!charges.take_call(), "it has been woken");
}

#[cfg(feature = "shuttle")]
mod shuttled;
