// {{name}}: answers the level that it was given. Without a libc, so that clang and lld are all it takes.
#include <stddef.h>
#include <stdint.h>

#define EXPORT(name) __attribute__((export_name(name)))
#define TEXT(literal) literal, sizeof(literal) - 1

enum level { DEBUG, INFO, WARN, ERROR };

// Keeps a line for the keeper of the device.
__attribute__((import_module("device:handler/host@0.1.0"), import_name("log")))
void host_log(enum level level, const char *text, size_t bytes);

// Memory is given out and never taken back, as each call begins with a fresh copy. Arguments are at most 64 KiB.
static _Alignas(16) unsigned char heap[96 * 1024];
static size_t used;

EXPORT("cabi_realloc")
void *cabi_realloc(void *old, size_t old_bytes, size_t align, size_t bytes) {
  (void)old, (void)old_bytes;
  used = (used + align - 1) & ~(align - 1);
  if (bytes > sizeof heap - used) __builtin_trap();
  void *at = heap + used;
  used += bytes;
  return at;
}

// What a call gives back: JSON text, or a word and a line that tell why not.
static struct {
  uint8_t failed;
  const char *text;
  size_t text_bytes;
  const char *message;
  size_t message_bytes;
} answer;

// The integer behind `"name":` in arguments that the device has held against the bounds; -1 if it is not there.
static int member(const char *json, size_t bytes, const char *name, size_t name_bytes) {
  for (size_t i = 0; i + name_bytes < bytes; i++) {
    size_t same = 0;
    while (same < name_bytes && json[i + same] == name[same]) same++;
    if (same < name_bytes) continue;
    size_t at = i + name_bytes;
    while (at < bytes && (json[at] == ' ' || json[at] == ':')) at++;
    int value = 0;
    while (at < bytes && json[at] >= '0' && json[at] <= '9') value = value * 10 + (json[at++] - '0');
    return value;
  }
  return -1;
}

EXPORT("invoke")
void *invoke(const char *args, size_t bytes) {
  int level = member(args, bytes, TEXT("\"level\""));
  if (level < 0) {
    answer.failed = 1;
    answer.text = "no_level", answer.text_bytes = 8;
    answer.message = "there is no level", answer.message_bytes = 17;
    return &answer;
  }
  host_log(INFO, TEXT("a level came"));

  static char text[] = "{\"level\":   }"; // blanks are allowed before a number
  for (char *digit = &text[11]; digit > &text[8]; digit--) {
    *digit = (char)('0' + level % 10);
    level /= 10;
    if (level == 0) break;
  }
  answer.text = text, answer.text_bytes = sizeof text - 1;
  return &answer;
}
