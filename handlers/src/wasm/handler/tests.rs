#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests; their tasks end with them")]

use serde_json::json;

use super::super::children::{CHILDREN_MAX, REST_MAX};
use super::super::fake::LATE;
use super::super::house::{House, answered, arguments, begin, run, source};
use super::super::log::HandlerLog;
use super::*;

#[tokio::test]
async fn one_process_serves_one_handler_and_is_started_at_the_first_call() {
    let house = House::new();
    let (one, other) = (house.handler("one"), house.handler("other"));
    assert_eq!(house.fake.starts.lock().unwrap().len(), 0);
    assert_eq!(answered(&one).await, (0, 1));
    assert_eq!(answered(&one.clone()).await, (0, 2));
    assert_eq!(answered(&other).await, (1, 1));
    assert_eq!(answered(&one).await, (0, 3));
    let count = |role| house.fake.started(role);
    assert_eq!((count(Role::Probe), count(Role::Compile), count(Role::Run)), (1, 2, 2));
    let starts = house.fake.starts.lock().unwrap();
    let start = starts.iter().find(|start| start.role == Role::Run).unwrap();
    assert_eq!(
        (start.memory_bytes, start.result_bytes_max, start.http, start.accept_weak),
        (1 << 20, 1000, true, false)
    );
}

#[tokio::test]
async fn whatever_a_process_does_ends_its_own_call_alone() {
    let crashed = |why: &str| Fault::Crashed(why.to_owned());
    let broken = |why: &str| Fault::Broken(why.to_owned());
    let order = "its process broke the order of frames: ";
    let rows = [
        ("trap", crashed("trapped: \\u{1b}unreachable"), true),
        ("text", crashed("its result is no JSON object: not JSON, near byte 0"), true),
        ("array", crashed("its result is no JSON object: not an object"), true),
        ("latin", crashed("its result is no JSON object: not UTF-8"), true),
        ("deep", crashed("its result is no JSON object: more than 16 containers inside one another"), true),
        ("long", crashed("its result has 1001 bytes, where 1000 are the most"), true),
        ("fail", Fault::Failed("no-lamp: it is\\u{a}off".to_owned()), true),
        ("time", crashed("its process cut it off for its time"), true),
        ("cancelled", broken("its process cancelled a call that nobody cancelled"), false),
        ("garbage", broken(&format!("{order}a frame of 1399154541 bytes, where 2097152 are the most")), false),
        ("half", broken("the fake ended"), false),
        ("die", broken("the fake ended"), false),
        ("loaded", broken("its process said \"loaded\" during a call"), false),
        ("other number", broken("its process said \"done\" during a call"), false),
        ("flood", broken("its process asks for requests without end"), false),
    ];
    for (what, fault, goes_on) in rows {
        let house = House::new();
        let (bad, neighbour) = (house.handler("bad"), house.handler("neighbour"));
        assert_eq!(answered(&bad).await, (0, 1));
        assert_eq!(answered(&neighbour).await, (1, 1));
        assert_eq!(run(&bad, what).await, Err(fault), "{what}");
        house.fake.until_living(if goes_on { &[0, 1] } else { &[1] }).await;
        let next = if goes_on { (0, 3) } else { (2, 1) };
        assert_eq!(answered(&bad).await, next, "{what}: the next call goes well");
        assert_eq!(answered(&neighbour).await, (1, 2), "{what}: its neighbour noticed nothing");
    }
    let house = House::new();
    let good = house.handler("good");
    for what in ["deep enough", "long enough", "log", "old http"] {
        run(&good, what).await.unwrap_or_else(|fault| panic!("{what}: {fault}"));
    }
}

#[tokio::test]
async fn the_third_crash_in_a_row_breaks_a_handler_and_a_good_end_between_forgives() {
    let house = House::new();
    let handler = house.handler("bad");
    for kind in ["answer", "fail"] {
        for what in ["trap", "text", kind, "trap", "long"] {
            assert!(!matches!(run(&handler, what).await, Err(Fault::Broken(_))), "{what}");
        }
        let third = run(&handler, "trap").await.unwrap_err();
        let expected = "trapped: \\u{1b}unreachable (crashed 3 times in a row)";
        assert_eq!(third, Fault::Broken(expected.to_owned()));
        house.fake.until_living(&[]).await;
    }
    assert!(matches!(run(&handler, "trap").await, Err(Fault::Crashed(_))), "counted anew");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_stopped_ends_in_its_grace_and_its_process_only_when_it_does_not_obey() {
    let house = House::new();
    let handler = house.handler("slow");
    for what in ["obey", "late"] {
        let (stop, running) = begin(&handler, what);
        house.fake.until_calling(1).await;
        stop.cancel();
        assert_eq!(running.await.unwrap(), Err(Fault::Stopped), "{what}");
    }
    assert_eq!(answered(&handler).await, (0, 3), "the process goes on");
    assert!(LATE < GRACE);
    let (stop, running) = begin(&handler, "stubborn");
    house.fake.until_calling(1).await;
    let began = Instant::now();
    stop.cancel();
    let why = "its process would not stop within 200 ms and was ended".to_owned();
    assert_eq!(running.await.unwrap(), Err(Fault::Broken(why)));
    assert_eq!(began.elapsed().as_millis() / 10, GRACE.as_millis() / 10);
    house.fake.until_living(&[]).await;
    assert_eq!(answered(&handler).await, (1, 1));
}

#[tokio::test]
async fn a_call_that_is_dropped_takes_its_process_with_it() {
    let house = House::new();
    let handler = house.handler("slow");
    let (_stop, running) = begin(&handler, "stubborn");
    house.fake.until_calling(1).await;
    running.abort();
    house.fake.until_living(&[]).await;
    assert_eq!(answered(&handler).await, (1, 1));
}

#[tokio::test]
async fn calls_of_one_handler_run_one_after_the_other() {
    let house = House::new();
    let handler = house.handler("one");
    let (_stop, first) = begin(&handler, "wait");
    house.fake.until_calling(1).await;
    let (stop, second) = begin(&handler, "answer");
    let (_stop, third) = begin(&handler, "answer");
    stop.cancel();
    assert_eq!(second.await.unwrap(), Err(Fault::Stopped), "a call may be given up while it waits");
    house.fake.waits.add_permits(1);
    first.await.unwrap().unwrap();
    let third = third.await.unwrap().unwrap();
    assert_eq!(third.get("call").unwrap().as_u64(), Some(2));
    assert_eq!(house.fake.started(Role::Run), 1);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_rests_for_a_minute_is_ended_and_a_called_one_is_not() {
    let house = House::new();
    let (rests, works) = (house.handler("rests"), house.handler("works"));
    assert_eq!((answered(&rests).await, answered(&works).await), ((0, 1), (1, 1)));
    tokio::time::sleep(REST_MAX - Duration::from_millis(10)).await;
    assert_eq!(answered(&works).await, (1, 2));
    assert_eq!(*house.fake.living.borrow(), [0, 1]);
    tokio::time::sleep(Duration::from_millis(20)).await;
    house.fake.until_living(&[1]).await;
    assert_eq!(answered(&rests).await, (2, 1));
    tokio::time::sleep(2 * REST_MAX).await;
    house.fake.until_living(&[]).await;
    assert_eq!(answered(&works).await, (3, 1));
}

#[tokio::test]
async fn eight_processes_at_once_and_the_one_that_rested_longest_makes_room() {
    let house = House::new();
    let handlers: Vec<_> = (0..CHILDREN_MAX).map(|at| house.handler(&format!("h{at}"))).collect();
    for handler in &handlers {
        answered(handler).await;
    }
    assert_eq!(answered(&handlers[0]).await, (0, 2), "now the second rests longest");
    assert_eq!(answered(&house.handler("ninth")).await, (8, 1));
    house.fake.until_living(&[0, 2, 3, 4, 5, 6, 7]).await;
}

#[tokio::test]
async fn when_all_eight_work_a_call_waits_within_its_own_time() {
    let house = House::new();
    let handlers: Vec<_> = (0..CHILDREN_MAX).map(|at| house.handler(&format!("h{at}"))).collect();
    let running: Vec<_> = handlers.iter().map(|handler| begin(handler, "wait")).collect();
    house.fake.until_calling(CHILDREN_MAX).await;
    let (ninth, tenth) = (house.handler("ninth"), house.handler("tenth"));
    let (stop, given_up) = begin(&tenth, "answer");
    let (_stop, waits) = begin(&ninth, "answer");
    tokio::task::yield_now().await;
    stop.cancel();
    assert_eq!(given_up.await.unwrap(), Err(Fault::Stopped));
    assert!(!waits.is_finished());
    assert_eq!(house.fake.started(Role::Run), CHILDREN_MAX);
    house.fake.waits.add_permits(1);
    waits.await.unwrap().unwrap();
    assert_eq!(house.fake.started(Role::Run), CHILDREN_MAX + 1);
    house.fake.waits.add_permits(CHILDREN_MAX);
    for (_stop, call) in running {
        call.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_start_that_its_caller_left_goes_on_and_serves_the_next_call() {
    let house = House::new();
    let handler = house.handler("slow");
    house.fake.loads.forget_permits(1000);
    let (stop, first) = begin(&handler, "answer");
    house.fake.until_living(&[0]).await;
    stop.cancel();
    assert_eq!(first.await.unwrap(), Err(Fault::Stopped));
    let (_stop, second) = begin(&handler, "answer");
    house.fake.loads.add_permits(1);
    let value = second.await.unwrap().unwrap();
    assert_eq!(value.get("runner").unwrap().as_u64(), Some(0));
    assert_eq!(house.fake.started(Role::Run), 1, "one process for one handler");
}

#[tokio::test(start_paused = true)]
async fn a_start_that_hangs_is_given_up() {
    let house = House::new();
    house.fake.loads.forget_permits(1000);
    let why = Fault::Broken("its process was not ready within 10 s".to_owned());
    assert_eq!(run(&house.handler("slow"), "answer").await, Err(why));
    house.fake.until_living(&[]).await;
}

#[tokio::test]
async fn a_process_that_cannot_start_is_told_and_is_no_fault_of_the_handler() {
    let house = House::new();
    let handler = house.handler("one");
    house.workshop.probe().await.unwrap();
    house.fake.not_ready.store(true, Ordering::Relaxed);
    house.workshop.inspect(&source("one")).await.unwrap_err();
    let told = run(&handler, "answer").await.unwrap_err();
    assert!(matches!(&told, Fault::Unavailable(why) if why.contains("a door would not close")), "{told}");
    house.fake.not_ready.store(false, Ordering::Relaxed);
    house.fake.refuses_load.store(true, Ordering::Relaxed);
    let told = run(&handler, "answer").await;
    assert_eq!(told, Err(Fault::Broken("native code of another engine".to_owned())));
    house.fake.refuses_load.store(false, Ordering::Relaxed);
    answered(&handler).await;
}

#[tokio::test]
async fn a_process_that_dies_at_rest_costs_no_call() {
    let house = House::new();
    let handler = house.handler("one");
    assert_eq!(answered(&handler).await, (0, 1));
    house.fake.kill(0);
    house.fake.until_living(&[]).await;
    assert_eq!(answered(&handler).await, (1, 1));
}

#[tokio::test]
async fn a_handler_that_nobody_holds_leaves_no_process() {
    let house = House::new();
    let handler = house.handler("one");
    let clone = handler.clone();
    answered(&handler).await;
    drop(handler);
    assert_eq!(answered(&clone).await, (0, 2));
    drop(clone);
    house.fake.until_living(&[]).await;
}

#[tokio::test]
async fn a_folder_of_the_reach_is_judged_at_each_start_and_looked_at_before_each_call() {
    let house = House::new();
    let sensor = house.path("sensor");
    std::fs::create_dir(&sensor).unwrap();
    std::fs::create_dir(house.path("state")).unwrap();
    let mut spec = house.spec("sensor");
    spec.reach.read = vec![sensor.clone()];
    let handler = house.workshop.handler(spec);
    assert_eq!((answered(&handler).await, answered(&handler).await), ((0, 1), (0, 2)));
    std::fs::rename(&sensor, house.path("old")).unwrap();
    let gone = run(&handler, "answer").await.unwrap_err();
    let Fault::Unavailable(why) = gone else { panic!("{gone}") };
    assert!(why.contains("there is no such folder"), "{why}");
    house.fake.until_living(&[]).await;
    std::fs::create_dir(&sensor).unwrap();
    assert_eq!(answered(&handler).await, (1, 1), "what is there now is opened by a new process");
    assert_eq!(answered(&handler).await, (1, 2));
    std::fs::remove_dir(&sensor).unwrap();
    std::os::unix::fs::symlink(house.path("state"), &sensor).unwrap();
    let Err(Fault::Unavailable(why)) = run(&handler, "answer").await else { panic!("the state folder is reached") };
    assert!(why.contains("it is the state folder"), "{why}");
    house.fake.until_living(&[]).await;
}

#[tokio::test]
async fn requests_of_a_process_are_sent_for_it_where_its_reach_allows() {
    let house = House::new();
    let handler = house.handler("lamp");
    let value = run(&handler, "http").await.unwrap();
    let answers = json!(["1: Ok(\"on\")", "2: Err(Denied)"]);
    assert_eq!(value.get("answers"), Some(&answers));
    let asked = house.outbound.asked.lock().unwrap();
    assert_eq!(asked.len(), 1);
    assert_eq!((asked[0].path_and_query.as_str(), asked[0].origin.host.as_str()), ("/1", "192.168.1.20"));
}

#[tokio::test]
async fn a_stopped_call_leaves_no_connection_and_begins_none() {
    let house = House::new();
    house.outbound.hangs.store(true, Ordering::Relaxed);
    let handler = house.handler("lamp");
    let (stop, running) = begin(&handler, "hang on http");
    while house.outbound.open.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    stop.cancel();
    assert_eq!(running.await.unwrap(), Err(Fault::Stopped));
    assert_eq!(house.outbound.open.load(Ordering::Relaxed), 0);
    assert_eq!(house.outbound.asked.lock().unwrap().len(), 1);
    assert_eq!(answered(&handler).await, (0, 2));
}

#[tokio::test]
async fn lines_of_a_call_are_kept_with_their_time_and_bounded() {
    let house = House::new();
    let (mut spec, log) = (house.spec("log"), Arc::<HandlerLog>::default());
    spec.log = Arc::clone(&log);
    run(&house.workshop.handler(spec), "log").await.unwrap();
    let lines = log.lines();
    assert_eq!(lines.len(), LOG_LINES_MAX + 1);
    assert!(lines.iter().all(|line| line.text.len() <= LOG_LINE_BYTES_MAX && (5_000..15_000).contains(&line.at_ms)));
    assert!(lines[63].text.starts_with("0063"));
    assert_eq!((lines[64].level, lines[64].text.as_str()), (Level::Warn, "5 more lines of this call were dropped"));
}

#[tokio::test(start_paused = true)]
async fn a_measured_run_tells_what_it_took_and_is_cut_off_at_its_time() {
    let house = House::new();
    let handler = house.handler("one");
    let (value, spent) = handler.run_measured(arguments("answer"), Duration::from_secs(5)).await;
    let within_ms = value.unwrap().get("within_ms").unwrap().as_u64().unwrap();
    assert!((4_000..=5_000).contains(&within_ms), "{within_ms}");
    assert_eq!((spent.cpu_us, spent.memory_bytes), (1200, 65_536));
    let (value, spent) = handler.run_measured(arguments("obey"), Duration::from_millis(300)).await;
    assert_eq!(value, Err(Fault::Stopped));
    assert_eq!(spent.wall.as_millis() / 10, 30);
}

#[tokio::test]
async fn the_drain_ends_what_works_and_what_rests_and_nothing_starts_behind_it() {
    let house = House::new();
    let (works, rests) = (house.handler("works"), house.handler("rests"));
    answered(&rests).await;
    let (_stop, running) = begin(&works, "stubborn");
    house.fake.until_calling(1).await;
    house.workshop.drain().await;
    house.fake.until_living(&[]).await;
    assert!(matches!(running.await.unwrap(), Err(Fault::Broken(_) | Fault::Stopped)));
    let told = run(&rests, "answer").await.unwrap_err();
    assert!(matches!(&told, Fault::Unavailable(why) if why.contains("going down")), "{told}");
    assert_eq!(house.workshop.probe().await.map(|_| ()), Ok(()), "what is known stays known");
    assert!(house.workshop.inspect(&source("new")).await.is_err());
}
