/*
 * A journal that survives crashes: each entry is durable before the program goes on. Four threads write to it.
 *
 *     cc -pthread journal.c $(pkg-config --cflags --libs polder) -o journal && ./journal data.polder
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <polder.h>

enum { THREADS = 4, ENTRIES = 3 };

static struct polder_file journal;

static void check(long result) {
    if (result < 0) {
        fprintf(stderr, "error %ld: %s\n", -result, polder_message());
        exit(1);
    }
}

/* A handle can be used by all threads. Appends do not mix. */
static void *write_entries(void *name) {
    for (int number = 0; number < ENTRIES; number++) {
        char entry[64];
        uint64_t offset;
        int length = snprintf(entry, sizeof entry, "thread %s, entry %d\n", (const char *)name, number);
        check(polder_file_append(journal, entry, (size_t)length, &offset));
        check(polder_file_sync(journal));
    }
    return name;
}

int main(int count, char **arguments) {
    struct polder_volume volume;
    struct polder_create_options options = POLDER_CREATE_OPTIONS_INIT;
    pthread_t threads[THREADS];
    char names[THREADS][2];
    struct stat found;
    if (count != 2) {
        fprintf(stderr, "usage: %s VOLUME\n", arguments[0]);
        return 2;
    }
    options.size = 64 << 20;
    int result = polder_volume_open(arguments[1], NULL, &volume);
    check(result == -ENOENT ? polder_volume_create(arguments[1], &options, NULL, &volume) : result);
    check(polder_file_open(volume, "/journal", O_RDWR | O_CREAT, 0600, &journal));
    for (int number = 0; number < THREADS; number++) {
        snprintf(names[number], sizeof names[number], "%d", number);
        if (pthread_create(&threads[number], NULL, write_entries, names[number]) != 0) return 1;
    }
    for (int number = 0; number < THREADS; number++) pthread_join(threads[number], NULL);
    check(polder_file_stat(journal, &found));
    printf("each thread wrote %d entries; the journal has %lld bytes\n", ENTRIES, (long long)found.st_size);
    check(polder_file_close(journal));
    check(polder_volume_close(volume));
    return 0;
}
