;; custom.example.echo: answers with the arguments that it was given. The device takes this text as it is.
(component
  (core module $code
    (memory (export "memory") 2)                  ;; 128 KiB; arguments are at most 64 KiB
    (global $next (mut i32) (i32.const 16))       ;; the first 16 bytes hold the answer

    ;; Room for what comes in. Nothing is taken back, as each call begins with fresh memory.
    (func (export "realloc") (param $old i32) (param $old_bytes i32) (param $align i32) (param $bytes i32) (result i32)
      (local $at i32)
      (local.set $at (i32.and
        (i32.add (global.get $next) (i32.sub (local.get $align) (i32.const 1)))
        (i32.sub (i32.const 0) (local.get $align))))
      (global.set $next (i32.add (local.get $at) (local.get $bytes)))
      (local.get $at))

    ;; The answer: a byte that is 0 for a result, then where its JSON text begins and how long it is.
    (func (export "invoke") (param $args i32) (param $bytes i32) (result i32)
      (i32.store (i32.const 4) (local.get $args))
      (i32.store (i32.const 8) (local.get $bytes))
      (i32.const 0)))

  (core instance $run (instantiate $code))
  (type $failure (record (field "code" string) (field "message" string)))
  (export $handler-error "handler-error" (type $failure))
  (func (export "invoke") (param "args" (list u8)) (result (result (list u8) (error $handler-error)))
    (canon lift (core func $run "invoke")
      (memory (core memory $run "memory"))
      (realloc (core func $run "realloc")))))
