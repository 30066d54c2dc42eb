//! What a guest may ask of its host, as the three pieces of text that a component needs for it: the import with its lowering, what the
//! core module is given, and what it asks for.

/// One group of the host's functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outside {
    /// `log` of the handler's own world: `(level, text, length)`.
    Log,
    /// A clock to sleep by: `sleep (nanoseconds) -> pollable`, `block (pollable)`.
    Sleep,
    /// Random bytes, through a `realloc` of the guest's own that asks for random bytes again.
    Reentry,
    /// Files: `folders (result)`, `open (folder, follow, text, length, how, rights, result)`, `read (file, length, offset, result)`,
    /// `write (file, text, length, offset, result)`.
    Files,
    /// Requests: `fields`, `request`, `scheme`, `authority`, `path`, `handle`, `wait`, `block`, `take`, `status`.
    Http,
    /// `socket (family, result)`.
    Socket,
}

impl Outside {
    /// The imports of the component, lowered.
    pub(super) const fn component(self) -> &'static str {
        match self {
            Self::Log => LOG,
            Self::Sleep => SLEEP,
            Self::Reentry => REENTRY,
            Self::Files => FILES,
            Self::Http => HTTP,
            Self::Socket => SOCKET,
        }
    }

    /// What its core module is given.
    pub(super) const fn given(self) -> &'static str {
        match self {
            Self::Log => r#" (export "log" (func $log))"#,
            Self::Sleep => r#" (export "sleep" (func $sleep)) (export "block" (func $block))"#,
            Self::Reentry => r#" (export "random" (func $random))"#,
            Self::Files => {
                r#"
      (export "folders" (func $folders)) (export "open" (func $open))
      (export "read" (func $read)) (export "write" (func $write))"#
            }
            Self::Http => {
                r#"
      (export "fields" (func $fields)) (export "request" (func $request)) (export "scheme" (func $scheme))
      (export "authority" (func $authority)) (export "path" (func $path)) (export "handle" (func $handle))
      (export "wait" (func $wait)) (export "block" (func $block)) (export "take" (func $take))
      (export "status" (func $status))"#
            }
            Self::Socket => r#" (export "socket" (func $socket))"#,
        }
    }

    /// What its core module asks for.
    pub(super) const fn core(self) -> &'static str {
        match self {
            Self::Log => "\n    (import \"host\" \"log\" (func $log (param i32 i32 i32)))",
            Self::Sleep => {
                r#"
    (import "host" "sleep" (func $sleep (param i64) (result i32)))
    (import "host" "block" (func $block (param i32)))"#
            }
            Self::Reentry => "\n    (import \"host\" \"random\" (func $random (param i64 i32)))",
            Self::Files => {
                r#"
    (import "host" "folders" (func $folders (param i32)))
    (import "host" "open" (func $open (param i32 i32 i32 i32 i32 i32 i32)))
    (import "host" "read" (func $read (param i32 i64 i64 i32)))
    (import "host" "write" (func $write (param i32 i32 i32 i64 i32)))"#
            }
            Self::Http => {
                r#"
    (import "host" "fields" (func $fields (result i32)))
    (import "host" "request" (func $request (param i32) (result i32)))
    (import "host" "scheme" (func $scheme (param i32 i32 i32 i32 i32) (result i32)))
    (import "host" "authority" (func $authority (param i32 i32 i32 i32) (result i32)))
    (import "host" "path" (func $path (param i32 i32 i32 i32) (result i32)))
    (import "host" "handle" (func $handle (param i32 i32 i32 i32)))
    (import "host" "wait" (func $wait (param i32) (result i32)))
    (import "host" "block" (func $block (param i32)))
    (import "host" "take" (func $take (param i32 i32)))
    (import "host" "status" (func $status (param i32) (result i32)))"#
            }
            Self::Socket => "\n    (import \"host\" \"socket\" (func $socket (param i32 i32)))",
        }
    }
}

const LOG: &str = r#"
  (import "device:handler/host@0.1.0" (instance $host
    (type $words (enum "debug" "info" "warn" "error"))
    (export "level" (type $level (eq $words)))
    (export "log" (func (param "level" $level) (param "message" string)))))
  (core func $log (canon lower (func $host "log") (memory (core memory $room "memory"))))"#;

const SLEEP: &str = r#"
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $pollable (sub resource)))
    (export "[method]pollable.block" (func (param "self" (borrow $pollable))))))
  (alias export $poll "pollable" (type $pollable))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
    (alias outer 1 $pollable (type $outer))
    (export "pollable" (type $pollable (eq $outer)))
    (export "subscribe-duration" (func (param "when" u64) (result (own $pollable))))))
  (core func $sleep (canon lower (func $clock "subscribe-duration")))
  (core func $block (canon lower (func $poll "[method]pollable.block")))"#;

const REENTRY: &str = r#"
  (import "wasi:random/random@0.2.0" (instance $source
    (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))
  (core module $later
    (table (export "table") 1 funcref)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32)
      (call_indirect (param i64 i32) (i64.const 8) (i32.const 32) (i32.const 0))
      (i32.const 1024))
    (type (func (param i64 i32))))
  (core instance $later (instantiate $later))
  (core func $random (canon lower (func $source "get-random-bytes")
    (memory (core memory $room "memory")) (realloc (core func $later "realloc"))))
  (core module $fill
    (import "host" "random" (func $random (param i64 i32)))
    (import "later" "table" (table 1 funcref))
    (elem (i32.const 0) func $random))
  (core instance (instantiate $fill
    (with "later" (instance $later))
    (with "host" (instance (export "random" (func $random))))))"#;

const FILES: &str = r#"
  (import "wasi:filesystem/types@0.2.0" (instance $files
    (export "descriptor" (type $descriptor (sub resource)))
    (type $codes (enum "access" "would-block" "already" "bad-descriptor" "busy" "deadlock" "quota" "exist" "file-too-large"
      "illegal-byte-sequence" "in-progress" "interrupted" "invalid" "io" "is-directory" "loop" "too-many-links" "message-size"
      "name-too-long" "no-device" "no-entry" "no-lock" "insufficient-memory" "insufficient-space" "not-directory" "not-empty"
      "not-recoverable" "unsupported" "no-tty" "no-such-device" "overflow" "not-permitted" "pipe" "read-only" "invalid-seek"
      "text-file-busy" "cross-device"))
    (export "error-code" (type $error (eq $codes)))
    (type $rights' (flags "read" "write" "file-integrity-sync" "data-integrity-sync" "requested-write-sync" "mutate-directory"))
    (export "descriptor-flags" (type $rights (eq $rights')))
    (type $follow' (flags "symlink-follow"))
    (export "path-flags" (type $follow (eq $follow')))
    (type $how' (flags "create" "directory" "exclusive" "truncate"))
    (export "open-flags" (type $how (eq $how')))
    (export "[method]descriptor.open-at" (func (param "self" (borrow $descriptor)) (param "path-flags" $follow)
      (param "path" string) (param "open-flags" $how) (param "flags" $rights)
      (result (result (own $descriptor) (error $error)))))
    (export "[method]descriptor.read" (func (param "self" (borrow $descriptor)) (param "length" u64) (param "offset" u64)
      (result (result (tuple (list u8) bool) (error $error)))))
    (export "[method]descriptor.write" (func (param "self" (borrow $descriptor)) (param "buffer" (list u8))
      (param "offset" u64) (result (result u64 (error $error)))))))
  (alias export $files "descriptor" (type $descriptor))
  (import "wasi:filesystem/preopens@0.2.0" (instance $preopens
    (alias outer 1 $descriptor (type $outer))
    (export "descriptor" (type $descriptor (eq $outer)))
    (export "get-directories" (func (result (list (tuple (own $descriptor) string)))))))
  (core func $folders (canon lower (func $preopens "get-directories")
    (memory (core memory $room "memory")) (realloc (core func $room "realloc"))))
  (core func $open (canon lower (func $files "[method]descriptor.open-at") (memory (core memory $room "memory"))))
  (core func $read (canon lower (func $files "[method]descriptor.read")
    (memory (core memory $room "memory")) (realloc (core func $room "realloc"))))
  (core func $write (canon lower (func $files "[method]descriptor.write") (memory (core memory $room "memory"))))"#;

const HTTP: &str = r#"
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $pollable (sub resource)))
    (export "[method]pollable.block" (func (param "self" (borrow $pollable))))))
  (alias export $poll "pollable" (type $pollable))
  (import "wasi:http/types@0.2.0" (instance $http
    (alias outer 1 $pollable (type $outer))
    (export "pollable" (type $pollable (eq $outer)))
    (export "fields" (type $fields (sub resource)))
    (export "outgoing-request" (type $request (sub resource)))
    (export "request-options" (type (sub resource)))
    (export "incoming-response" (type $response (sub resource)))
    (export "future-incoming-response" (type $future (sub resource)))
    (type $scheme' (variant (case "HTTP") (case "HTTPS") (case "other" string)))
    (export "scheme" (type $scheme (eq $scheme')))
    (type $dns' (record (field "rcode" (option string)) (field "info-code" (option u16))))
    (export "DNS-error-payload" (type $dns (eq $dns')))
    (type $tls' (record (field "alert-id" (option u8)) (field "alert-message" (option string))))
    (export "TLS-alert-received-payload" (type $tls (eq $tls')))
    (type $size' (record (field "field-name" (option string)) (field "field-size" (option u32))))
    (export "field-size-payload" (type $size (eq $size')))
    (type $codes (variant (case "DNS-timeout") (case "DNS-error" $dns) (case "destination-not-found")
      (case "destination-unavailable") (case "destination-IP-prohibited") (case "destination-IP-unroutable")
      (case "connection-refused") (case "connection-terminated") (case "connection-timeout") (case "connection-read-timeout")
      (case "connection-write-timeout") (case "connection-limit-reached") (case "TLS-protocol-error")
      (case "TLS-certificate-error") (case "TLS-alert-received" $tls) (case "HTTP-request-denied")
      (case "HTTP-request-length-required") (case "HTTP-request-body-size" (option u64)) (case "HTTP-request-method-invalid")
      (case "HTTP-request-URI-invalid") (case "HTTP-request-URI-too-long")
      (case "HTTP-request-header-section-size" (option u32)) (case "HTTP-request-header-size" (option $size))
      (case "HTTP-request-trailer-section-size" (option u32)) (case "HTTP-request-trailer-size" $size)
      (case "HTTP-response-incomplete") (case "HTTP-response-header-section-size" (option u32))
      (case "HTTP-response-header-size" $size) (case "HTTP-response-body-size" (option u64))
      (case "HTTP-response-trailer-section-size" (option u32)) (case "HTTP-response-trailer-size" $size)
      (case "HTTP-response-transfer-coding" (option string)) (case "HTTP-response-content-coding" (option string))
      (case "HTTP-response-timeout") (case "HTTP-upgrade-failed") (case "HTTP-protocol-error") (case "loop-detected")
      (case "configuration-error") (case "internal-error" (option string))))
    (export "error-code" (type $error (eq $codes)))
    (export "[constructor]fields" (func (result (own $fields))))
    (export "[constructor]outgoing-request" (func (param "headers" (own $fields)) (result (own $request))))
    (export "[method]outgoing-request.set-scheme" (func (param "self" (borrow $request)) (param "scheme" (option $scheme))
      (result (result))))
    (export "[method]outgoing-request.set-authority" (func (param "self" (borrow $request))
      (param "authority" (option string)) (result (result))))
    (export "[method]outgoing-request.set-path-with-query" (func (param "self" (borrow $request))
      (param "path-with-query" (option string)) (result (result))))
    (export "[method]incoming-response.status" (func (param "self" (borrow $response)) (result u16)))
    (export "[method]future-incoming-response.subscribe" (func (param "self" (borrow $future)) (result (own $pollable))))
    (export "[method]future-incoming-response.get" (func (param "self" (borrow $future))
      (result (option (result (result (own $response) (error $error)))))))))
  (alias export $http "outgoing-request" (type $request))
  (alias export $http "request-options" (type $options))
  (alias export $http "future-incoming-response" (type $future))
  (alias export $http "error-code" (type $error))
  (import "wasi:http/outgoing-handler@0.2.0" (instance $sender
    (alias outer 1 $request (type $request'))
    (export "outgoing-request" (type $request (eq $request')))
    (alias outer 1 $options (type $options'))
    (export "request-options" (type $options (eq $options')))
    (alias outer 1 $future (type $future'))
    (export "future-incoming-response" (type $future (eq $future')))
    (alias outer 1 $error (type $error'))
    (export "error-code" (type $error (eq $error')))
    (export "handle" (func (param "request" (own $request)) (param "options" (option (own $options)))
      (result (result (own $future) (error $error)))))))
  (core func $fields (canon lower (func $http "[constructor]fields")))
  (core func $request (canon lower (func $http "[constructor]outgoing-request")))
  (core func $scheme (canon lower (func $http "[method]outgoing-request.set-scheme") (memory (core memory $room "memory"))))
  (core func $authority (canon lower (func $http "[method]outgoing-request.set-authority")
    (memory (core memory $room "memory"))))
  (core func $path (canon lower (func $http "[method]outgoing-request.set-path-with-query")
    (memory (core memory $room "memory"))))
  (core func $handle (canon lower (func $sender "handle")
    (memory (core memory $room "memory")) (realloc (core func $room "realloc"))))
  (core func $wait (canon lower (func $http "[method]future-incoming-response.subscribe")))
  (core func $block (canon lower (func $poll "[method]pollable.block")))
  (core func $take (canon lower (func $http "[method]future-incoming-response.get")
    (memory (core memory $room "memory")) (realloc (core func $room "realloc"))))
  (core func $status (canon lower (func $http "[method]incoming-response.status")))"#;

const SOCKET: &str = r#"
  (import "wasi:sockets/network@0.2.0" (instance $network
    (type $codes (enum "unknown" "access-denied" "not-supported" "invalid-argument" "out-of-memory" "timeout"
      "concurrency-conflict" "not-in-progress" "would-block" "invalid-state" "new-socket-limit" "address-not-bindable"
      "address-in-use" "remote-unreachable" "connection-refused" "connection-reset" "connection-aborted" "datagram-too-large"
      "name-unresolvable" "temporary-resolver-failure" "permanent-resolver-failure"))
    (export "error-code" (type (eq $codes)))
    (type $families (enum "ipv4" "ipv6"))
    (export "ip-address-family" (type (eq $families)))))
  (alias export $network "error-code" (type $error))
  (alias export $network "ip-address-family" (type $family))
  (import "wasi:sockets/tcp@0.2.0" (instance $tcp (export "tcp-socket" (type (sub resource)))))
  (alias export $tcp "tcp-socket" (type $socket))
  (import "wasi:sockets/tcp-create-socket@0.2.0" (instance $sockets
    (alias outer 1 $error (type $error'))
    (export "error-code" (type $error (eq $error')))
    (alias outer 1 $family (type $family'))
    (export "ip-address-family" (type $family (eq $family')))
    (alias outer 1 $socket (type $socket'))
    (export "tcp-socket" (type $socket (eq $socket')))
    (export "create-tcp-socket" (func (param "address-family" $family) (result (result (own $socket) (error $error)))))))
  (core func $socket (canon lower (func $sockets "create-tcp-socket") (memory (core memory $room "memory"))))"#;
