use super::*;

struct At {
    boot: &'static str,
    ms: u64,
}

impl Clock for At {
    fn boot_ms(&self) -> u64 {
        self.ms
    }

    fn boot_id(&self) -> &str {
        self.boot
    }

    fn wall_ms(&self) -> u64 {
        0
    }
}

fn first(ms: u64) -> At {
    At { boot: "first", ms }
}

fn lease() -> Lease {
    Lease::from_ms(60_000).unwrap()
}

#[test]
fn a_hold_lasts_as_long_as_the_device_may_be_active() {
    let answered = Hold::answered(&first(1_000_000), lease());
    let unanswered = Hold::unanswered(&first(1_000_000), lease(), None);
    // A long lease was granted, then a short one asked for without an answer: either may hold.
    let long = Hold::answered(&first(1_000_000), Lease::from_ms(300_000).unwrap());
    let after_long = Hold::unanswered(&first(1_010_000), Lease::from_ms(5_000).unwrap(), Some(&long));
    let second = |ms| At { boot: "second", ms };
    for (hold, at, expected) in [
        (&answered, first(1_000_000), 65_000),
        (&answered, first(1_064_999), 1),
        (&answered, first(1_065_000), 0),
        (&unanswered, first(1_000_000), 95_000),
        (&unanswered, first(1_095_000), 0),
        (&after_long, first(1_010_000), 295_000),
        (&after_long, first(1_305_000), 0),
        // After a restart of the machine only its own time is known to have passed.
        (&answered, second(5_000), 60_000),
        (&answered, second(2_000_000), 0),
        // A boot clock that runs behind shortens nothing.
        (&answered, first(10), 65_000),
    ] {
        assert_eq!(hold.remaining_ms(&at), expected, "{hold:?} {} {}", at.boot, at.ms);
    }
}

#[test]
fn only_a_granted_lease_of_this_start_counts_as_active() {
    let answered = Hold::answered(&first(1_000_000), lease());
    let unanswered = Hold::unanswered(&first(1_000_000), lease(), None);
    for (hold, at, expected) in [
        (&answered, first(1_010_000), 50_000),
        (&answered, At { boot: "second", ms: 1_010_000 }, 0),
        (&unanswered, first(1_010_000), 0),
    ] {
        assert_eq!(hold.lease_left_ms(&at), expected, "{hold:?}");
    }
}
