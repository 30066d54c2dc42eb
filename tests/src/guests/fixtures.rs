//! The guests, by name. Arguments are JSON text at `$ptr`; `invoke` gives the address of its result.

use super::Outside::{self, Files, Http, Log, Reentry, Sleep, Socket};

/// How a component is written down.
#[derive(Debug, Clone, Copy)]
pub enum Fixture {
    /// The core of a guest, around which the component is made.
    Guest {
        /// Of its memory, 64 KiB each.
        pages: u32,
        /// What it asks of its host.
        outside: &'static [Outside],
        /// The fields of its core module.
        core: &'static str,
    },
    /// A component that is not of the handler's world.
    Whole(&'static str),
}

const fn guest(core: &'static str) -> Fixture {
    Fixture::Guest { pages: 2, outside: &[], core }
}

const fn paged(pages: u32, core: &'static str) -> Fixture {
    Fixture::Guest { pages, outside: &[], core }
}

const fn asking(outside: &'static [Outside], core: &'static str) -> Fixture {
    Fixture::Guest { pages: 2, outside, core }
}

/// A handler that gives back what it was given, and these fields beside.
macro_rules! echo {
    ($($more:literal)*) => {
        concat!(
            r#"
    (func (export "invoke") (param $ptr i32) (param $len i32) (result i32)
      (call $answer (local.get $ptr) (local.get $len)))"#,
            $($more,)*
        )
    };
}

/// A handler with this body.
macro_rules! invoke {
    ($body:literal $($more:literal)*) => {
        concat!(
            "\n    (func (export \"invoke\") (param $ptr i32) (param $len i32) (result i32)\n      ",
            $body,
            ")",
            $($more,)*
        )
    };
}

/// Every guest.
pub const FIXTURES: &[(&str, Fixture)] = &[
    // What it was given, as it was given.
    ("echo", guest(echo!())),
    // Another file with the same behaviour, for tests that change a file.
    ("echo_anew", guest(echo!("\n    (func (export \"unused\"))"))),
    // How many calls this instance has had: always 1.
    (
        "counting",
        guest(invoke!(
            r#"(i32.store8 (i32.const 309) (i32.add (i32.load8_u (i32.const 309)) (i32.const 1)))
        (call $answer (i32.const 300) (i32.const 11))"#
            "\n    (data (i32.const 300) \"{\\\"calls\\\":0}\")"
        )),
    ),
    // Traps when "boom" stands anywhere in the arguments.
    (
        "boom",
        guest(invoke!(
            r#"(local $at i32)
      (local.set $at (local.get $ptr))
      (loop $next
        (if (i32.eq (i32.load (local.get $at)) (i32.const 0x6d6f6f62)) (then unreachable))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br_if $next (i32.lt_u (local.get $at) (i32.add (local.get $ptr) (local.get $len)))))
      (call $answer (local.get $ptr) (local.get $len))"#
        )),
    ),
    // Fails in its own words.
    (
        "failing",
        guest(invoke!(
            "(call $fail (i32.const 300) (i32.const 7) (i32.const 308) (i32.const 24))"
            "\n    (data (i32.const 300) \"no_lamp\\00the lamp does not answer\")"
        )),
    ),
    // Loops.
    ("loop", guest(invoke!("(loop $for-ever (br $for-ever)) unreachable"))),
    ("loop_in_start", guest(echo!("\n    (func $start (loop $for-ever (br $for-ever)))\n    (start $start)"))),
    ("trap_in_start", guest(echo!("\n    (func $start unreachable)\n    (start $start)"))),
    ("recursion_in_start", guest(echo!("\n    (func $start (call $start))\n    (start $start)"))),
    (
        "grow_in_start",
        guest(echo!(
            r#"
    (func $start
      (loop $again (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable)) (br $again)))
    (start $start)"#
        )),
    ),
    // Recursion, plain and through the host: the host calls `realloc`, which calls the host.
    (
        "recursion",
        guest(invoke!(
            "(call $deeper (local.get $len))"
            "\n    (func $deeper (param i32) (result i32) (i32.add (call $deeper (local.get 0)) (i32.const 1)))"
        )),
    ),
    (
        "recursion_in_host",
        asking(
            &[Reentry],
            invoke!("(call $random (i64.const 8) (i32.const 32)) (call $answer (local.get $ptr) (local.get $len))"),
        ),
    ),
    (
        "recursion_with_log",
        asking(
            &[Log],
            invoke!(
                "(call $deeper (i32.const 0))"
                r#"
    (func $deeper (param i32) (result i32)
      (call $log (i32.const 1) (i32.const 0) (i32.const 0))
      (i32.add (call $deeper (local.get 0)) (i32.const 1)))"#
            ),
        ),
    ),
    // Memory and tables without end: one gives up when it is refused more, as allocators do, one asks again for ever. And too large
    // from the beginning.
    (
        "grow_memory",
        guest(invoke!(
            r#"(loop $again
        (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable))
        (br $again))
      unreachable"#
        )),
    ),
    (
        "grow_table",
        guest(invoke!(
            r#"(loop $again
        (if (i32.eq (table.grow $table (ref.null func) (i32.const 1000)) (i32.const -1)) (then unreachable))
        (br $again))
      unreachable"#
                "\n    (table $table 1 funcref)"
        )),
    ),
    (
        "grow_memory_for_ever",
        guest(invoke!("(loop $again (drop (memory.grow (i32.const 16))) (br $again)) unreachable")),
    ),
    ("memory_512_mib", paged(8192, echo!())),
    ("memory_4_gib", paged(65536, echo!())),
    ("table_10_million", guest(echo!("\n    (table 10000000 funcref)"))),
    // Touches all of 48 MiB, which only a manifest with more than the usual memory allows.
    (
        "memory_48_mib",
        paged(
            768,
            invoke!(
                "(memory.fill (i32.const 1048576) (i32.const 1) (i32.const 49283072)) (call $answer (local.get $ptr) (local.get $len))"
            ),
        ),
    ),
    // Results that are none.
    ("result_beyond_memory", guest(invoke!("(call $answer (i32.const 131000) (i32.const 1048576))"))),
    ("result_length_minus_1", guest(invoke!("(call $answer (i32.const 0) (i32.const -1))"))),
    ("result_2_gib", guest(invoke!("(call $answer (i32.const 0) (i32.const 0x7fffffff))"))),
    ("result_8_mib", paged(136, invoke!("(call $answer (i32.const 4096) (i32.const 8388608))"))),
    ("result_address_odd", guest(invoke!("(i32.const 3)"))),
    ("result_tag_7", guest(invoke!("(i32.store8 (i32.const 0) (i32.const 7)) (i32.const 0)"))),
    ("realloc_beyond", Fixture::Whole(REALLOC_BEYOND)),
    (
        "error_8_mib",
        paged(136, invoke!("(call $fail (i32.const 300) (i32.const 2) (i32.const 4096) (i32.const 8388608))")),
    ),
    // The log.
    (
        "log_levels",
        asking(
            &[Log],
            invoke!(
                r#"(call $log (i32.const 0) (i32.const 300) (i32.const 4))
      (call $log (i32.const 1) (i32.const 300) (i32.const 15))
      (call $log (i32.const 2) (i32.const 300) (i32.const 27))
      (call $log (i32.const 3) (i32.const 300) (i32.const 4))
      (call $answer (local.get $ptr) (local.get $len))"#
                "\n    (data (i32.const 300) \"lamp\\1b[31m at 40\\0asecond line\")"
            ),
        ),
    ),
    (
        "log_for_ever",
        asking(
            &[Log],
            invoke!("(loop $again (call $log (i32.const 1) (i32.const 300) (i32.const 4)) (br $again)) unreachable"
                "\n    (data (i32.const 300) \"lamp\")"),
        ),
    ),
    (
        "log_100",
        asking(
            &[Log],
            invoke!(
                r#"(local $left i32)
      (local.set $left (i32.const 100))
      (loop $again
        (call $log (i32.const 1) (i32.const 300) (i32.const 4))
        (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
      (call $answer (local.get $ptr) (local.get $len))"#
                "\n    (data (i32.const 300) \"lamp\")"
            ),
        ),
    ),
    (
        "log_8_mib",
        Fixture::Guest {
            pages: 136,
            outside: &[Log],
            core: invoke!(
                r#"(call $log (i32.const 1) (i32.const 4096) (i32.const 8388608))
      (call $answer (local.get $ptr) (local.get $len))"#
            ),
        },
    ),
    (
        "log_length_minus_1",
        asking(
            &[Log],
            invoke!(
                "(call $log (i32.const 1) (i32.const 0) (i32.const -1)) (call $answer (local.get $ptr) (local.get $len))"
            ),
        ),
    ),
    // Ten seconds in a call of the host's.
    (
        "sleep",
        asking(
            &[Sleep],
            invoke!(
                "(call $block (call $sleep (i64.const 10000000000))) (call $answer (local.get $ptr) (local.get $len))"
            ),
        ),
    ),
    // A tenth of a second there, and half a second.
    (
        "nap",
        asking(
            &[Sleep],
            invoke!(
                "(call $block (call $sleep (i64.const 100000000))) (call $answer (local.get $ptr) (local.get $len))"
            ),
        ),
    ),
    (
        "long_nap",
        asking(
            &[Sleep],
            invoke!(
                "(call $block (call $sleep (i64.const 700000000))) (call $answer (local.get $ptr) (local.get $len))"
            ),
        ),
    ),
    // What stands in the file {"path":"…"} of its first folder, or {"error":number of wasi's error-code}.
    ("read_file", asking(&[Files], READ_FILE)),
    // Writes {} to the file {"path":"…"}, made if it is not there; then {}, or {"error":…}.
    ("write_file", asking(&[Files], WRITE_FILE)),
    // GET / of {"authority":"…"}: {"status":…}, or {"error":number of wasi's http error-code}.
    ("http_get", asking(&[Http], HTTP_GET)),
    // {"made":0} when a TCP socket was made, {"error":number of wasi's error-code} when not.
    ("socket", asking(&[Socket], SOCKET)),
    // Not of the handler's world.
    ("export_of_other_type", Fixture::Whole(OTHER_TYPE)),
    ("export_missing", Fixture::Whole("(component)\n")),
    ("import_unknown", Fixture::Whole(UNKNOWN_IMPORT)),
    ("core_module", Fixture::Whole("(module (func (export \"invoke\")))\n")),
];

const READ_FILE: &str = invoke!(
    r#"(call $folders (i32.const 32))
      (if (i32.eqz (i32.load (i32.const 36))) (then (return (call $error (i32.const 999)))))
      (call $open (i32.load (i32.load (i32.const 32))) (i32.const 1)
        (i32.add (local.get $ptr) (i32.const 9)) (i32.sub (local.get $len) (i32.const 11))
        (i32.const 0) (i32.const 1) (i32.const 48))
      (if (i32.load8_u (i32.const 48)) (then (return (call $error (i32.load8_u (i32.const 52))))))
      (call $read (i32.load (i32.const 52)) (i64.const 4096) (i64.const 0) (i32.const 64))
      (if (i32.load8_u (i32.const 64)) (then (return (call $error (i32.load8_u (i32.const 68))))))
      (call $answer (i32.load (i32.const 68)) (i32.load (i32.const 72)))"#
    r#"
    (data (i32.const 300) "{\"error\":\"   \"}")
    (func $error (param $number i32) (result i32)
      (call $digits (i32.const 310) (local.get $number))
      (call $answer (i32.const 300) (i32.const 15)))"#
);

const WRITE_FILE: &str = invoke!(
    r#"(call $folders (i32.const 32))
      (if (i32.eqz (i32.load (i32.const 36))) (then (return (call $error (i32.const 999)))))
      (call $open (i32.load (i32.load (i32.const 32))) (i32.const 1)
        (i32.add (local.get $ptr) (i32.const 9)) (i32.sub (local.get $len) (i32.const 11))
        (i32.const 1) (i32.const 2) (i32.const 48))
      (if (i32.load8_u (i32.const 48)) (then (return (call $error (i32.load8_u (i32.const 52))))))
      (call $write (i32.load (i32.const 52)) (i32.const 320) (i32.const 2) (i64.const 0) (i32.const 64))
      (if (i32.load8_u (i32.const 64)) (then (return (call $error (i32.load8_u (i32.const 72))))))
      (call $answer (i32.const 320) (i32.const 2))"#
    r#"
    (data (i32.const 300) "{\"error\":\"   \"}")
    (data (i32.const 320) "{}")
    (func $error (param $number i32) (result i32)
      (call $digits (i32.const 310) (local.get $number))
      (call $answer (i32.const 300) (i32.const 15)))"#
);

const HTTP_GET: &str = invoke!(
    r#"(local $request i32) (local $future i32)
      (local.set $request (call $request (call $fields)))
      (drop (call $scheme (local.get $request) (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 0)))
      (drop (call $authority (local.get $request) (i32.const 1)
        (i32.add (local.get $ptr) (i32.const 14)) (i32.sub (local.get $len) (i32.const 16))))
      (drop (call $path (local.get $request) (i32.const 1) (i32.const 340) (i32.const 1)))
      (call $handle (local.get $request) (i32.const 0) (i32.const 0) (i32.const 64))
      (if (i32.load8_u (i32.const 64)) (then (return (call $error (i32.load8_u (i32.const 72))))))
      (local.set $future (i32.load (i32.const 72)))
      (call $block (call $wait (local.get $future)))
      (call $take (local.get $future) (i32.const 128))
      (if (i32.load8_u (i32.const 144)) (then (return (call $error (i32.load8_u (i32.const 152))))))
      (call $digits (i32.const 330) (call $status (i32.load (i32.const 152))))
      (call $answer (i32.const 320) (i32.const 14))"#
    r#"
    (data (i32.const 300) "{\"error\":\"   \"}")
    (data (i32.const 320) "{\"status\":   }")
    (data (i32.const 340) "/")
    (func $error (param $number i32) (result i32)
      (call $digits (i32.const 310) (local.get $number))
      (call $answer (i32.const 300) (i32.const 15)))"#
);

const SOCKET: &str = invoke!(
    r#"(call $socket (i32.const 0) (i32.const 32))
      (if (i32.load8_u (i32.const 32)) (then
        (call $digits (i32.const 310) (i32.load8_u (i32.const 36)))
        (return (call $answer (i32.const 300) (i32.const 15)))))
      (call $answer (i32.const 320) (i32.const 10))"#
    r#"
    (data (i32.const 300) "{\"error\":\"   \"}")
    (data (i32.const 320) "{\"made\":0}")"#
);

const OTHER_TYPE: &str = r#"(component
  (core module $guest (func (export "invoke") (param i32) (result i32) (local.get 0)))
  (core instance $guest (instantiate $guest))
  (func $invoke (param "args" u32) (result u32) (canon lift (core func $guest "invoke")))
  (export "invoke" (func $invoke)))
"#;

const UNKNOWN_IMPORT: &str = r#"(component
  (import "evil:host/exec" (instance $exec (export "run" (func))))
  (import "device:handler/types@0.1.0" (instance $types
    (type $record (record (field "code" string) (field "message" string)))
    (export "handler-error" (type (eq $record)))))
  (alias export $types "handler-error" (type $handler-error))
  (core func $run (canon lower (func $exec "run")))
  (core module $guest
    (import "host" "run" (func $run))
    (memory (export "memory") 2)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
    (func (export "invoke") (param i32 i32) (result i32) (call $run) (i32.const 0)))
  (core instance $guest (instantiate $guest (with "host" (instance (export "run" (func $run))))))
  (func $invoke (param "args" (list u8)) (result (result (list u8) (error $handler-error)))
    (canon lift (core func $guest "invoke")
      (memory (core memory $guest "memory")) (realloc (core func $guest "realloc"))))
  (export "invoke" (func $invoke)))
"#;

const REALLOC_BEYOND: &str = r#"(component
  (import "device:handler/types@0.1.0" (instance $types
    (type $record (record (field "code" string) (field "message" string)))
    (export "handler-error" (type (eq $record)))))
  (alias export $types "handler-error" (type $handler-error))
  (core module $guest
    (memory (export "memory") 2)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const -8))
    (func (export "invoke") (param i32 i32) (result i32) (i32.const 0)))
  (core instance $guest (instantiate $guest))
  (func $invoke (param "args" (list u8)) (result (result (list u8) (error $handler-error)))
    (canon lift (core func $guest "invoke")
      (memory (core memory $guest "memory")) (realloc (core func $guest "realloc"))))
  (export "invoke" (func $invoke)))
"#;
