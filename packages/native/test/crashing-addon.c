/*
 * An addon that counts its loads in the file that WINNOW_TEST_LOADS names, and then ends its process: without an error if
 * there is WINNOW_TEST_EXIT.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void load(void) {
  const char* path = getenv("WINNOW_TEST_LOADS");
  FILE* file = path == NULL ? NULL : fopen(path, "a");
  if (file != NULL) {
    fputs("x", file);
    fclose(file);
  }
  if (getenv("WINNOW_TEST_EXIT") != NULL) _exit(0);
  abort();
}
