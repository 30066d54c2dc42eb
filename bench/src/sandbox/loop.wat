;; Never ends by itself.
(component
  (import "device:handler/types@0.1.0" (instance $types
    (type $record (record (field "code" string) (field "message" string)))
    (export "handler-error" (type (eq $record)))))
  (alias export $types "handler-error" (type $error))
  (core module $loop
    (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 1024)
    (func (export "invoke") (param i32 i32) (result i32)
      (loop br 0)
      unreachable))
  (core instance $loop (instantiate $loop))
  (func (export "invoke") (param "args" (list u8)) (result (result (list u8) (error $error)))
    (canon lift (core func $loop "invoke")
      (memory (core memory $loop "memory"))
      (realloc (core func $loop "realloc")))))
