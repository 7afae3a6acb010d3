/* Threads that use, close and open the same handles at the same time. */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 8, ROUNDS = 400 };

static struct polder_volume volume;
static _Atomic uint64_t shared;

/* Reads and writes whatever file is open at the moment. Another thread may close it between two calls, or during one. */
static void *use(void *unused) {
    char bytes[512];
    (void)unused;
    for (int round = 0; round < ROUNDS; round++) {
        struct polder_file file = {shared};
        ssize_t result = polder_file_append(file, "0123456789", 10, NULL);
        CHECK(result == 0 || result == -EBADF);
        result = polder_file_read(file, bytes, sizeof bytes, 0);
        CHECK(result >= 0 || result == -EBADF);
    }
    return NULL;
}

static void *reopen(void *unused) {
    (void)unused;
    for (int round = 0; round < ROUNDS; round++) {
        struct polder_file file = open_file(volume, "/file", O_RDWR);
        struct polder_file old = {atomic_exchange(&shared, file.id)};
        OK(polder_file_close(old));
        FAILS(polder_file_close(old), EBADF);
    }
    return NULL;
}

/* The texts of failures belong to the threads. */
static void *fail(void *name) {
    char path[64];
    struct stat found;
    snprintf(path, sizeof path, "/missing-%s", (const char *)name);
    for (int round = 0; round < ROUNDS; round++) {
        FAILS(polder_stat(volume, path, &found), ENOENT);
        CHECK(strstr(polder_message(), path) != NULL);
    }
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t threads[THREADS];
    struct stat found;
    CHECK(count == 2);
    volume = new_volume(arguments, "volume");
    shared = open_file(volume, "/file", O_RDWR | O_CREAT).id;
    for (int number = 0; number < THREADS; number++) {
        void *(*const bodies[])(void *) = {use, reopen, use, fail};
        char *name = number % 8 < 4 ? "one" : "two";
        CHECK(pthread_create(&threads[number], NULL, bodies[number % 4], name) == 0);
    }
    for (int number = 0; number < THREADS; number++) CHECK(pthread_join(threads[number], NULL) == 0);
    OK(polder_stat(volume, "/file", &found));
    CHECK(found.st_size % 10 == 0);
    OK(polder_volume_close(volume));
    return 0;
}
