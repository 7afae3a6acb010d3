/* Truncates and extends a file, round after round, while its pages are being written back, because another file is synced,
 * or because asynchronous direct writes invalidate them. Ends when all rounds are done. */

#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, BYTES = 4 << 20, ROUNDS = 150, STEPS = 8 };

static const char *path;
static atomic_int stopped;

static int open_file(const char *name, int flags)
{
    int file = open(name, O_RDWR | O_CREAT | flags, 0600);
    if (file < 0)
        err(2, "%s", name);
    return file;
}

static void resize(int file, off_t size)
{
    if (ftruncate(file, size) != 0)
        err(2, "ftruncate");
}

static void write_at(int file, const void *bytes, size_t count)
{
    if (pwrite(file, bytes, count, 0) != (ssize_t)count)
        err(2, "pwrite");
}

static void *sync_another(void *bytes)
{
    char name[4096];
    snprintf(name, sizeof name, "%s-other", path);
    int file = open_file(name, 0);
    while (!stopped) {
        write_at(file, bytes, PAGE);
        if (fsync(file) != 0)
            err(2, "fsync");
    }
    return NULL;
}

static void *write_past_cache(void *bytes)
{
    aio_context_t context = 0;
    int file = open_file(path, O_DIRECT);
    struct iocb block = {.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = file, .aio_buf = (unsigned long)bytes,
        .aio_nbytes = PAGE}, *list[] = {&block};
    struct io_event done;
    if (syscall(SYS_io_setup, 1, &context) != 0)
        err(2, "io_setup");
    while (!stopped)
        if (syscall(SYS_io_submit, context, 1, list) != 1 || syscall(SYS_io_getevents, context, 1, 1, &done, NULL) != 1)
            err(2, "io_submit");
    return NULL;
}

/* The file always has its first page. */
static void *store(void *unused)
{
    (void)unused;
    volatile char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, open_file(path, 0), 0);
    if (page == MAP_FAILED)
        err(2, "mmap");
    for (unsigned round = 0; !stopped; round++)
        page[round % PAGE] = (char)round;
    return NULL;
}

int main(int count, char **words)
{
    if (count != 3)
        errx(2, "usage: %s FILE sync|direct", words[0]);
    path = words[1];
    int syncs = strcmp(words[2], "sync") == 0;
    char *bytes = aligned_alloc(PAGE, BYTES);
    memset(bytes, 'n', BYTES);
    int file = open_file(path, 0);
    resize(file, PAGE);
    void *(*others[])(void *) = {syncs ? sync_another : write_past_cache, store};
    pthread_t threads[2];
    int running = syncs ? 1 : 2;
    for (int i = 0; i < running; i++)
        if (pthread_create(&threads[i], NULL, others[i], bytes) != 0)
            err(2, "pthread_create");
    for (int round = 0; round < ROUNDS; round++) {
        if (syncs) {
            resize(file, 0);
            write_at(file, bytes, BYTES);
        } else {
            resize(file, PAGE);
        }
        off_t size = syncs ? BYTES : PAGE;
        for (int step = 1; step <= STEPS; step++)
            resize(file, size + step * 1000);
    }
    stopped = 1;
    for (int i = 0; i < running; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
