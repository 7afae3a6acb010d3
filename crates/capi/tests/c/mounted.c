/* A mount that this process serves shows the changes of both sides. */
#include "check.h"

int main(int count, char **arguments) {
    char path[4096], text[16] = "";
    void *contents;
    size_t length;
    struct polder_mount mount, second;
    CHECK(count == 2);
    struct polder_volume volume = new_volume(arguments, "volume");
    snprintf(path, sizeof path, "%s/mnt", arguments[1]);
    FAILS(polder_mount_open(volume, path, &mount), ENOENT);
    CHECK(mkdir(path, 0755) == 0);
    OK(polder_mount_open(volume, path, &mount));
    FAILS(polder_mount_open(volume, path, &second), EBUSY);
    FAILS(polder_volume_close(volume), EBUSY);
    OK(polder_write_file(volume, "/from-library", "library", 7));
    snprintf(path, sizeof path, "%s/mnt/from-library", arguments[1]);
    FILE *stream = fopen(path, "r");
    CHECK(stream != NULL && fread(text, 1, sizeof text, stream) == 7 && strcmp(text, "library") == 0);
    FAILS(polder_mount_close(mount), EBUSY);
    fclose(stream);
    snprintf(path, sizeof path, "%s/mnt/from-program", arguments[1]);
    stream = fopen(path, "w");
    CHECK(stream != NULL && fputs("program", stream) >= 0 && fclose(stream) == 0);
    OK(polder_read_file(volume, "/from-program", &contents, &length));
    CHECK(length == 7 && memcmp(contents, "program", 7) == 0);
    polder_free(contents);
    OK(polder_mount_close(mount));
    FAILS(polder_mount_close(mount), EBADF);
    OK(polder_volume_close(volume));
    return 0;
}
