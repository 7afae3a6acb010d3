/* Writes a file with asynchronous direct I/O (io_submit), round after round, while another thread reads it through the
 * cache. After each round every read must return the new data. Reports how many reads returned old data. */

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

enum { PAGE = 4096, PAGES = 64, BYTES = PAGE * PAGES, ROUNDS = 60 };

/* With `pread`, or through a mapping of a descriptor that was opened with these flags. */
struct reader {
    int file;
    const volatile char *mapping;
};

static atomic_int stopped;

static struct reader open_reader(const char *path, int flags, int maps)
{
    struct reader reader = {open(path, O_RDONLY | flags), NULL};
    if (reader.file < 0)
        err(2, "%s", path);
    if (maps && (reader.mapping = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, reader.file, 0)) == MAP_FAILED)
        err(2, "mmap");
    return reader;
}

static char read_page(const struct reader *reader, int page)
{
    char byte;
    if (reader->mapping)
        return reader->mapping[page * PAGE];
    if (pread(reader->file, &byte, 1, page * PAGE) != 1)
        err(2, "pread");
    return byte;
}

static void *read_on(void *reader)
{
    while (!stopped)
        for (int page = 0; page < PAGES; page++)
            read_page(reader, page);
    return NULL;
}

static void write_round(aio_context_t context, int file, char *bytes, char round)
{
    struct iocb blocks[PAGES] = {0}, *list[PAGES];
    struct io_event done[PAGES];
    memset(bytes, round, BYTES);
    for (int page = 0; page < PAGES; page++) {
        list[page] = &blocks[page];
        blocks[page].aio_lio_opcode = IOCB_CMD_PWRITE;
        blocks[page].aio_fildes = file;
        blocks[page].aio_buf = (unsigned long)(bytes + page * PAGE);
        blocks[page].aio_nbytes = PAGE;
        blocks[page].aio_offset = page * PAGE;
    }
    if (syscall(SYS_io_submit, context, (long)PAGES, list) != PAGES)
        err(2, "io_submit");
    if (syscall(SYS_io_getevents, context, (long)PAGES, (long)PAGES, done, NULL) != PAGES)
        err(2, "io_getevents");
    for (int page = 0; page < PAGES; page++)
        if (done[page].res != PAGE)
            errx(2, "a write returned %lld", (long long)done[page].res);
}

int main(int count, char **words)
{
    if (count != 3)
        errx(2, "FILE read|map|map-direct");
    int maps = strcmp(words[2], "read") != 0, flags = strcmp(words[2], "map-direct") ? 0 : O_DIRECT, old = 0;
    int file = open(words[1], O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
    char *bytes = aligned_alloc(PAGE, BYTES);
    aio_context_t context = 0;
    pthread_t thread;
    if (file < 0 || !bytes || syscall(SYS_io_setup, (long)PAGES, &context))
        err(2, "%s", words[1]);
    memset(bytes, 0, BYTES);
    if (pwrite(file, bytes, BYTES, 0) != BYTES)
        err(2, "pwrite");
    struct reader busy = open_reader(words[1], flags, maps), reader = open_reader(words[1], flags, maps);
    if (pthread_create(&thread, NULL, read_on, &busy))
        errx(2, "no thread");
    for (char round = 1; round <= ROUNDS; round++) {
        write_round(context, file, bytes, round);
        for (int page = 0; page < PAGES; page++)
            old += read_page(&reader, page) != round;
    }
    stopped = 1;
    pthread_join(thread, NULL);
    printf("%d reads were old\n", old);
    return old > 0;
}
