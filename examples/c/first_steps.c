/*
 * Makes a volume in a file, writes and reads, lists a directory.
 *
 *     cc first_steps.c $(pkg-config --cflags --libs polder) -o first_steps && ./first_steps data.polder
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <polder.h>

/* Ends the program after a failure. */
static void check(int result) {
    if (result < 0) {
        fprintf(stderr, "error %d: %s\n", -result, polder_message());
        exit(1);
    }
}

int main(int count, char **arguments) {
    struct polder_volume volume;
    if (count != 2) {
        fprintf(stderr, "usage: %s VOLUME\n", arguments[0]);
        return 2;
    }
    /* The file is sparse: it takes only the space that is written. */
    int result = polder_volume_open(arguments[1], NULL, &volume);
    if (result == -ENOENT) {
        struct polder_create_options options = POLDER_CREATE_OPTIONS_INIT;
        options.size = 1 << 30;
        options.label = "Example";
        result = polder_volume_create(arguments[1], &options, NULL, &volume);
    }
    check(result);

    check(polder_mkdir_all(volume, "/notes/2026"));
    check(polder_write_file(volume, "/notes/2026/new", "hello from C\n", 13));
    /* After a crash, the name has the complete old contents or the complete new ones. */
    check(polder_rename(volume, "/notes/2026/new", "/notes/2026/today", 0));

    void *contents;
    size_t length;
    check(polder_read_file(volume, "/notes/2026/today", &contents, &length));
    fwrite(contents, 1, length, stdout);
    polder_free(contents);

    struct polder_dir directory;
    struct polder_entry entry;
    check(polder_dir_open(volume, "/notes/2026", &directory));
    while ((result = polder_dir_next(directory, &entry)) == 1) {
        printf("%s, inode %llu\n", entry.name, (unsigned long long)entry.inode);
    }
    check(result);
    check(polder_dir_close(directory));

    /* Everything is durable, and the next open has nothing to recover. */
    check(polder_volume_close(volume));
    return 0;
}
