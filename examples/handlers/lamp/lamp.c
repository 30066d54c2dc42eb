// custom.example.lamp: sets an LED to a level from 0 to 100.
//
// Descriptor 3 is the first folder of the manifest's reach, whichever that is, so the path stands in the manifest alone.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT(name) __attribute__((export_name(name)))
enum { LED_FOLDER = 3 };
enum level { DEBUG, INFO, WARN, ERROR };

__attribute__((import_module("device:handler/host@0.1.0"), import_name("log")))
void host_log(enum level level, const char *text, size_t bytes);

EXPORT("cabi_realloc")
void *cabi_realloc(void *old, size_t old_bytes, size_t align, size_t bytes) {
  (void)old_bytes, (void)align; // malloc aligns for everything
  void *at = realloc(old, bytes);
  if (!at) abort();
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

static void *failed(const char *word, const char *message) {
  answer.failed = 1;
  answer.text = word, answer.text_bytes = strlen(word);
  answer.message = message, answer.message_bytes = strlen(message);
  return &answer;
}

// The number in one of the LED's files; -1 if there is none.
static long number_in(const char *name) {
  char digits[16] = "";
  int file = openat(LED_FOLDER, name, O_RDONLY);
  if (file < 0) return -1;
  ssize_t bytes = read(file, digits, sizeof digits - 1);
  close(file);
  return bytes > 0 ? strtol(digits, NULL, 10) : -1;
}

EXPORT("invoke")
void *invoke(const char *args, size_t bytes) {
  // The device has held the arguments against the bounds: level is there, an integer from 0 to 100.
  char json[256] = "";
  memcpy(json, args, bytes < sizeof json ? bytes : sizeof json - 1);
  const char *member = strstr(json, "\"level\"");
  if (!member) return failed("no_level", "there is no level");
  long level = strtol(member + 7 + strspn(member + 7, " :"), NULL, 10);

  long brightest = number_in("max_brightness");
  if (brightest < 1) return failed("no_led", "the folder of the reach is no LED: it has no max_brightness");
  long brightness = level * brightest / 100;

  char text[64];
  int file = openat(LED_FOLDER, "brightness", O_WRONLY | O_TRUNC);
  if (file < 0) return failed("no_access", "brightness may not be written: by the reach, or by the user that runs the device");
  int digits = snprintf(text, sizeof text, "%ld\n", brightness);
  ssize_t written = write(file, text, (size_t)digits);
  if (close(file) != 0 || written != digits) return failed("not_set", "the LED did not take the brightness");

  int said = snprintf(text, sizeof text, "brightness %ld of %ld", brightness, brightest);
  host_log(INFO, text, (size_t)said);
  static char result[64];
  answer.failed = 0;
  answer.text = result;
  answer.text_bytes = (size_t)snprintf(result, sizeof result, "{\"level\":%ld,\"brightness\":%ld}", level, brightness);
  return &answer;
}
