;; Gives back what it was given: the least that a handler can do.
(component
  (import "device:handler/types@0.1.0" (instance $types
    (type $record (record (field "code" string) (field "message" string)))
    (export "handler-error" (type (eq $record)))))
  (alias export $types "handler-error" (type $error))
  (core module $echo
    (memory (export "memory") 1)
    (global $free (mut i32) (i32.const 1024))
    (func (export "realloc") (param i32 i32 i32) (param $bytes i32) (result i32)
      global.get $free
      global.get $free
      local.get $bytes
      i32.add
      global.set $free)
    (func (export "invoke") (param $at i32) (param $bytes i32) (result i32)
      (i32.store (i32.const 4) (local.get $at))
      (i32.store (i32.const 8) (local.get $bytes))
      i32.const 0))
  (core instance $echo (instantiate $echo))
  (func (export "invoke") (param "args" (list u8)) (result (result (list u8) (error $error)))
    (canon lift (core func $echo "invoke")
      (memory (core memory $echo "memory"))
      (realloc (core func $echo "realloc")))))
