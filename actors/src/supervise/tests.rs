use super::*;

fn at(ms: u64) -> BootTime {
    BootTime::from_ms(ms)
}

fn budget(restarts: usize, within_s: u64) -> Budget {
    Budget::new(Intensity { restarts, within: Duration::from_secs(within_s) })
}

#[test]
fn s1_what_fails_at_once_is_restarted_exactly_as_often_as_may_be() {
    for restarts in [0, 1, 3, 5] {
        let mut budget = budget(restarts, 5);
        let verdicts: Vec<_> = (0..100).map(|ms| budget.died(at(ms))).collect();
        let given = verdicts.iter().position(|verdict| *verdict == Verdict::GiveUp).unwrap();
        assert_eq!(given, restarts);
        assert!(verdicts[given..].iter().all(|verdict| *verdict == Verdict::GiveUp), "and then never again");
    }
}

#[test]
fn s1_what_fails_every_three_seconds_with_three_in_five_is_restarted_for_ever() {
    let mut budget = budget(3, 5);
    assert!((0..10_000).all(|times| matches!(budget.died(at(times * 3_000)), Verdict::Restart(_))));
}

#[test]
fn a_death_is_paid_off_after_exactly_the_time_of_the_intensity() {
    let full = || {
        let mut budget = budget(3, 5);
        assert!((0..3).all(|ms| matches!(budget.died(at(ms)), Verdict::Restart(_))));
        budget
    };
    assert_eq!(full().died(at(4_999)), Verdict::GiveUp);
    assert!(matches!(full().died(at(5_000)), Verdict::Restart(_)));
    let mut reset = full();
    reset.reset();
    assert_eq!(reset.died(at(4)), Verdict::Restart(Duration::ZERO));
}

#[test]
fn the_first_restart_comes_at_once_and_the_wait_doubles_up_to_its_limit() {
    let mut budget = budget(12, 3_600);
    let waits: Vec<_> = (0..9)
        .map(|ms| match budget.died(at(ms)) {
            Verdict::Restart(wait) => wait.as_millis(),
            Verdict::GiveUp => panic!("given up"),
        })
        .collect();
    assert_eq!(waits, [0, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
}

#[test]
fn waits_differ_by_up_to_a_quarter() {
    let chance = crate::testing::Counting::default();
    let base = Duration::from_millis(1_000);
    let waits: Vec<_> = (0..256).map(|_| jitter(base, &chance)).collect();
    assert_eq!((waits[0], waits.iter().max().copied()), (base, Some(base + base.mul_f64(255.0 / 1024.0))));
}
