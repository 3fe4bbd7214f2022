/* An addon that counts its loads in the file that WINNOW_TEST_LOADS names, and then ends its process. */
#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void load(void) {
  const char* path = getenv("WINNOW_TEST_LOADS");
  FILE* file = path == NULL ? NULL : fopen(path, "a");
  if (file != NULL) {
    fputs("x", file);
    fclose(file);
  }
  abort();
}
