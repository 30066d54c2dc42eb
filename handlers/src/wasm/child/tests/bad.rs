//! Files that are no handlers, and calls that break a limit.

use super::guests::{sized, text};
use super::{AMPLE_MS, BRIEF_MS, MIB, Talk, Terms, compile, said};
use crate::wasm::frame::{Ended, FromChild, Role, ToChild};

#[test]
fn a_file_that_is_no_handler_is_refused_in_words() {
    compile(text("echo").as_bytes(), true).unwrap();
    let bytes = wat::parse_str(text("echo")).unwrap();
    compile(&bytes, false).unwrap();
    let native = compile(&bytes, false).unwrap().native;
    let cut = |length: usize| bytes[..length].to_vec();
    let assembled = |name: &str| wat::parse_str(text(name)).unwrap();
    let rows: &[(&str, Vec<u8>, &str)] = &[
        ("no bytes", Vec::new(), "it is no WebAssembly"),
        ("garbage", b"#!/bin/sh\n".to_vec(), "it is no WebAssembly"),
        ("native code", native, "it is native code"),
        ("a core module", assembled("core_module"), "it is a core module, not a component"),
        ("half a file", cut(bytes.len() / 2), "unexpected end"),
        ("all but a byte", cut(bytes.len() - 1), "unexpected end"),
        ("invoke of another type", assembled("export_of_other_type"), "its export `invoke` has another type"),
        ("no invoke", assembled("export_missing"), "it exports no `invoke`"),
        ("an unknown import", assembled("import_unknown"), "`evil:host/exec`"),
        ("half a GiB from the start", assembled("memory_512_mib"), "memory"),
        ("4 GiB from the start", assembled("memory_4_gib"), "memory"),
        ("a table of ten million", assembled("table_10_million"), "table"),
        ("65 instances", wat::parse_str(instances(63)).unwrap(), "instances"),
    ];
    for (what, bytes, why) in rows {
        let refused = compile(bytes, false).map(|_| ()).expect_err(what);
        assert!(refused.contains(why), "{what}: {refused}");
        assert!(refused.len() < 500 && !refused.contains('\n'), "{what}: {refused}");
    }
    let refused = compile(b"(component", true).expect_err("text that ends early");
    assert!(refused.starts_with("its text is no component: "), "{refused}");
    let refused = compile(b"\xff(component)", true).expect_err("text that is none");
    assert_eq!(refused, "its text is not UTF-8");
}

/// A handler with so many core instances beside its own two.
fn instances(more: usize) -> String {
    let none =
        format!("(core module $none)\n{}\n  (core module $room", "(core instance (instantiate $none))".repeat(more));
    text("echo").replacen("(core module $room", &none, 1)
}

#[test]
fn a_component_of_38_instances_runs_as_python_needs_it() {
    let mut talk = Talk::load(&instances(36), &Terms::default());
    assert_eq!(said(&talk.call("{}", AMPLE_MS).ended), "{}");
}

#[test]
fn imports_and_the_description_are_read_without_running_anything() {
    let compiled = compile(text("sleep").as_bytes(), true).unwrap();
    assert_eq!(
        compiled.imports,
        ["device:handler/types@0.1.0", "wasi:clocks/monotonic-clock@0.2.0", "wasi:io/poll@0.2.0"]
    );
    assert_eq!(compiled.descriptor, None);

    let bytes = wat::parse_str(text("echo")).unwrap();
    let with = |sections: &[&[u8]]| {
        let mut bytes = bytes.clone();
        sections.iter().for_each(|data| bytes.extend(section(data)));
        compile(&bytes, false)
    };
    assert_eq!(with(&[b"{}"]).unwrap().descriptor.as_deref(), Some(b"{}".as_slice()));
    assert_eq!(with(&[&[b' '; 8192]]).unwrap().descriptor.unwrap().len(), 8192);
    assert!(with(&[&[b' '; 8193]]).unwrap_err().contains("longer than 8192 bytes"));
    assert!(with(&[b"{}", b"{}"]).unwrap_err().contains("two sections"));
    // One inside a part says nothing about the whole.
    let inside = text("echo").replacen(
        "(core module $room",
        r#"(core module (@custom "device:handler/descriptor" "{}"))(core module $room"#,
        1,
    );
    assert_eq!(compile(inside.as_bytes(), true).unwrap().descriptor, None);
}

fn section(data: &[u8]) -> Vec<u8> {
    const NAME: &[u8] = b"device:handler/descriptor";
    let length = 1 + NAME.len() + data.len();
    let mut bytes = vec![0, u8::try_from(length & 0x7f).unwrap() | 0x80, u8::try_from(length >> 7).unwrap()];
    bytes.push(u8::try_from(NAME.len()).unwrap());
    bytes.extend(NAME);
    bytes.extend(data);
    bytes
}

#[test]
fn native_code_that_is_none_or_of_another_engine_is_refused() {
    let native = compile(text("echo").as_bytes(), true).unwrap().native;
    for damaged in [Vec::new(), b"\0asm".to_vec(), native[..native.len() / 2].to_vec()] {
        let mut talk = Talk::begin(Role::Run, &Terms::default());
        talk.say(&ToChild::Load { native: damaged });
        assert!(matches!(talk.hear(), FromChild::Refused { .. }));
    }
    let mut talk = Talk::begin(Role::Run, &Terms::default());
    talk.say(&ToChild::Load { native });
    assert!(matches!(talk.hear(), FromChild::Loaded));
}

fn check(guest: &str, terms: &Terms, within_ms: u64, why: &str) {
    let done = Talk::load(&text(guest), terms).call("{}", within_ms);
    match done.ended {
        Ended::Trapped(words) => {
            assert!(words.contains(why), "{guest}: {words}");
            assert!(words.len() < 300 && !words.contains("wasm trap"), "{guest}: {words}");
        }
        Ended::TimedOut => assert_eq!(why, "timed out", "{guest}"),
        other => panic!("{guest}: {other:?}"),
    }
}

#[test]
fn a_guest_without_end_is_cut_off_wherever_it_loops() {
    for guest in ["loop", "loop_in_start", "sleep", "log_for_ever"] {
        check(guest, &Terms::default(), BRIEF_MS, "timed out");
    }
}

#[test]
fn a_trap_is_told_without_the_guests_own_names() {
    for (guest, why) in [
        ("trap_in_start", "trapped: wasm `unreachable` instruction executed"),
        ("recursion", "trapped: call stack exhausted"),
        ("recursion_in_start", "trapped: call stack exhausted"),
        ("recursion_with_log", "trapped: call stack exhausted"),
        ("recursion_in_host", "trapped: "),
        ("result_beyond_memory", "out of bounds"),
        ("result_length_minus_1", "out of bounds"),
        ("result_2_gib", "out of bounds"),
        ("result_address_odd", "not aligned"),
        ("result_tag_7", "invalid"),
        ("realloc_beyond", "beyond end of memory"),
        ("log_length_minus_1", "out of bounds"),
    ] {
        check(guest, &Terms::default(), AMPLE_MS, why);
    }
}

#[test]
fn a_trap_ends_its_call_alone() {
    let mut talk = Talk::load(&text("boom"), &Terms::default());
    assert!(matches!(talk.call(r#"{"boom":1}"#, AMPLE_MS).ended, Ended::Trapped(_)));
    assert_eq!(said(&talk.call(r#"{"calm":1}"#, AMPLE_MS).ended), r#"{"calm":1}"#);
}

/// Asks once for so many pages beyond its two, and ends badly when it does not get them, as allocators do.
fn growing(pages: u32) -> String {
    text("echo").replacen(
        "(call $answer (local.get $ptr) (local.get $len))",
        &format!(
            "(if (i32.eq (memory.grow (i32.const {pages})) (i32.const -1)) (then unreachable)) (call $answer (local.get $ptr) (local.get $len))"
        ),
        1,
    )
}

#[test]
fn memory_beyond_the_limit_is_told_with_the_limit() {
    let tight = |memory_bytes| Terms { memory_bytes: Some(memory_bytes), ..Terms::default() };
    // Two pages are there from the start; 510 more make 32 MiB.
    let mut talk = Talk::load(&growing(510), &Terms::default());
    let done = talk.call("{}", AMPLE_MS);
    assert_eq!((said(&done.ended), done.memory_bytes), ("{}", 32 * 1024 * 1024));
    let mut talk = Talk::load(&growing(511), &Terms::default());
    let done = talk.call("{}", AMPLE_MS);
    assert_eq!(done.ended, Ended::Trapped("memory limit: 32 MiB".to_owned()));
    assert_eq!(done.memory_bytes, 128 * 1024);

    check("memory_48_mib", &Terms::default(), AMPLE_MS, "memory limit: 32 MiB");
    let mut talk = Talk::load(&text("memory_48_mib"), &tight(48 * MIB));
    assert_eq!(said(&talk.call("{}", AMPLE_MS).ended), "{}");
    check("memory_48_mib", &tight(48 * MIB - 65536), AMPLE_MS, "memory limit: 49088 KiB");

    // In sum over all memories: each of the two fits alone.
    let two = text("echo").replacen(
        "(core module $room",
        "(core module $more (memory 300))(core instance (instantiate $more))(core module $room",
        1,
    );
    let one = Talk::load(&two, &Terms::default()).call("{}", AMPLE_MS);
    assert_eq!(said(&one.ended), "{}");
    let two = two.replacen(
        "(core instance (instantiate $more))",
        "(core instance (instantiate $more))(core instance (instantiate $more))",
        1,
    );
    let both = Talk::load(&two, &Terms::default()).call("{}", AMPLE_MS);
    assert_eq!(both.ended, Ended::Trapped("memory limit: 32 MiB".to_owned()));
}

#[test]
fn a_guest_that_only_grows_is_told_its_limit_and_leaves_nothing_behind() {
    for (guest, limit) in [("grow_memory", "memory limit: "), ("grow_table", "table limit: ")] {
        let mut talk = Talk::load(&text(guest), &Terms::default());
        for _ in 0..2 {
            let done = talk.call("{}", AMPLE_MS);
            assert!(matches!(&done.ended, Ended::Trapped(why) if why.starts_with(limit)), "{guest}: {:?}", done.ended);
            assert!(done.memory_bytes <= 32 * 1024 * 1024, "{guest}");
        }
    }
}

#[test]
fn tables_beyond_the_limit_are_told_with_the_limit_in_sum() {
    let tables = |elements: &[u32]| {
        let tables: String = elements.iter().map(|count| format!("(table {count} funcref)")).collect();
        text("echo").replacen("(func $answer", &format!("{tables}(func $answer"), 1)
    };
    let mut talk = Talk::load(&tables(&[10_000, 10_000]), &Terms::default());
    assert_eq!(said(&talk.call("{}", AMPLE_MS).ended), "{}");
    let mut talk = Talk::load(&tables(&[10_000, 10_001]), &Terms::default());
    assert_eq!(talk.call("{}", AMPLE_MS).ended, Ended::Trapped("table limit: 20000 elements".to_owned()));
}

#[test]
fn a_result_may_have_its_limit_and_not_a_byte_more() {
    let terms = Terms { result_bytes_max: Some(4096), ..Terms::default() };
    let at = |bytes: usize| Talk::load(&sized(bytes), &terms).call("{}", AMPLE_MS).ended;
    assert_eq!(said(&at(4096)).len(), 4096);
    assert_eq!(at(4097), Ended::Trapped("result limit: 4 KiB".to_owned()));
    // So much that it is not even copied.
    assert_eq!(at(8193), Ended::Trapped("copy limit: more than 8 KiB handed over at once".to_owned()));

    let most = Terms { result_bytes_max: Some(MIB), ..Terms::default() };
    assert_eq!(said(&Talk::load(&sized(MIB), &most).call("{}", AMPLE_MS).ended).len(), MIB);
}

#[test]
fn what_is_handed_over_at_once_is_refused_before_it_is_copied() {
    for guest in ["result_8_mib", "error_8_mib", "log_8_mib"] {
        check(guest, &Terms::default(), AMPLE_MS, "copy limit: more than 68 KiB handed over at once");
    }
}
