#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::super::fake::{Compiling, Fake};
use super::super::house::{House, answered, run, source};
use super::*;
use crate::handler::Fault;

#[tokio::test]
async fn a_file_is_compiled_once_and_again_when_its_entry_was_touched() {
    let house = House::new();
    let inspect = async |house: &House, text: &str| house.workshop.inspect(&source(text)).await.unwrap().cached;
    let Inspection { imports, descriptor, cached, .. } = house.workshop.inspect(&source("a")).await.unwrap();
    assert_eq!(
        (imports, descriptor, cached),
        (vec!["device:handler/host@0.1.0".to_owned()], Some(b"{}".to_vec()), false)
    );
    assert!(inspect(&house, "a").await && !inspect(&house, "b").await);
    let entry = std::fs::read_dir(house.path("cache")).unwrap().map(|entry| entry.unwrap().path());
    let name = Digest::of(b"a").to_string();
    let entry = entry.into_iter().find(|path| path.to_string_lossy().contains(&name)).unwrap();
    let mut bytes = std::fs::read(&entry).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&entry, bytes).unwrap();
    let handler = house.handler("a");
    assert_eq!(answered(&handler).await, (0, 1), "a call notices it as well");
    assert_eq!(house.fake.started(Role::Compile), 3);
    house.workshop.keep_only(&[Digest::of(b"b")]).await;
    assert!(inspect(&house, "b").await && !inspect(&house, "a").await);
    let House { room, fake, .. } = house;
    let again = House::with(room, fake, false);
    assert!(inspect(&again, "a").await && inspect(&again, "b").await, "the cache outlives the workshop");
}

#[tokio::test(start_paused = true)]
async fn what_a_compiler_does_harms_only_its_file() {
    let rows = [
        (Compiling::Refuses, "no export `invoke`\\u{7}", true),
        (Compiling::Dies, "it could not be compiled: the fake ended", false),
        (Compiling::Hangs, "compiling it took longer than 120 s", false),
        (Compiling::Babbles, "its compiler said \"loaded\"", false),
    ];
    for (compiling, why, remembered) in rows {
        let house = House::new();
        *house.fake.compiling.lock().unwrap() = compiling;
        assert_eq!(house.workshop.inspect(&source("bad")).await, Err(Refused(why.to_owned())), "{compiling:?}");
        *house.fake.compiling.lock().unwrap() = Compiling::Well;
        house.workshop.inspect(&source("good")).await.unwrap();
        let again = house.workshop.inspect(&source("bad")).await;
        assert_eq!(again.is_err(), remembered, "{compiling:?}: what is no handler is not compiled each time");
    }
}

#[tokio::test]
async fn a_file_that_changed_since_it_was_found_is_not_compiled() {
    let house = House::new();
    let why = "the file was changed meanwhile";
    let source = Source { read: Arc::new(move || Err(why.to_owned())), ..source("a") };
    assert_eq!(house.workshop.inspect(&source).await, Err(Refused(why.to_owned())));
    assert_eq!(house.fake.started(Role::Compile), 0);
}

#[tokio::test]
async fn a_kernel_that_cannot_confine_keeps_handlers_off_unless_the_keeper_accepts_it() {
    let rows = [
        (Some(4), true, None),
        (None, true, Some("this kernel has no Landlock (Linux 5.13 or newer, with it switched on); handlers stay off")),
        (Some(4), false, Some("this kernel has no seccomp filters; handlers stay off")),
        (None, false, Some("and no seccomp filters; handlers stay off")),
    ];
    for (landlock_abi, seccomp, refused) in rows {
        let confinement = Confinement { landlock_abi, seccomp };
        let fake = || {
            let fake = Arc::<Fake>::default();
            *fake.confinement.lock().unwrap() = confinement.clone();
            fake
        };
        let strict = House::with(tempfile::tempdir().unwrap(), fake(), false);
        let accepting = House::with(tempfile::tempdir().unwrap(), fake(), true);
        assert_eq!(accepting.workshop.probe().await.as_ref(), Ok(&confinement));
        answered(&accepting.handler("one")).await;
        match (refused, strict.workshop.probe().await) {
            (None, Ok(found)) => assert_eq!(found, confinement),
            (Some(why), Err(Refused(told))) => {
                assert!(told.contains(why) && told.ends_with("set handlers.accept_weak_sandbox = true"), "{told}");
                assert!(matches!(run(&strict.handler("one"), "answer").await, Err(Fault::Unavailable(_))));
            }
            (_, other) => panic!("{other:?}"),
        }
        assert_eq!(strict.workshop.probe().await.is_err(), refused.is_some());
        assert_eq!(strict.fake.started(Role::Probe), 1, "the kernel is asked once");
        assert_eq!(strict.fake.started(Role::Run), 0);
    }
}
